"""Convolutions against torch in float64, over pad types, strides, dilations and groups."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.types import TensorType
from numpy.typing import NDArray
from torch.nn import functional

Evaluated = Callable[..., Any]
Array = NDArray[np.float32]
SHORT = pytest.mark.parametrize("accumulate", [torch.float32, torch.float16])
SIZES = {1: (11,), 2: (9, 12), 3: (5, 6, 7)}
KERNELS = {1: (3,), 2: (3, 2), 3: (2, 3, 1)}


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def wide(array: Any) -> torch.Tensor:
    return torch.from_numpy(np.asarray(array)).double()


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def padded(x: Array, pads: list[int]) -> torch.Tensor:
    """MIL gives pads from the first spatial dimension on, torch from the last."""
    pairs = [pads[i : i + 2] for i in range(0, len(pads), 2)]
    return functional.pad(wide(x), [amount for pair in reversed(pairs) for amount in pair])


def convolved(x: torch.Tensor, w: Array, bias: Array | None = None, **options: Any) -> torch.Tensor:
    function = [functional.conv1d, functional.conv2d, functional.conv3d][x.dim() - 3]
    return function(x, wide(w), None if bias is None else wide(bias), **options)


def transposed(x: Array, w: Array, bias: Array | None = None, **options: Any) -> torch.Tensor:
    names = ("conv_transpose1d", "conv_transpose2d", "conv_transpose3d")
    function = getattr(functional, names[x.ndim - 3])
    result: torch.Tensor = function(
        wide(x), wide(w), None if bias is None else wide(bias), **options
    )
    return result


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2, 4])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_valid_conv(
    evaluated: Evaluated, rank: int, groups: int, stride: int, dilation: int
) -> None:
    x, w = noise(2, 4, *SIZES[rank]), noise(8, 4 // groups, *KERNELS[rank], seed=1)
    strides, dilations = [stride] * rank, [dilation] * rank
    bias = noise(8, seed=2)

    found = evaluated(
        "conv",
        {"x": x},
        weight=w,
        bias=bias,
        strides=strides,
        dilations=dilations,
        groups=groups,
        pad_type="valid",
    )

    close(
        found,
        convolved(wide(x), w, bias, stride=strides, dilation=dilations, groups=groups),
    )


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize("pads", [(0, 1), (2, 0), (3, 1)])
def test_custom_pads_before_and_after_each_dimension(
    evaluated: Evaluated, rank: int, stride: int, pads: tuple[int, int]
) -> None:
    x, w = noise(1, 3, *SIZES[rank]), noise(2, 3, *KERNELS[rank], seed=1)
    # Another amount in each dimension, so that exchanged dimensions are seen.
    pad = [amount + axis for axis in range(rank) for amount in pads]

    found = evaluated(
        "conv", {"x": x}, weight=w, strides=[stride] * rank, pad_type="custom", pad=pad
    )

    close(found, convolved(padded(x, pad), w, stride=stride))


@pytest.mark.parametrize("size", [5, 6])
@pytest.mark.parametrize("kernel", [1, 3, 5])
@pytest.mark.parametrize("dilation", [1, 2])
@pytest.mark.parametrize("pad_type", ["same", "same_lower"])
def test_same_with_odd_kernels_is_torch_same(
    evaluated: Evaluated, size: int, kernel: int, dilation: int, pad_type: str
) -> None:
    x, w = noise(1, 2, size, size + 3), noise(3, 2, kernel, kernel, seed=1)

    found = evaluated("conv", {"x": x}, weight=w, dilations=[dilation] * 2, pad_type=pad_type)

    close(found, convolved(wide(x), w, padding="same", dilation=dilation))


@pytest.mark.parametrize("kernel", [2, 4])
def test_same_lower_pads_the_odd_one_before(evaluated: Evaluated, kernel: int) -> None:
    x, w = noise(1, 2, 7), noise(3, 2, kernel, seed=1)

    found = evaluated("conv", {"x": x}, weight=w, pad_type="same_lower")

    close(found, convolved(padded(x, [kernel // 2, kernel // 2 - 1]), w))


def test_same_with_strides_where_both_documented_formulas_agree(evaluated: Evaluated) -> None:
    x, w = noise(1, 2, 7), noise(3, 2, 3, seed=1)

    found = evaluated("conv", {"x": x}, weight=w, strides=[2], pad_type="same")

    close(found, convolved(wide(x), w, stride=2, padding=1))


@pytest.mark.parametrize(("size", "kernel", "stride"), [(7, 2, 1), (8, 3, 2), (8, 5, 3)])
def test_same_is_refused_where_the_formulas_contradict(
    evaluated: Evaluated, size: int, kernel: int, stride: int
) -> None:
    x, w = noise(1, 2, size), noise(3, 2, kernel, seed=1)

    with pytest.raises(UnverifiableError, match="contradicts itself"):
        evaluated("conv", {"x": x}, weight=w, strides=[stride], pad_type="same")


def test_defaults_of_conv(direct: Evaluated) -> None:
    x, w = torch.from_numpy(noise(1, 2, 5)), torch.from_numpy(noise(3, 2, 3, seed=1))

    close(direct("conv", {"x": x, "weight": w}), functional.conv1d(x.double(), w.double()))


@SHORT
def test_float16_is_rounded_once_after_the_bias(
    evaluated: Evaluated, accumulate: torch.dtype
) -> None:
    x, w = noise(1, 8, 6, 6).astype(np.float16), noise(4, 8, 3, 3, seed=1).astype(np.float16)
    bias = noise(4, seed=2).astype(np.float16)

    found = evaluated(
        "conv", {"x": x}, accumulate=accumulate, weight=w, bias=bias, pad_type="valid"
    )

    assert found.dtype == torch.float16
    exact = convolved(wide(x), w, bias)
    ulp = 2.0**-10 * exact.abs().clamp(min=1.0)
    assert bool(
        ((found.double() - exact).abs() <= (0.51 if accumulate == torch.float32 else 2) * ulp).all()
    )


@pytest.mark.parametrize("kind", ["conv", "conv_transpose"])
def test_long_sums_of_float16_depend_on_the_accumulator(evaluated: Evaluated, kind: str) -> None:
    x = noise(1, 1024, 4).astype(np.float16)
    w = noise(*((2, 1024, 3) if kind == "conv" else (1024, 2, 3)), seed=1).astype(np.float16)
    function = convolved(wide(x), w) if kind == "conv" else transposed(x, w)

    exact, rough = (
        evaluated(kind, {"x": x}, accumulate=dtype, weight=w, pad_type="valid")
        for dtype in (torch.float32, torch.float16)
    )

    assert not torch.equal(exact, rough)
    close(exact, function, 1e-3)
    close(rough, function, 1e-2)


@pytest.mark.parametrize("kind", ["conv", "conv_transpose"])
def test_groups_are_summed_apart_in_float16(evaluated: Evaluated, kind: str) -> None:
    x = noise(1, 1200, 4).astype(np.float16)
    w = noise(*((4, 600, 3) if kind == "conv" else (1200, 2, 3)), seed=1).astype(np.float16)
    expected = convolved(wide(x), w, groups=2) if kind == "conv" else transposed(x, w, groups=2)

    found = evaluated(
        kind, {"x": x}, accumulate=torch.float16, weight=w, pad_type="valid", groups=2
    )

    close(found, expected, 2e-2)


def test_weights_of_another_dtype_leave_that_of_x(evaluated: Evaluated) -> None:
    x, w = noise(1, 2, 5), noise(3, 2, 3, seed=1).astype(np.float16)

    found = evaluated("conv", {"x": x}, weight=w, pad_type="valid")

    assert found.dtype == torch.float32
    close(found, convolved(wide(x), w))


@pytest.mark.parametrize("rank", [1, 2, 3])
@pytest.mark.parametrize("groups", [1, 2])
@pytest.mark.parametrize("stride", [1, 2, 3])
@pytest.mark.parametrize("dilation", [1, 2])
def test_valid_conv_transpose(
    evaluated: Evaluated, rank: int, groups: int, stride: int, dilation: int
) -> None:
    x, w = noise(2, 4, *SIZES[rank]), noise(4, 3, *KERNELS[rank], seed=1)
    strides, dilations, bias = [stride] * rank, [dilation] * rank, noise(3 * groups, seed=2)

    found = evaluated(
        "conv_transpose",
        {"x": x},
        weight=w,
        bias=bias,
        strides=strides,
        dilations=dilations,
        groups=groups,
        pad_type="valid",
    )

    close(found, transposed(x, w, bias, stride=strides, dilation=dilations, groups=groups))


def test_custom_pads_crop_the_transposed_result(evaluated: Evaluated) -> None:
    x, w, pad = noise(1, 2, 5, 6), noise(2, 3, 4, 3, seed=1), [1, 0, 2, 1]

    found = evaluated(
        "conv_transpose", {"x": x}, weight=w, strides=[2, 3], pad_type="custom", pad=pad
    )

    full = transposed(x, w, stride=(2, 3))
    close(found, full[:, :, 1:, 2:-1])


@pytest.mark.parametrize("padding", [1, 2])
def test_output_padding_is_less_padding_after(evaluated: Evaluated, padding: int) -> None:
    x, w = noise(1, 2, 5), noise(2, 3, 5, seed=1)

    found = evaluated(
        "conv_transpose",
        {"x": x},
        weight=w,
        strides=[2],
        pad_type="custom",
        pad=[padding, padding - 1],
    )

    close(found, transposed(x, w, stride=2, padding=padding, output_padding=1))


@pytest.mark.parametrize("kernel", [1, 3, 5])
def test_same_conv_transpose_keeps_the_size(evaluated: Evaluated, kernel: int) -> None:
    x, w = noise(1, 2, 6), noise(2, 3, kernel, seed=1)

    found = evaluated("conv_transpose", {"x": x}, weight=w, pad_type="same")

    close(found, transposed(x, w, padding=kernel // 2))


@pytest.mark.parametrize(("kernel", "stride"), [(4, 2), (3, 2), (2, 1), (1, 2)])
def test_same_conv_transpose_is_refused_where_its_place_is_open(
    evaluated: Evaluated, kernel: int, stride: int
) -> None:
    x, w = noise(1, 2, 6), noise(2, 3, kernel, seed=1)

    with pytest.raises(UnverifiableError):
        evaluated("conv_transpose", {"x": x}, weight=w, strides=[stride], pad_type="same")


def test_an_output_shape_that_says_nothing_new_is_taken(evaluated: Evaluated) -> None:
    x, w = noise(1, 2, 5), noise(2, 3, 3, seed=1)

    found = evaluated(
        "conv_transpose", {"x": x}, weight=w, strides=[2], pad_type="valid", output_shape=[1, 3, 11]
    )

    close(found, transposed(x, w, stride=2))


def test_an_output_shape_of_another_size_is_refused(evaluated: Evaluated) -> None:
    x, w = noise(1, 2, 5), noise(2, 3, 3, seed=1)

    with pytest.raises(UnverifiableError, match="output_shape"):
        evaluated(
            "conv_transpose",
            {"x": x},
            weight=w,
            strides=[2],
            pad_type="valid",
            output_shape=[1, 3, 12],
        )


REFUSED: dict[str, dict[str, Any]] = {
    "pads without custom": {"pad_type": "valid", "pad": torch.tensor([1, 1])},
    "unknown pad type": {"pad_type": "mirror"},
    "unknown argument": {"pad_type": "valid", "twist": torch.tensor(1)},
}


@pytest.mark.parametrize("kind", ["conv", "conv_transpose"])
@pytest.mark.parametrize("case", REFUSED)
def test_what_is_not_documented_is_refused(direct: Evaluated, kind: str, case: str) -> None:
    x, w = torch.ones(1, 2, 5), torch.ones(2, 2, 3)

    with pytest.raises(UnverifiableError):
        direct(kind, {"x": x, "weight": w, **REFUSED[case]})


def test_same_lower_is_refused_before_ios16(direct: Evaluated) -> None:
    arguments = {"x": torch.ones(1, 2, 5), "weight": torch.ones(2, 2, 3), "pad_type": "same_lower"}

    assert direct("conv", arguments, opset=6).shape == (1, 2, 5)
    with pytest.raises(UnverifiableError, match="iOS 15"):
        direct("conv", arguments, opset=5)


@pytest.mark.parametrize("shape", [(1, 2, 0), (0, 2, 5)])
def test_sums_of_no_terms_are_refused(direct: Evaluated, shape: tuple[int, ...]) -> None:
    with pytest.raises(UnverifiableError, match="no terms"):
        direct("conv", {"x": torch.ones(shape), "weight": torch.ones(2, 2, 3)})


DAMAGED: dict[str, dict[str, Any]] = {
    "rank": {"weight": torch.ones(2, 2, 3, 3)},
    "channels": {"weight": torch.ones(2, 3, 3)},
    "groups": {"weight": torch.ones(3, 1, 3), "groups": torch.tensor(2)},
    "bias": {"bias": torch.ones(3)},
    "strides": {"strides": torch.tensor([1, 1])},
    "stride 0": {"strides": torch.tensor([0])},
    "dilation 0": {"dilations": torch.tensor([0])},
    "pad": {"pad": torch.tensor([1]), "pad_type": "custom"},
    "negative pad": {"pad": torch.tensor([-1, 0]), "pad_type": "custom"},
    "size": {"weight": torch.ones(2, 2, 6)},
}


@pytest.mark.parametrize("case", DAMAGED)
def test_contradictions_are_damage(direct: Evaluated, case: str) -> None:
    with pytest.raises(InputFileError, match="damaged"):
        direct("conv", {"x": torch.ones(1, 2, 5), "weight": torch.ones(2, 2, 3), **DAMAGED[case]})


@pytest.mark.parametrize("name", ["strides", "dilations", "pad"])
def test_one_entry_too_many_is_named(direct: Evaluated, name: str) -> None:
    arguments = {"x": torch.ones(1, 2, 5), "weight": torch.ones(2, 2, 3)}

    with pytest.raises(InputFileError, match=f"{name} has 3 entries"):
        direct("conv", {**arguments, name: torch.ones(3).int()})


def test_a_declared_shape_that_does_not_come_out_is_damage(direct: Evaluated) -> None:
    arguments = {"x": torch.ones(1, 2, 5), "weight": torch.ones(2, 2, 3)}

    with pytest.raises(InputFileError, match="is declared"):
        direct("conv", arguments, TensorType("fp32", (1, 2, 4)))
