"""What is rewritten for want of linear algebra computes what torch computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from isomorph.exporter.decompositions import decompose
from isomorph.exporter.legalize import legalize
from isomorph.exporter.rules import spectral
from isomorph.exporter.rules.linear_algebra import LINALG_RULES
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram
from torch.utils import _pytree as pytree

linalg = torch.linalg
INF = float("inf")
_GENERATOR = torch.Generator().manual_seed(0)


class Calls(nn.Module):
    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *tensors: Tensor) -> Any:
        return self.function(*tensors)


def rewritten(
    function: Callable[..., Any], *tensors: Tensor, batch: bool = False
) -> ExportedProgram:
    """The program of `function` with all rules applied; the first axis is dynamic on request."""
    shapes = {"tensors": tuple({0: Dim.DYNAMIC} for _ in tensors)} if batch else None
    program = torch.export.export(Calls(function), tensors, dynamic_shapes=shapes)
    legalize(program, _plain, LINALG_RULES, decompose)
    return program


def _plain(node: Any) -> bool:
    """Neither an operator that has a rule nor one that torch itself decomposes everywhere."""
    target = node.target
    composite = isinstance(target, torch._ops.OpOverload) and target._can_decompose()
    return target not in LINALG_RULES and not composite


_LACKING = ("linalg", "cholesky", "lu_", "triangular", "ormqr", "geqrf", "svd", "eig", "pinv")


def left(program: ExportedProgram) -> list[str]:
    """Operators of linear algebra that are still there, and others with a rule."""
    calls = [n.target for n in program.graph.nodes if n.op == "call_function"]
    return [str(t) for t in calls if t in LINALG_RULES or any(w in str(t) for w in _LACKING)]


def leaves(result: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]


def run(program: ExportedProgram, *tensors: Tensor) -> list[Tensor]:
    return leaves(torch.fx.Interpreter(program.graph_module).run(*tensors))


def agrees(function: Callable[..., Any], *tensors: Tensor, others: Any = None) -> None:
    """The rewritten program gives what torch gives, on `tensors` or on `others` of other sizes."""
    program = rewritten(function, *tensors, batch=others is not None)
    given = tensors if others is None else others
    assert left(program) == []
    found, wanted = run(program, *given), leaves(function(*given))
    torch.testing.assert_close(found, wanted, rtol=1e-8, atol=1e-8, equal_nan=True)


def normal(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=_GENERATOR)


def positive(*shape: int) -> Tensor:
    """Symmetric positive definite matrices."""
    a = normal(*shape)
    return a @ a.mT + 0.1 * torch.eye(shape[-1], dtype=a.dtype)


def doubles(*rows: Any) -> Tensor:
    return torch.tensor(rows, dtype=torch.float64)


SINGULAR = doubles([1, 2, 3], [2, 4, 6], [1, 1, 1])
TIED = doubles([1, 2, 3], [-1, 4, 6], [1, 1, 1])
ZERO = torch.zeros(3, 3, dtype=torch.float64)
SHAPES = [(4, 4), (3, 5), (5, 3), (1, 1), (1, 4), (4, 1), (2, 3, 3), (0, 3, 3)]

FACTORS: dict[str, Callable[..., Any]] = {
    "lu_factor_ex": linalg.lu_factor_ex,
    "lu": linalg.lu,
    "lu_unpack": lambda a: torch.lu_unpack(*linalg.lu_factor(a)),
    "qr": linalg.qr,
    "qr_complete": lambda a: linalg.qr(a, mode="complete"),
    "qr_r": lambda a: linalg.qr(a, mode="r")[1],
    "geqrf": torch.geqrf,
}


@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("name", FACTORS)
def test_factors_of_every_shape(name: str, shape: tuple[int, ...]) -> None:
    agrees(FACTORS[name], normal(*shape))


@pytest.mark.parametrize("name", ["lu_factor_ex", "lu", "qr", "geqrf"])
@pytest.mark.parametrize("matrix", [SINGULAR, ZERO, TIED], ids=["singular", "zero", "tied"])
def test_factors_of_special_matrices(name: str, matrix: Tensor) -> None:
    agrees(FACTORS[name], matrix)


TRIANGLE = normal(2, 4, 4)
PACKED, PIVOTS = linalg.lu_factor(normal(4, 4))
GEQRF = torch.geqrf(normal(5, 3))
CASES: dict[str, tuple[Any, ...]] = {
    "cholesky": (linalg.cholesky, positive(2, 4, 4)),
    "cholesky_upper": (lambda a: linalg.cholesky_ex(a, upper=True), positive(3, 3).triu()),
    "cholesky_lower": (linalg.cholesky_ex, positive(3, 3).tril()),
    "cholesky_info": (lambda a: linalg.cholesky_ex(a)[1], normal(6, 4, 4)),
    "cholesky_solve": (torch.cholesky_solve, normal(2, 4, 3), TRIANGLE),
    "cholesky_solve_upper": (lambda b, a: torch.cholesky_solve(b, a, True), normal(4, 3), TRIANGLE),
    "cholesky_inverse": (torch.cholesky_inverse, TRIANGLE),
    "cholesky_inverse_upper": (lambda a: torch.cholesky_inverse(a, True), TRIANGLE),
    "det": (linalg.det, normal(4, 4, 4)),
    "det_zero": (linalg.det, ZERO),
    "det_none": (linalg.det, normal(2, 0, 0)),
    "slogdet": (linalg.slogdet, normal(4, 4, 4)),
    "slogdet_zero": (linalg.slogdet, ZERO),
    "logdet": (torch.logdet, normal(4, 3, 3)),
    "solve": (linalg.solve, normal(2, 4, 4), normal(2, 4, 3)),
    "solve_vector": (linalg.solve, normal(4, 4), normal(4)),
    "solve_vectors": (linalg.solve, normal(2, 4, 4), normal(2, 4)),
    "solve_broadcast": (linalg.solve, normal(4, 1, 3, 3), normal(2, 3, 2)),
    "solve_right": (lambda a, b: linalg.solve(a, b, left=False), normal(3, 3), normal(2, 3)),
    "solve_ex": (linalg.solve_ex, normal(3, 3), normal(3)),
    "inv": (linalg.inv, normal(2, 5, 5)),
    "inv_one": (linalg.inv, normal(1, 1)),
    "inv_ex_info": (lambda a: linalg.inv_ex(a)[1], SINGULAR),
    "tensorinv": (lambda a: linalg.tensorinv(a, 2), normal(2, 3, 6)),
    "tensorsolve": (linalg.tensorsolve, normal(2, 3, 6), normal(2, 3)),
    "householder": (linalg.householder_product, normal(4, 4), normal(4)),
    "householder_fewer": (linalg.householder_product, normal(2, 5, 4), normal(2, 3)),
    "eigvalsh_diagonal": (linalg.eigvalsh, torch.diag(doubles(1, -1, 1, 0).reshape(-1))),
    "svdvals_zero": (linalg.svdvals, ZERO),
    "pinv_tall": (linalg.pinv, normal(5, 3)),
    "pinv_wide": (linalg.pinv, normal(3, 5)),
    "pinv_singular": (linalg.pinv, normal(4, 2) @ normal(2, 4)),
    "pinv_hermitian": (lambda a: linalg.pinv(a, hermitian=True), positive(3, 3) - 0.5),
    "pinv_rtol": (lambda a, t: linalg.pinv(a, rtol=t), normal(2, 3, 3), doubles(0.3)[0]),
    "pinv_atol": (lambda a, t: linalg.pinv(a, atol=t), normal(2, 3, 3), doubles(0.3, 0)),
    "pinverse": (torch.pinverse, normal(3, 3)),
    "polar": (linalg.polar, normal(2, 4, 3)),
    "matrix_sqrth": (linalg.matrix_sqrth, positive(3, 3)),
    "matrix_rank": (linalg.matrix_rank, normal(4, 2) @ normal(2, 4)),
    "cond": (linalg.cond, normal(3, 3)),
    "matrix_exp_zero": (linalg.matrix_exp, ZERO),
    "matrix_exp_nilpotent": (linalg.matrix_exp, doubles([0, 1e4], [0, 0])),
    "matrix_exp_large": (linalg.matrix_exp, 20 * normal(2, 3, 3)),
    "matrix_exp": (linalg.matrix_exp, normal(2, 3, 3)),
}


@pytest.mark.parametrize("name", CASES)
def test_linear_algebra(name: str) -> None:
    agrees(*CASES[name])


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (2, 3), (5, 3), (2, 4, 4)], ids=str)
def test_singular_values(shape: tuple[int, ...]) -> None:
    agrees(linalg.svdvals, normal(*shape))


@pytest.mark.parametrize("triangle", ["L", "U"])
@pytest.mark.parametrize("n", [1, 2, 3, 4])
def test_eigenvalues_of_one_triangle(n: int, triangle: str) -> None:
    agrees(lambda a: linalg.eigvalsh(a, triangle), normal(n, n))


def _difficult(n: int) -> Tensor:
    """Random, graded, clustered, integer and Hilbert matrices."""
    one, two = linalg.qr(normal(2, n, n))[0]
    order = torch.arange(n, dtype=torch.float64)
    ones = torch.ones(n, n, dtype=torch.float64)
    return torch.stack(
        [
            *normal(40, n, n),
            *(normal(40, n, n).round()),
            one * torch.logspace(0, -12, n, dtype=torch.float64) @ two,
            one * (1 + 1e-3 * order / n) @ two,
            1 / (order[:, None] + order + 1),
            torch.eye(n, dtype=torch.float64).flip(0) + 1e-4 * ones,
        ]
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("n", [2, 3, 4, 5, 8, 11, 16])
def test_rotations_converge(n: int, dtype: torch.dtype) -> None:
    a = _difficult(n).to(dtype)
    close = 8 * n * torch.finfo(dtype).eps  # LAPACK's own eigenvalues are 8 eps off at n = 16
    symmetric = a + a.mT
    for found, wanted in (
        (spectral._linalg_svd(a, False, False, None)[1], linalg.svdvals(a.double())),
        (spectral._linalg_eigh(symmetric, "L", False)[0], linalg.eigvalsh(symmetric.double())),
    ):
        assert found is not None
        top = wanted.abs().amax(-1)
        assert ((found - wanted).abs().amax(-1) <= close * top).all()


@pytest.mark.parametrize("order", ["nuc", "fro", 2, -2, 1, -INF], ids=str)
def test_matrix_norms(order: Any) -> None:
    agrees(lambda a: linalg.matrix_norm(a, order, (-1, 0)), normal(3, 2, 4))


@pytest.mark.parametrize("n", [-3, -1, 0, 1, 2, 5])
def test_matrix_powers(n: int) -> None:
    agrees(lambda a: linalg.matrix_power(a, n), normal(2, 3, 3))


@pytest.mark.parametrize("upper", [False, True])
@pytest.mark.parametrize("left_side", [False, True])
@pytest.mark.parametrize("unit", [False, True])
def test_triangular_systems(upper: bool, left_side: bool, unit: bool) -> None:
    def solve(a: Tensor, b: Tensor) -> Tensor:
        return linalg.solve_triangular(a, b, upper=upper, left=left_side, unitriangular=unit)

    agrees(solve, TRIANGLE, normal(4, 4))


@pytest.mark.parametrize("one", [False, True])
@pytest.mark.parametrize("two", [False, True])
def test_options_of_solvers(one: bool, two: bool) -> None:
    wide, tall = (5, 2), (2, 5)
    agrees(lambda b, a: torch.triangular_solve(b, a, one, two), normal(4, 2), TRIANGLE)
    agrees(
        lambda a, p, b: linalg.lu_solve(a, p, b, left=one, adjoint=two),
        *(PACKED, PIVOTS, normal(2, 4, 4)),
    )
    agrees(
        lambda a, t, c: torch.ormqr(a, t, c, left=one, transpose=two),
        *(*GEQRF, normal(*(wide if one else tall))),
    )


BATCHED: dict[str, tuple[Any, ...]] = {
    "inv": (linalg.inv, (3, 3)),
    "solve": (linalg.solve, (3, 3), (3, 2)),
    "slogdet": (linalg.slogdet, (3, 3)),
    "qr": (linalg.qr, (3, 2)),
    "lu": (linalg.lu, (3, 3)),
    "svdvals": (linalg.svdvals, (2, 3)),
    "pinv": (linalg.pinv, (3, 2)),
    "matrix_exp": (linalg.matrix_exp, (2, 2)),
    "cholesky": (lambda a: linalg.cholesky(a @ a.mT), (3, 3)),
    "cummax": (lambda a: torch.cummax(a, 1), (4,)),
    "median": (lambda a: torch.median(a, 1), (4,)),
    "quantile": (lambda a: torch.quantile(a, 0.3, 1), (4,)),
    "var": (lambda a: torch.var(a, (0, 2)), (4, 3)),
    "cdist": (torch.cdist, (4, 3), (2, 3)),
}


@pytest.mark.parametrize("name", BATCHED)
def test_batch_axes_may_be_dynamic(name: str) -> None:
    function, *shapes = BATCHED[name]
    agrees(function, *(normal(3, *s) for s in shapes), others=tuple(normal(5, *s) for s in shapes))


@pytest.mark.parametrize(
    ("function", "shape"),
    [
        (lambda a: linalg.svd(a)[0], (3, 3)),
        (lambda a: linalg.eigh(a)[1], (3, 3)),
        (linalg.svdvals, (17, 17)),
        (linalg.inv, (33, 33)),
        (linalg.cholesky, (33, 33)),
        (linalg.ldl_factor, (3, 3)),
    ],
    ids=["signs of U", "signs of V", "svdvals", "inv", "cholesky", "ldl"],
)
def test_what_cannot_be_matched_stays(function: Any, shape: tuple[int, ...]) -> None:
    program = rewritten(function, normal(*shape))
    operators = {str(node.target) for node in program.graph.nodes}
    assert any("linalg" in name for name in operators)


def test_rewritten_nodes_keep_where_they_came_from() -> None:
    program = rewritten(linalg.inv, normal(2, 2))
    calls = [n for n in program.graph.nodes if n.op == "call_function"]
    assert len(calls) > 10
    assert all(n.meta.get("stack_trace") for n in calls)
