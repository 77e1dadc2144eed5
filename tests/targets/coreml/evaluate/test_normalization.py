"""Normalisations, against torch in float64 and coremltools' own values."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from numpy.typing import NDArray
from torch.nn import functional

RNG = np.random.default_rng(5)
SUMS = [torch.float32, torch.float16]
DTYPES = [np.float32, np.float16]
SHAPES = [(2, 3, 4), (2, 3, 4, 5), (1, 3, 2, 3, 4)]


def normal(*shape: int, dtype: Any = np.float32) -> NDArray[Any]:
    return RNG.normal(size=shape).astype(dtype)


def near(found: Any, want: Any) -> None:
    half = found.dtype == torch.float16
    expected = torch.as_tensor(want).to(found.dtype)
    torch.testing.assert_close(
        found, expected, rtol=3e-3 if half else 2e-6, atol=4e-3 if half else 2e-6
    )


def wide(array: NDArray[Any]) -> torch.Tensor:
    return torch.from_numpy(array).double()


MEAN, VARIANCE = normal(3), np.float32([0.5, 1e-6, 2])
GAMMA, BETA = np.float32([2, -1, 0.5]), np.float32([0.25, 0, -3])


@pytest.mark.parametrize("opset", [5, 8])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_batch_norm_uses_the_statistics_that_it_is_given(
    evaluated: Any, shape: tuple[int, ...], dtype: Any, opset: int
) -> None:
    x, mean, variance, gamma, beta = (
        v.astype(dtype) for v in (normal(*shape), MEAN, VARIANCE, GAMMA, BETA)
    )
    given = {"mean": mean, "variance": variance, "opset": opset}

    plain = evaluated("batch_norm", {"x": x}, **given)
    scaled = evaluated("batch_norm", {"x": x}, gamma=gamma, **given, epsilon=dtype(0.125))
    moved = evaluated("batch_norm", {"x": x}, gamma=gamma, beta=beta, **given)

    near(plain, functional.batch_norm(wide(x), wide(mean), wide(variance), eps=1e-5))
    near(scaled, functional.batch_norm(wide(x), wide(mean), wide(variance), wide(gamma), eps=0.125))
    near(
        moved,
        functional.batch_norm(
            wide(x), wide(mean), wide(variance), wide(gamma), wide(beta), eps=1e-5
        ),
    )


@pytest.mark.parametrize("accumulate", SUMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES[:2])
def test_instance_norm_uses_the_statistics_of_each_channel(
    evaluated: Any, shape: tuple[int, ...], dtype: Any, accumulate: torch.dtype
) -> None:
    x, gamma, beta = (v.astype(dtype) for v in (normal(*shape), GAMMA, BETA))

    plain = evaluated("instance_norm", {"x": x}, accumulate=accumulate)
    moved = evaluated(
        "instance_norm", {"x": x}, gamma=gamma, beta=beta, epsilon=dtype(0.5), accumulate=accumulate
    )

    near(plain, functional.instance_norm(wide(x)))
    near(moved, functional.instance_norm(wide(x), None, None, wide(gamma), wide(beta), eps=0.5))


@pytest.mark.parametrize("accumulate", SUMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("axes", [[-1], [1, 2], [-2, -1], [0, 2], [1], [0, 1, 2]])
def test_layer_norm_over_axes(
    evaluated: Any, inferred: Any, axes: list[int], dtype: Any, accumulate: torch.dtype
) -> None:
    x = normal(3, 4, 5, dtype=dtype)
    used = [axis % 3 for axis in axes]
    shape = [x.shape[axis] for axis in used]
    gamma, beta = normal(*shape, dtype=dtype), normal(*shape, dtype=dtype)
    values = {"gamma": gamma, "beta": beta, "epsilon": dtype(0.25), "axes": np.int32(axes)}

    found = evaluated("layer_norm", {"x": x}, accumulate=accumulate, **values)

    data = wide(x)
    variance, mean = torch.var_mean(data, used, correction=0, keepdim=True)
    over = [size if axis in used else 1 for axis, size in enumerate(x.shape)]
    want = (data - mean) / (variance + 0.25).sqrt() * wide(gamma).reshape(over)
    near(found, want + wide(beta).reshape(over))
    if dtype == np.float32:
        near(found, inferred("layer_norm", {"x": x}, **values))


def test_layer_norm_takes_all_axes_by_default(direct: Any) -> None:
    # coremltools cannot build this default of its own.
    x = normal(2, 3)

    near(direct("layer_norm", {"x": torch.from_numpy(x)}), functional.layer_norm(wide(x), (2, 3)))


def test_layer_norm_without_parameters(evaluated: Any) -> None:
    x = normal(3, 40) * 1e-3

    found = evaluated("layer_norm", {"x": x}, axes=np.int32([1]))

    near(found, functional.layer_norm(wide(x), (40,), eps=1e-5))


def test_a_float32_scale_of_a_float16_layer_norm(evaluated: Any) -> None:
    x, gamma = normal(2, 8, dtype=np.float16), normal(8)

    found = evaluated("layer_norm", {"x": x}, axes=np.int32([1]), gamma=gamma, opset=7)

    near(found, functional.layer_norm(wide(x), (8,), wide(gamma)))


def test_layer_norm_refuses_what_is_not_documented(direct: Any) -> None:
    x = torch.ones(2, 3)
    with pytest.raises(UnverifiableError, match="no axis"):
        direct("layer_norm", {"x": x, "axes": torch.ones(0, dtype=torch.int32)})
    swapped = {"x": x, "axes": torch.tensor([1, 0]), "gamma": torch.ones(2, 3)}
    with pytest.raises(UnverifiableError, match="ascend"):
        direct("layer_norm", swapped)
    for axes in ([2], [1, 1], [1, -1]):
        with pytest.raises(InputFileError, match="axes"):
            direct("layer_norm", {"x": x, "axes": torch.tensor(axes)})
    with pytest.raises(InputFileError, match="beta"):
        direct("layer_norm", {"x": x, "axes": torch.tensor([1]), "beta": torch.ones(2)})


@pytest.mark.parametrize("accumulate", SUMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(2, 3, 4), (5, 2, 3, 4), (2, 3, 1, 2, 4)])
def test_l2_norm_takes_the_last_three_dimensions(
    evaluated: Any, inferred: Any, shape: tuple[int, ...], dtype: Any, accumulate: torch.dtype
) -> None:
    x = normal(*shape, dtype=dtype)

    plain = evaluated("l2_norm", {"x": x}, accumulate=accumulate)
    bounded = evaluated("l2_norm", {"x": x}, epsilon=dtype(4), accumulate=accumulate)

    squares = wide(x).square().sum((-3, -2, -1), keepdim=True)
    near(plain, wide(x) / (squares + 1e-6).sqrt())
    near(bounded, wide(x) / (squares + 4).sqrt())
    near(bounded, inferred("l2_norm", {"x": x}, epsilon=dtype(4)).astype(np.float64))


@pytest.mark.parametrize("accumulate", SUMS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("size", [1, 3, 5, 13])
@pytest.mark.parametrize("shape", [(2, 7, 4), (2, 7, 4, 3)])
def test_local_response_norm_looks_at_neighbouring_channels(
    evaluated: Any, shape: tuple[int, ...], size: int, dtype: Any, accumulate: torch.dtype
) -> None:
    x = 3 * normal(*shape, dtype=dtype)

    plain = evaluated("local_response_norm", {"x": x}, size=size, accumulate=accumulate)
    strong = evaluated(
        "local_response_norm",
        {"x": x},
        size=size,
        alpha=dtype(0.5),
        beta=dtype(0.25),
        k=dtype(2),
        accumulate=accumulate,
    )

    near(plain, functional.local_response_norm(wide(x), size))
    near(strong, functional.local_response_norm(wide(x), size, 0.5, 0.25, 2))


@pytest.mark.parametrize(
    ("kind", "shape", "values"),
    [
        ("batch_norm", (2, 3), {"mean": torch.ones(3), "variance": torch.ones(3)}),
        ("instance_norm", (1, 3, 2, 2, 2), {}),
        ("local_response_norm", (2, 3), {"size": torch.tensor(3)}),
        ("local_response_norm", (2, 3, 4), {"size": torch.tensor(2)}),
    ],
)
def test_ranks_and_sizes_that_are_not_documented_are_refused(
    direct: Any, kind: str, shape: tuple[int, ...], values: dict[str, Any]
) -> None:
    with pytest.raises(UnverifiableError):
        direct(kind, {"x": torch.ones(shape), **values})


def test_parameters_of_wrong_lengths_are_damage(direct: Any) -> None:
    given = {"x": torch.ones(2, 3, 4), "mean": torch.ones(3), "variance": torch.ones(1)}
    with pytest.raises(InputFileError, match="variance"):
        direct("batch_norm", given)
    with pytest.raises(InputFileError, match="rank 2"):
        direct("l2_norm", {"x": torch.ones(2, 3)})
    with pytest.raises(InputFileError, match="size"):
        direct("local_response_norm", {"x": torch.ones(2, 3, 4), "size": torch.tensor(0)})


def test_defaults_that_the_file_leaves_out(direct: Any) -> None:
    # coremltools writes every default into the file. Small values make an epsilon count.
    x = torch.from_numpy(normal(2, 3, 4)) * 1e-3
    mean, variance = torch.zeros(3), torch.full((3,), 1e-5)

    near(
        direct("batch_norm", {"x": x, "mean": mean, "variance": variance}),
        functional.batch_norm(x.double(), mean.double(), variance.double(), eps=1e-5),
    )
    near(direct("instance_norm", {"x": x}), functional.instance_norm(x.double(), eps=1e-5))
    squares = x.double().square().sum((-3, -2, -1), keepdim=True)
    near(direct("l2_norm", {"x": x}), x.double() / (squares + 1e-6).sqrt())
    large = x * 1e5
    near(
        direct("local_response_norm", {"x": large, "size": torch.tensor(3)}),
        functional.local_response_norm(large.double(), 3, 1e-4, 0.75, 1.0),
    )
