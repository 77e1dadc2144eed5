"""Resizing against torch, against the documented grids, and refusals where those are silent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.grids import grid
from isomorph.targets.coreml.evaluate.types import TensorType
from numpy.typing import NDArray
from torch.nn import functional

Evaluated = Callable[..., Any]
Array = NDArray[np.float32]
MODES = [
    "STRICT_ALIGN_CORNERS",
    "ALIGN_CORNERS",
    "DEFAULT",
    "OFFSET_CORNERS",
    "UNALIGN_CORNERS",
]
SIZES = [(5, 7), (10, 14), (3, 4), (7, 5), (1, 1), (1, 9), (13, 2)]


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def documented(mode: str, xin: int, xout: int) -> list[float]:
    """The formulas of resize_bilinear's documentation, letter by letter where xout > 1."""
    points = []
    for i in range(xout):
        if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
            if xout == 1:
                point = (xin - 1) / 2 if mode == "ALIGN_CORNERS" else 0.0
            else:
                point = i * ((xin - 1) / (xout - 1))
        elif mode == "DEFAULT":
            point = 0.0 if xout == 1 else i * ((xin - xin / xout) / (xout - 1))
        elif mode == "OFFSET_CORNERS":
            delta = max(1, xin - 1) / xout
            spacing = delta if xout == 1 else ((xout - 1) * delta) / (xout - 1)
            point = 0.5 * delta + i * spacing
        else:
            spacing = xin / xout
            point = i * spacing + 0.5 * spacing - 0.5
        points.append(min(xin - 1, max(0.0, point)))
    return points


def looped(x: Array, rows: list[float], columns: list[float]) -> torch.Tensor:
    """Bilinear values at all pairs of rows and columns, one after another."""
    image = x.astype(np.float64)
    found = np.zeros((*x.shape[:-2], len(rows), len(columns)))
    for i, row in enumerate(rows):
        for j, column in enumerate(columns):
            for y in (int(row), min(int(row) + 1, x.shape[-2] - 1)):
                for z in (int(column), min(int(column) + 1, x.shape[-1] - 1)):
                    weight = max(0, 1 - abs(row - y)) * max(0, 1 - abs(column - z))
                    found[..., i, j] += image[..., y, z] * weight
                    if z == x.shape[-1] - 1:
                        break
                if y == x.shape[-2] - 1:
                    break
    return torch.from_numpy(found)


@pytest.mark.parametrize(
    ("mode", "count", "points"),
    [
        ("UNALIGN_CORNERS", 5, [0, 0.1, 0.5, 0.9, 1]),
        ("STRICT_ALIGN_CORNERS", 5, [0, 0.25, 0.5, 0.75, 1]),
        ("ALIGN_CORNERS", 5, [0, 0.25, 0.5, 0.75, 1]),
        ("DEFAULT", 5, [0, 0.4, 0.8, 1, 1]),
        ("OFFSET_CORNERS", 5, [0.1, 0.3, 0.5, 0.7, 0.9]),
        ("UNALIGN_CORNERS", 6, [0, 0, 0.33, 0.67, 1, 1]),
        ("STRICT_ALIGN_CORNERS", 6, [0, 0.2, 0.4, 0.6, 0.8, 1]),
        ("DEFAULT", 6, [0, 0.33, 0.67, 1, 1, 1]),
        ("OFFSET_CORNERS", 6, [0.08, 0.25, 0.42, 0.58, 0.75, 0.92]),
    ],
)
def test_grids_are_the_examples_in_the_documentation(
    mode: str, count: int, points: list[float]
) -> None:
    assert grid(mode, 1, count).tolist() == pytest.approx(points, abs=0.005)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("sizes", SIZES)
def test_resize_bilinear_in_every_mode(
    evaluated: Evaluated, mode: str, sizes: tuple[int, int]
) -> None:
    x = noise(2, 3, 5, 7)
    expected = looped(x, documented(mode, 5, sizes[0]), documented(mode, 7, sizes[1]))
    arguments = {"target_size_height": sizes[0], "target_size_width": sizes[1]}

    found = evaluated("resize_bilinear", {"x": x}, sampling_mode=mode, **arguments)
    newer = evaluated(
        "resize",
        {"x": x},
        shape=np.array(sizes, np.int32),
        resized_dims=np.uint32(2),
        sampling_mode=mode,
    )

    close(found, expected)
    assert torch.equal(found, newer)


