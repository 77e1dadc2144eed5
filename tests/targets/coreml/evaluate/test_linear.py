"""Matrix products, against torch in float64 and coremltools' own values."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.types import TensorType
from numpy.typing import NDArray

RNG = np.random.default_rng(3)
SUMS = [torch.float32, torch.float16]


def normal(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    return RNG.normal(size=shape).astype(dtype)


def near(found: Any, want: Any) -> None:
    half = found.dtype == torch.float16
    torch.testing.assert_close(
        found,
        torch.as_tensor(want).to(found.dtype),
        rtol=2e-3 if half else 1e-6,
        atol=2e-3 if half else 2e-6,
    )


def wide(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(array).double()


@pytest.mark.parametrize("opset", [5, 8])
@pytest.mark.parametrize("shape", [(4,), (3, 4), (2, 3, 4), (0, 4)])
def test_linear_is_x_by_the_transposed_weight(
    evaluated: Any, inferred: Any, shape: tuple[int, ...], opset: int
) -> None:
    x, weight, bias = normal(*shape), normal(5, 4), normal(5)

    plain = evaluated("linear", {"x": x}, weight=weight, opset=opset)
    biased = evaluated("linear", {"x": x}, weight=weight, bias=bias, opset=opset)

    near(plain, wide(x) @ wide(weight).T)
    near(biased, wide(x) @ wide(weight).T + wide(bias))
    near(biased, inferred("linear", {"x": x}, weight=weight, bias=bias))


def test_linear_of_integers(evaluated: Any) -> None:
    x, weight = np.int32([[3, -4]]), np.int32([[10, 1], [-2, 5]])

    found = evaluated("linear", {"x": x}, weight=weight, bias=np.int32([1, 2]))

    assert found.tolist() == [[27, -24]]
    assert found.dtype == torch.int32


@pytest.mark.parametrize("bias", [0, 1])
def test_linear_of_integers_that_may_overflow_is_refused(evaluated: Any, bias: int) -> None:
    weight = np.int32([[2**31 - 1]])

    with pytest.raises(UnverifiableError, match="int32"):
        evaluated("linear", {"x": np.int32([2 - bias])}, weight=weight, bias=np.int32([bias]))


def test_a_float32_weight_of_a_float16_linear(evaluated: Any, direct: Any) -> None:
    x, weight = normal(2, 4, dtype=np.float16), normal(3, 4)

    found = evaluated("linear", {"x": x}, weight=weight, opset=7)

    near(found, wide(x) @ wide(weight).T)
    assert found.dtype == torch.float16
    given = {"x": torch.from_numpy(x), "weight": torch.from_numpy(weight)}
    with pytest.raises(UnverifiableError, match="dtypes"):
        direct("linear", given, opset=6)


def test_linear_of_shapes_that_do_not_fit_is_damage(direct: Any) -> None:
    for weight, bias in [((5, 3), (5,)), ((5,), (5,)), ((5, 4), (4,)), ((5, 4), (1,))]:
        inputs = {"x": torch.ones(2, 4), "weight": torch.ones(weight), "bias": torch.ones(bias)}
        with pytest.raises(InputFileError, match="weight"):
            direct("linear", inputs)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.int32])
@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((4, 3), (3, 2)),
        ((10, 4, 3), (5, 10, 3, 2)),
        ((1, 4, 3), (6, 3, 2)),
        ((3,), (3, 2)),
        ((2, 0), (0, 3)),
    ],
)
def test_matmul_broadcasts_its_batches(
    evaluated: Any, inferred: Any, a: tuple[int, ...], b: tuple[int, ...], dtype: Any
) -> None:
    x, y = (4 * normal(*a)).astype(dtype), (4 * normal(*b)).astype(dtype)

    found = evaluated("matmul", {"x": x, "y": y})

    near(found, wide(x) @ wide(y))
    assert found.dtype == torch.from_numpy(x).dtype
    near(found, inferred("matmul", {"x": x, "y": y}).astype(np.float64))


@pytest.mark.parametrize(("flip_x", "flip_y"), [(True, False), (False, True), (True, True)])
def test_matmul_transposes_first(evaluated: Any, inferred: Any, flip_x: bool, flip_y: bool) -> None:
    x = normal(2, 3, 4) if flip_x else normal(2, 4, 3)
    y = normal(5, 3) if flip_y else normal(3, 5)
    values = {"transpose_x": flip_x, "transpose_y": flip_y}

    found = evaluated("matmul", {"x": x, "y": y}, **values)

    left, right = wide(x), wide(y)
    near(found, (left.mT if flip_x else left) @ (right.mT if flip_y else right))
    near(found, inferred("matmul", {"x": x, "y": y}, **values))


@pytest.mark.parametrize(("a", "b"), [((3,), (3,)), ((2, 4, 3), (3,)), ((3,), (2, 3, 4))])
def test_a_vector_becomes_a_matrix_and_transposing_it_has_no_effect(
    direct: Any, a: tuple[int, ...], b: tuple[int, ...]
) -> None:
    # coremltools refuses to build these, or declares another shape than the documentation.
    x, y = torch.from_numpy(normal(*a)), torch.from_numpy(normal(*b))
    flips = {"transpose_x": torch.tensor(len(a) == 1), "transpose_y": torch.tensor(len(b) == 1)}

    near(direct("matmul", {"x": x, "y": y, **flips}), x @ y)


def test_a_product_of_two_dtypes_has_that_of_the_factor_that_is_no_constant(
    evaluated: Any, direct: Any
) -> None:
    x, y = normal(2, 3, dtype=np.float16), normal(3, 2)

    first = evaluated("matmul", {"x": x}, y=y, opset=7)
    second = evaluated("matmul", {"y": y}, x=x, opset=7)

    assert (first.dtype, second.dtype) == (torch.float16, torch.float32)
    near(second, wide(x) @ wide(y))
    near(first, wide(x) @ wide(y))
    given = {"x": torch.from_numpy(x), "y": torch.from_numpy(y)}
    with pytest.raises(UnverifiableError, match="dtypes"):
        direct("matmul", given, opset=6)
    with pytest.raises(InputFileError, match="declared"):
        direct("matmul", given, TensorType("int32", None), opset=7)


def test_matmul_of_shapes_that_do_not_fit_is_damage(direct: Any) -> None:
    with pytest.raises(InputFileError):
        direct("matmul", {"x": torch.ones(2, 3), "y": torch.ones(2, 3)})
    with pytest.raises(InputFileError, match="scalar"):
        direct("matmul", {"x": torch.ones(()), "y": torch.ones(2, 3)})


def test_long_float16_sums_are_rounded_on_the_way_or_at_the_end(evaluated: Any) -> None:
    # 4 blocks of 512 terms with sums of 4096, 1.5, 1.5 and 1.5; float16 has steps of 4 there.
    x, y = np.ones((1, 2048), np.float16), np.full((2048, 1), 1.5 / 512, np.float16)
    y[:512] = 8

    assert evaluated("matmul", {"x": x, "y": y}).item() == 4100
    found = evaluated("matmul", {"x": x, "y": y}, accumulate=torch.float16)
    assert found.item() == 4096


@pytest.mark.parametrize("accumulate", SUMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize(
    ("equation", "a", "b"),
    [
        ("nchw,nwhu->nchu", (2, 3, 4, 5), (2, 5, 4, 6)),
        ("bkhq,bqhc->bkhc", (2, 3, 4, 5), (2, 5, 4, 6)),
        ("nchw,nwhu->nchu", (1, 3, 4, 5), (2, 5, 1, 6)),
        ("chw,whr->chr", (3, 4, 5), (5, 4, 6)),
        ("abc,cbd->abd", (3, 1, 5), (5, 4, 6)),
    ],
)
def test_einsum_of_the_two_documented_forms(
    evaluated: Any, equation: str, a: Any, b: Any, dtype: Any, accumulate: torch.dtype
) -> None:
    x, y = normal(*a, dtype=dtype), normal(*b, dtype=dtype)

    found = evaluated("einsum", {"values": (x, y)}, equation=equation, accumulate=accumulate)

    near(found, torch.einsum(equation, wide(x), wide(y)))


def test_coremltools_computes_the_same_einsum(evaluated: Any, inferred: Any) -> None:
    given = {"values": (normal(2, 3, 4, 5), normal(2, 5, 4, 6))}

    found = evaluated("einsum", given, equation="nchw,nwhu->nchu")

    near(found, inferred("einsum", given, equation="nchw,nwhu->nchu"))


@pytest.mark.parametrize(
    "equation", ["nchw,nwhu->ncuh", "ij,jk->ik", "nchw,nwhu", "nchw->nchw", "nc.w,nw.u->nc.u"]
)
def test_other_equations_are_refused(direct: Any, equation: str) -> None:
    values = (torch.ones(1, 2, 2, 2), torch.ones(1, 2, 2, 2))

    with pytest.raises(UnverifiableError, match="equation"):
        direct("einsum", {"values": values, "equation": equation})


def reference(q: Any, k: Any, v: Any, mask: Any = None) -> torch.Tensor:
    return torch.nn.functional.scaled_dot_product_attention(wide(q), wide(k), wide(v), mask)


@pytest.mark.parametrize("accumulate", SUMS)
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
@pytest.mark.parametrize("batch", [(2,), (2, 3)])
def test_attention(
    evaluated: Any, inferred: Any, batch: tuple[int, ...], dtype: Any, accumulate: torch.dtype
) -> None:
    q, k, v = (normal(*batch, *s, dtype=dtype) for s in ((4, 8), (5, 8), (5, 6)))
    given = {"query": q, "key": k, "value": v}

    found = evaluated("scaled_dot_product_attention", given, accumulate=accumulate)

    near(found, reference(q, k, v))
    near(found, inferred("scaled_dot_product_attention", given).astype(np.float64))


@pytest.mark.parametrize("shape", [(4, 5), (1, 5), (2, 1, 4, 5), (3, 4, 5)])
def test_attention_with_a_mask_of_flags_or_numbers(
    evaluated: Any, inferred: Any, shape: tuple[int, ...]
) -> None:
    q, k, v = (normal(2, 3, *s) for s in ((4, 8), (5, 8), (5, 6)))
    given = {"query": q, "key": k, "value": v}
    flags = RNG.random(shape) < 0.6
    flags[..., 0] = True
    numbers = normal(*shape)

    masked = evaluated("scaled_dot_product_attention", {**given, "attn_mask": flags})
    shifted = evaluated("scaled_dot_product_attention", {**given, "attn_mask": numbers})

    near(masked, reference(q, k, v, torch.from_numpy(flags)))
    near(masked, inferred("scaled_dot_product_attention", given, attn_mask=flags))
    near(shifted, reference(q, k, v, wide(numbers)))


def test_a_query_that_may_attend_to_nothing_is_refused(evaluated: Any) -> None:
    # The documented formula gives NaN, and torch's function 0.
    given = {name: normal(1, 2, 4) for name in ("query", "key", "value")}

    with pytest.raises(UnverifiableError, match="attend to nothing"):
        evaluated(
            "scaled_dot_product_attention",
            {**given, "attn_mask": np.array([[True, False], [False, False]])},
        )


def test_attention_of_shapes_that_do_not_fit_is_damage(direct: Any) -> None:
    q, k, v = torch.ones(2, 4, 8), torch.ones(2, 5, 8), torch.ones(2, 5, 6)
    for one, two, three in [
        (q[..., :7], k, v),
        (q, k[:, :4], v),
        (q[:1], k, v),
        (q[0], k[0], v[0]),
    ]:
        with pytest.raises(InputFileError, match="are of"):
            direct("scaled_dot_product_attention", {"query": one, "key": two, "value": three})
    given = {"query": q, "key": k, "value": v}
    for mask in (torch.zeros(4, 3), torch.zeros(3, 1, 1, 5)):
        with pytest.raises(InputFileError):
            direct("scaled_dot_product_attention", {**given, "attn_mask": mask})


def test_attention_weights_of_large_scores_are_finite(evaluated: Any) -> None:
    given = {name: np.full((1, 2, 4), 100, np.float32) for name in ("query", "key", "value")}

    found = evaluated("scaled_dot_product_attention", given)

    assert found.flatten().tolist() == [100] * 8
    assert math.isfinite(found.sum().item())


def test_defaults_that_the_file_leaves_out(direct: Any) -> None:
    x, y = torch.from_numpy(normal(3, 3)), torch.from_numpy(normal(3, 3))

    near(direct("matmul", {"x": x, "y": y}), x.double() @ y.double())
    near(direct("linear", {"x": x, "weight": y}), x.double() @ y.double().T)
