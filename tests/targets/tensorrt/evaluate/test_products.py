"""MATRIX_MULTIPLY, EINSUM and ROTARY_EMBEDDING."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError
from onnx import helper

Evaluated = Callable[..., Any]


def product(left: str, right: str) -> Callable[..., Any]:
    def build(network: Any, a: Any, b: Any) -> Any:
        operations = trt.MatrixOperation
        return network.add_matrix_multiply(
            a, getattr(operations, left), b, getattr(operations, right)
        ).get_output(0)

    return build


@pytest.mark.parametrize(
    ("left", "right", "first", "second", "equation"),
    [
        ("NONE", "NONE", (2, 3, 4), (2, 4, 5), "bij,bjk->bik"),
        ("TRANSPOSE", "NONE", (4, 3), (4, 5), "ji,jk->ik"),
        ("NONE", "TRANSPOSE", (2, 1, 3, 4), (2, 6, 5, 4), "abij,abkj->abik"),
        ("TRANSPOSE", "TRANSPOSE", (1, 4, 3), (2, 5, 4), "bji,bkj->bik"),
        ("NONE", "VECTOR", (2, 3, 4), (1, 4), "bij,bj->bi"),
        ("VECTOR", "NONE", (2, 4), (2, 4, 5), "bj,bjk->bk"),
        ("VECTOR", "VECTOR", (2, 4), (2, 4), "bj,bj->b"),
        ("VECTOR", "VECTOR", (4,), (4,), "j,j->"),
    ],
)
def test_collections_of_matrices_and_vectors(
    evaluated: Evaluated,
    left: str,
    right: str,
    first: tuple[int, ...],
    second: tuple[int, ...],
    equation: str,
) -> None:
    a, b = torch.randn(first), torch.randn(second)
    expected = np.einsum(equation, a.double().numpy(), b.double().numpy())
    found = evaluated(product(left, right), a, b)
    torch.testing.assert_close(found, torch.as_tensor(expected).float())


def test_halves_are_summed_in_float32(evaluated: Evaluated) -> None:
    a, b = torch.full((1, 4096), 1.0).half(), torch.full((4096, 1), 0.1).half()
    found = evaluated(product("NONE", "NONE"), a, b)
    assert found.dtype == torch.float16
    torch.testing.assert_close(found.double(), a.double() @ b.double(), rtol=1e-3, atol=0)


@pytest.mark.parametrize("change", [{"op0": "TRANSPOSE"}, {"op1": "TRANSPOSE"}, {"op0": "NEW"}])
def test_products_are_seen(seen: Callable[..., bool], change: dict[str, str]) -> None:
    inputs = (torch.randn(3, 3), torch.randn(3, 3))
    assert seen(product("NONE", "NONE"), inputs, "MATRIX_MULTIPLY", **change)


def einsum(equation: str) -> Callable[..., Any]:
    def build(network: Any, *inputs: Any) -> Any:
        return network.add_einsum(list(inputs), equation).get_output(0)

    return build


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ik,kj->ij", [(2, 3), (3, 4)]),
        ("ab,cb", [(2, 3), (4, 3)]),
        ("ij->", [(2, 3)]),
        ("bhqd,bhkd->bhqk", [(2, 2, 3, 4), (2, 2, 5, 4)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 2)]),
        ("...ij->...ji", [(2, 3, 4)]),
        ("...ij,...jk", [(2, 3, 4), (2, 4, 5)]),
    ],
)
def test_einsum(evaluated: Evaluated, equation: str, shapes: list[tuple[int, ...]]) -> None:
    inputs = [torch.randn(shape) for shape in shapes]
    expected = np.einsum(equation, *(value.double().numpy() for value in inputs))
    found = evaluated(einsum(equation), *inputs)
    torch.testing.assert_close(found, torch.as_tensor(expected).float())


def test_einsum_is_seen(seen: Callable[..., bool]) -> None:
    inputs = (torch.randn(3, 3), torch.randn(3, 3))
    assert seen(einsum("ik,kj->ij"), inputs, "EINSUM", equation="ik,jk->ij")
    assert seen(einsum("ik,kj->ij"), inputs, "EINSUM", equation="ii,kj->kj")


def rotary(interleaved: bool, size: int, positions: bool = False) -> Callable[..., Any]:
    def build(network: Any, x: Any, cosine: Any, sine: Any, *ids: Any) -> Any:
        layer = network.add_rotary_embedding(x, cosine, sine, interleaved, size)
        if positions:
            layer.set_input(3, ids[0])
        return layer.get_output(0)

    return build


@pytest.mark.parametrize("interleaved", [False, True])
@pytest.mark.parametrize("size", [0, 4])
def test_rotary_embedding(evaluated: Evaluated, interleaved: bool, size: int) -> None:
    """Pairs as complex numbers, times a number on the unit circle."""
    x, angles = torch.randn(2, 3, 5, 8), torch.randn(2, 5, (size or 8) // 2)
    part = x[..., : size or 8]
    pairs = part.unflatten(-1, (-1, 2)) if interleaved else part.unflatten(-1, (2, -1)).mT
    turned = torch.view_as_complex(pairs.contiguous()) * torch.polar(
        torch.ones_like(angles), angles
    ).unsqueeze(1)
    back = torch.view_as_real(turned)
    back = back.flatten(-2) if interleaved else back.mT.flatten(-2)
    expected = torch.cat([back, x[..., size or 8 :]], -1)
    found = evaluated(rotary(interleaved, size), x, angles.cos(), angles.sin())
    torch.testing.assert_close(found, expected)


def test_positions_choose_from_the_caches(evaluated: Evaluated) -> None:
    x, angles, ids = torch.randn(2, 3, 5, 8), torch.randn(7, 4), torch.randint(0, 7, (2, 5))
    found = evaluated(rotary(False, 0, True), x, angles.cos(), angles.sin(), ids)
    chosen = angles[ids]
    assert torch.equal(found, evaluated(rotary(False, 0), x, chosen.cos(), chosen.sin()))
    with pytest.raises(UnverifiableError, match="outside the caches"):
        evaluated(
            rotary(False, 0, True), x, angles.cos(), angles.sin(), 7 * (ids == ids[0, 0]).long()
        )


def test_rotary_is_seen(seen: Callable[..., bool]) -> None:
    inputs = (torch.randn(1, 2, 3, 8), torch.rand(1, 3, 4), torch.rand(1, 3, 4))
    assert seen(rotary(False, 0), inputs, "ROTARY_EMBEDDING", interleaved=True)
    assert seen(rotary(False, 0), inputs, "ROTARY_EMBEDDING", rotary_embedding_dim=4)


@pytest.mark.parametrize("op", ["MatMul", "Gemm", "Einsum"])
def test_onnx_nodes(against_onnxruntime: Callable[..., None], op: str) -> None:
    rng = np.random.default_rng(0)
    a, b, c = (rng.normal(size=s).astype(np.float32) for s in ((3, 4), (4, 5), (5,)))
    if op == "Gemm":
        attributes = {"alpha": 0.5, "beta": 2.0, "transA": 1}
        node = helper.make_node(op, ["a", "b", "c"], ["y"], **attributes)
        against_onnxruntime(node, {"a": a.T.copy(), "b": b, "c": c})
        return
    extra = {"equation": "ij,jk->ki"} if op == "Einsum" else {}
    against_onnxruntime(helper.make_node(op, ["a", "b"], ["y"], **extra), {"a": a, "b": b})