@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("align", [False, True])
def test_resize_bilinear_is_that_of_torch(
    evaluated: Evaluated, sizes: tuple[int, int], align: bool
) -> None:
    x = noise(2, 3, 5, 7)

    found = evaluated(
        "resize_bilinear",
        {"x": x},
        target_size_height=sizes[0],
        target_size_width=sizes[1],
        sampling_mode="STRICT_ALIGN_CORNERS" if align else "UNALIGN_CORNERS",
    )

    wide = torch.from_numpy(x).double()
    close(found, functional.interpolate(wide, sizes, mode="bilinear", align_corners=align))


@pytest.mark.parametrize("factors", [(2, 3), (1, 1), (2.0, 1.5), (0.5, 0.3), (1.4, 2.6)])
@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("opset", [5, 6, 9])
def test_upsample_bilinear_is_torch_with_the_factor_recomputed(
    evaluated: Evaluated, factors: tuple[float, float], align: bool, opset: int
) -> None:
    x = noise(2, 3, 5, 7)

    found = evaluated(
        "upsample_bilinear",
        {"x": x},
        opset=opset,
        scale_factor_height=factors[0],
        scale_factor_width=factors[1],
        align_corners=align,
    )

    expected = functional.interpolate(
        torch.from_numpy(x).double(),
        scale_factor=tuple(map(float, factors)),
        mode="bilinear",
        align_corners=align,
        recompute_scale_factor=True,
    )
    close(found, expected)


@pytest.mark.parametrize(
    ("align", "half", "mode"),
    [
        (False, True, "UNALIGN_CORNERS"),
        (False, False, "DEFAULT"),
        (True, False, "STRICT_ALIGN_CORNERS"),
    ],
)
def test_half_pixel_centers(evaluated: Evaluated, align: bool, half: bool, mode: str) -> None:
    x = noise(3, 4, 5)

    found = evaluated(
        "upsample_bilinear",
        {"x": x},
        opset=6,
        scale_factor_height=2,
        scale_factor_width=2,
        align_corners=align,
        half_pixel_centers=half,
    )

    close(found, looped(x, documented(mode, 4, 8), documented(mode, 5, 10)))


def test_defaults_of_upsampling_align_corners(direct: Evaluated) -> None:
    x = torch.from_numpy(noise(1, 4, 5))

    found = direct("upsample_bilinear", {"x": x, "scale_factor_width": torch.tensor(2)})

    points = documented("STRICT_ALIGN_CORNERS", 5, 10)
    close(found, looped(x.numpy(), [0.0, 1.0, 2.0, 3.0], points))


def test_half_pixel_centers_are_unknown_to_ios15_and_refused_with_aligned_corners(
    direct: Evaluated,
) -> None:
    x, yes = torch.ones(1, 4, 5), torch.tensor(True)

    with pytest.raises(UnverifiableError, match="half_pixel_centers is not known"):
        direct("upsample_bilinear", {"x": x, "half_pixel_centers": ~yes}, opset=5)
    with pytest.raises(UnverifiableError, match="align_corners with half_pixel_centers"):
        direct("upsample_bilinear", {"x": x, "half_pixel_centers": yes, "align_corners": yes})


@pytest.mark.parametrize("factors", [(1, 1), (2, 3), (4, 1), (2.0, 3.0)])
def test_nearest_by_whole_factors_repeats_pixels(
    evaluated: Evaluated, factors: tuple[float, float]
) -> None:
    x = noise(2, 3, 4, 5)
    sizes = (int(4 * factors[0]), int(5 * factors[1]))

    upsampled = evaluated(
        "upsample_nearest_neighbor",
        {"x": x},
        scale_factor_height=factors[0],
        scale_factor_width=factors[1],
    )
    resized = evaluated(
        "resize_nearest_neighbor",
        {"x": x},
        target_size_height=sizes[0],
        target_size_width=sizes[1],
    )

    expected = functional.interpolate(torch.from_numpy(x), sizes, mode="nearest")
    assert torch.equal(upsampled, expected)
    assert torch.equal(resized, expected)


@pytest.mark.parametrize("size", [2, 3, 5, 6, 7])
def test_nearest_is_refused_where_the_ways_to_find_it_differ(
    evaluated: Evaluated, size: int
) -> None:
    """From 4 to `size`: all but whole factors."""
    with pytest.raises(UnverifiableError, match="which pixel is nearest"):
        evaluated(
            "resize_nearest_neighbor",
            {"x": noise(1, 4, 4)},
            target_size_height=4,
            target_size_width=size,
        )


def test_nearest_by_a_fraction_is_refused(evaluated: Evaluated) -> None:
    with pytest.raises(UnverifiableError, match="which pixel is nearest"):
        evaluated("upsample_nearest_neighbor", {"x": noise(1, 4, 4)}, scale_factor_width=1.5)


def test_the_declared_size_settles_a_product_that_rounds(direct: Evaluated) -> None:
    """10 * float32(0.7) is 7 in float32 and 6.9999999 before it is rounded."""
    arguments = {"x": torch.ones(1, 10, 10), "scale_factor_width": torch.tensor(0.7)}

    for size in (6, 7):
        declared = TensorType("fp32", (1, 10, size))
        assert direct("upsample_bilinear", arguments, declared).shape == (1, 10, size)
    with pytest.raises(UnverifiableError, match="is 6 or 7"):
        direct("upsample_bilinear", arguments)
    with pytest.raises(UnverifiableError, match="is 6 or 7"):
        direct("upsample_bilinear", arguments, TensorType("fp32", (1, 10, None)))


@pytest.mark.parametrize("shape", [(2, 3, 8, 0), (0, 8, 0), (8, 0)])
def test_resize_takes_the_last_entries_of_shape(
    evaluated: Evaluated, shape: tuple[int, ...]
) -> None:
    x = noise(2, 3, 4, 5)

    found = evaluated(
        "resize",
        {"x": x, "shape": np.array(shape, np.int32)},
        resized_dims=np.uint32(2),
        sampling_mode="UNALIGN_CORNERS",
    )

    wide = torch.from_numpy(x).double()
    close(found, functional.interpolate(wide, (8, 5), mode="bilinear", align_corners=False))


def test_resize_of_one_dimension_leaves_the_others(evaluated: Evaluated) -> None:
    x = noise(2, 3, 4, 5)

    found = evaluated(
        "resize", {"x": x}, shape=np.array([9, 10], np.int32), resized_dims=np.uint32(1)
    )

    close(found, looped(x, [0.0, 1.0, 2.0, 3.0], documented("DEFAULT", 5, 10)))


def test_nearest_resize_is_refused_unless_rounding_does_not_matter(evaluated: Evaluated) -> None:
    x = np.arange(15, dtype=np.int32).reshape(1, 3, 5)
    options = {"resized_dims": np.uint32(2), "interpolation_mode": "NEAREST_NEIGHBOR"}

    found = evaluated(
        "resize",
        {"x": x},
        shape=np.array([3, 3], np.int32),
        sampling_mode="STRICT_ALIGN_CORNERS",
        **options,
    )

    assert found.tolist() == x[..., ::2].tolist()
    with pytest.raises(UnverifiableError, match="which pixel is nearest"):
        evaluated("resize", {"x": x}, shape=np.array([3, 10], np.int32), **options)


RESIZE_REFUSED: dict[str, dict[str, Any]] = {
    "integers": {"x": torch.ones(1, 2, 3).int()},
    "three dimensions": {"shape": torch.tensor([2, 4, 6]), "resized_dims": torch.tensor(3)},
    "mode": {"sampling_mode": "HALF_PIXEL"},
    "interpolation": {"interpolation_mode": "CUBIC"},
    "infinity": {"x": torch.full((1, 2, 3), torch.inf)},
    "empty": {"x": torch.ones(0, 2, 3)},
}


@pytest.mark.parametrize("case", RESIZE_REFUSED)
def test_what_resize_does_not_document_is_refused(direct: Evaluated, case: str) -> None:
    arguments = {"x": torch.ones(1, 2, 3), "shape": torch.tensor([4, 6])}

    with pytest.raises(UnverifiableError):
        direct("resize", {**arguments, "resized_dims": torch.tensor(2), **RESIZE_REFUSED[case]})


@pytest.mark.parametrize(("shape", "dims"), [([4], 2), ([1, 1, 4, 6], 2), ([-4, 6], 2)])
def test_contradictions_of_resize_are_damage(
    direct: Evaluated, shape: list[int], dims: int
) -> None:
    with pytest.raises(InputFileError, match="damaged"):
        direct(
            "resize",
            {
                "x": torch.ones(1, 2, 3),
                "shape": torch.tensor(shape),
                "resized_dims": torch.tensor(dims),
            },
        )


@pytest.mark.parametrize("kind", ["resize_bilinear", "resize_nearest_neighbor"])
def test_a_target_of_nothing_is_refused(direct: Evaluated, kind: str) -> None:
    sizes = {"target_size_height": torch.tensor(0), "target_size_width": torch.tensor(3)}

    with pytest.raises(UnverifiableError, match="target_size_height=0"):
        direct(kind, {"x": torch.ones(1, 2, 3), **sizes})


@pytest.mark.parametrize("kind", ["upsample_bilinear", "upsample_nearest_neighbor"])
def test_a_factor_that_leaves_nothing_is_refused_and_one_below_0_is_damage(
    direct: Evaluated, kind: str
) -> None:
    x = torch.ones(1, 2, 3)

    with pytest.raises(UnverifiableError, match="empty result"):
        direct(kind, {"x": x, "scale_factor_height": torch.tensor(0.4)})
    with pytest.raises(InputFileError, match="damaged"):
        direct(kind, {"x": x, "scale_factor_height": torch.tensor(-1)})


@pytest.mark.parametrize("kind", ["resize_bilinear", "upsample_bilinear", "crop"])
def test_images_have_three_dimensions_and_pixels(direct: Evaluated, kind: str) -> None:
    with pytest.raises(InputFileError, match="rank 2"):
        direct(kind, {"x": torch.ones(2, 3)})
    with pytest.raises(UnverifiableError, match="empty image"):
        direct(kind, {"x": torch.ones(1, 0, 3)})


def test_interpolation_of_infinities_is_refused(evaluated: Evaluated) -> None:
    x = np.array([[[0, np.inf], [1, 2]]], np.float32)

    with pytest.raises(UnverifiableError, match="not finite"):
        evaluated("upsample_bilinear", {"x": x}, scale_factor_height=2)


def test_float16_images_are_rounded_once(evaluated: Evaluated) -> None:
    x = noise(1, 5, 7).astype(np.float16)

    found = evaluated("upsample_bilinear", {"x": x}, scale_factor_height=3, align_corners=False)

    rows = documented("UNALIGN_CORNERS", 5, 15)
    exact = looped(x, rows, [float(i) for i in range(7)])
    assert found.dtype == torch.float16
    assert bool(
        ((found.double() - exact).abs() <= 2.0**-11 * exact.abs().clamp(min=1e-4) * 1.01).all()
    )


def test_crop(evaluated: Evaluated) -> None:
    x = noise(2, 3, 7, 9)

    found = evaluated("crop", {"x": x}, crop_height=[1, 2], crop_width=[0, 3])

    assert found.tolist() == x[:, :, 1:5, :6].tolist()


@pytest.mark.parametrize("amounts", [[4, 3], [-1, 0], [1]])
def test_a_crop_that_leaves_nothing_is_damage(direct: Evaluated, amounts: list[int]) -> None:
    sides = {"crop_height": torch.tensor(amounts), "crop_width": torch.tensor([0, 0])}

    with pytest.raises(InputFileError, match="damaged"):
        direct("crop", {"x": torch.ones(1, 7, 9), **sides})
