"""resample, affine and crop_resize against torch's grid_sample, and against loops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from numpy.typing import NDArray
from torch.nn import functional

Evaluated = Callable[..., Any]
Array = NDArray[np.float32]


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def close(found: torch.Tensor, expected: torch.Tensor, tolerance: float = 1e-5) -> None:
    assert found.shape == expected.shape
    torch.testing.assert_close(found.double(), expected, rtol=tolerance, atol=tolerance)


def options(**changes: Any) -> dict[str, Any]:
    return {
        "sampling_mode": "bilinear",
        "padding_mode": "constant",
        "padding_value": np.float32(0),
        "coordinates_mode": "normalized_minus_one_to_one",
        "align_corners": True,
        **changes,
    }


def at(row: Array, index: int, padding: str, value: float) -> float:
    """Pixel `index` of a row that is padded on both sides, as the documentation draws it."""
    n = len(row)
    if padding == "constant":
        return float(row[index]) if 0 <= index < n else value
    name: Any = {"border": "edge", "reflection": "reflect"}.get(padding, padding)
    return float(np.pad(row, 40, name)[index + 40])


@pytest.mark.parametrize("align", [False, True])
@pytest.mark.parametrize("padding", ["constant", "border", "reflection"])
@pytest.mark.parametrize("mode", ["bilinear", "nearest"])
@pytest.mark.parametrize("sizes", [(5, 7), (2, 2), (4, 3)])
def test_resample_is_grid_sample(
    evaluated: Evaluated, align: bool, padding: str, mode: str, sizes: tuple[int, int]
) -> None:
    x, grid = noise(2, 3, *sizes), 1.7 * noise(2, 4, 6, 2, seed=1)
    own = "symmetric" if padding == "reflection" and not align else padding

    found = evaluated(
        "resample",
        {"x": x, "coordinates": grid},
        **options(sampling_mode=mode, padding_mode=own, align_corners=align),
    )

    expected = functional.grid_sample(
        torch.from_numpy(x).double(),
        torch.from_numpy(grid).double(),
        mode=mode,
        padding_mode={"constant": "zeros"}.get(padding, padding),
        align_corners=align,
    )
    close(found, expected)


@pytest.mark.parametrize("padding", ["constant", "border", "reflection", "symmetric"])
def test_paddings_of_a_row_at_unnormalized_coordinates(evaluated: Evaluated, padding: str) -> None:
    row = np.array([1, 2, 5], np.float32)
    points = np.arange(-9, 12, 0.25, dtype=np.float32)
    coordinates = np.stack([points, np.zeros_like(points)], -1)[None, None]

    found = evaluated(
        "resample",
        {"x": row[None, None, None], "coordinates": coordinates},
        **options(
            padding_mode=padding,
            padding_value=np.float32(-3),
            coordinates_mode="unnormalized",
        ),
    )

    expected = []
    for point in points.tolist():
        low = int(np.floor(point))
        weight = point - low
        ends = [at(row, low + i, padding, -3) for i in range(2)]
        expected.append(ends[0] * (1 - weight) + ends[1] * weight)
    close(found.flatten(), torch.tensor(expected).double())


@pytest.mark.parametrize("align", [False, True])
def test_coordinates_from_zero_to_one(evaluated: Evaluated, align: bool) -> None:
    x, grid = noise(1, 2, 5, 7), noise(1, 3, 4, 2, seed=1)

    found, expected = (
        evaluated(
            "resample",
            {"x": x, "coordinates": coordinates},
            **options(coordinates_mode=mode, align_corners=align),
        )
        for mode, coordinates in (
            ("normalized_zero_to_one", (grid + 1) / 2),
            ("normalized_minus_one_to_one", grid),
        )
    )

    close(found, expected.double())


@pytest.mark.parametrize("align", [False, True])
def test_integer_coordinates_are_pixels(evaluated: Evaluated, align: bool) -> None:
    x = noise(1, 2, 5, 7)
    coordinates = np.array([[[[0, 0], [6, 4], [3, 1]]]], np.int32)

    found = evaluated(
        "resample",
        {"x": x, "coordinates": coordinates},
        **options(sampling_mode="nearest", coordinates_mode="unnormalized", align_corners=align),
    )

    assert found[0, :, 0].tolist() == x[0][:, [0, 4, 1], [0, 6, 3]].tolist()


def test_float16_is_rounded_once(evaluated: Evaluated) -> None:
    x, grid = noise(1, 2, 5, 7).astype(np.float16), noise(1, 3, 4, 2, seed=1).astype(np.float16)

    found = evaluated(
        "resample",
        {"x": x, "coordinates": grid},
        **options(padding_value=np.float16(0)),
    )

    wide = torch.from_numpy(x).double(), torch.from_numpy(grid).double()
    assert found.dtype == torch.float16
    close(found, functional.grid_sample(*wide, align_corners=True), 1e-3)


@pytest.mark.parametrize(
    ("coordinates", "changes", "match"),
    [
        ([0.5, 0], {"sampling_mode": "nearest", "coordinates_mode": "unnormalized"}, "equal dist"),
        ([np.nan, 0], {}, "not finite"),
        ([3, 0], {"padding_mode": "reflection", "align_corners": False}, "reflection of a row"),
        ([0, 0], {"sampling_mode": "bicubic"}, "bicubic"),
        ([0, 0], {"padding_mode": "zeros"}, "zeros"),
        ([0, 0], {"coordinates_mode": "normalized"}, "normalized"),
    ],
)
def test_what_resample_does_not_document_is_refused(
    direct: Evaluated, coordinates: list[float], changes: dict[str, Any], match: str
) -> None:
    arguments = options(**changes)
    tensors = {k: v if isinstance(v, str) else torch.tensor(v) for k, v in arguments.items()}
    x = torch.ones(1, 1, 2, 1) if "reflection" in match else torch.ones(1, 1, 2, 2)

    with pytest.raises(UnverifiableError, match=match):
        direct(
            "resample",
            {"x": x, "coordinates": torch.tensor([[[coordinates]]]).float(), **tensors},
        )


def test_an_infinite_pixel_is_refused(evaluated: Evaluated) -> None:
    x = np.full((1, 1, 2, 2), np.inf, np.float32)

    with pytest.raises(UnverifiableError, match="not finite"):
        evaluated("resample", {"x": x, "coordinates": noise(1, 2, 2, 2)}, **options())


@pytest.mark.parametrize("shape", [(2, 1, 1, 2), (1, 1, 1, 3), (1, 1, 2)])
def test_coordinates_that_do_not_fit_are_damage(direct: Evaluated, shape: tuple[int, ...]) -> None:
    with pytest.raises(InputFileError, match="do not fit"):
        direct("resample", {"x": torch.ones(1, 1, 2, 2), "coordinates": torch.zeros(shape)})


@pytest.mark.parametrize("matrices", [1, 2])
@pytest.mark.parametrize("size", [(5, 7), (4, 9)])
def test_affine_is_affine_grid_and_grid_sample(
    evaluated: Evaluated, matrices: int, size: tuple[int, int]
) -> None:
    x, matrix = noise(2, 3, 5, 7), 0.7 * noise(matrices, 6, seed=1)

    found = evaluated(
        "affine",
        {"x": x, "transform_matrix": matrix},
        output_height=size[0],
        output_width=size[1],
        **options(),
    )

    theta = torch.from_numpy(matrix).double().reshape(-1, 2, 3).expand(2, 2, 3)
    grid = functional.affine_grid(theta, [2, 3, *size], align_corners=True)
    close(found, functional.grid_sample(torch.from_numpy(x).double(), grid, align_corners=True))


@pytest.mark.parametrize(
    "changes",
    [
        {"align_corners": False},
        {"padding_value": 1.0},
        {"padding_mode": "border"},
        {"sampling_mode": "nearest"},
        {"coordinates_mode": "unnormalized"},
        {"output_width": 1},
    ],
)
def test_what_affine_does_not_support_is_refused(
    direct: Evaluated, changes: dict[str, Any]
) -> None:
    arguments = {"output_height": 2, "output_width": 2, **options(), **changes}
    tensors = {k: v if isinstance(v, str) else torch.tensor(v) for k, v in arguments.items()}

    with pytest.raises(UnverifiableError):
        direct(
            "affine",
            {"x": torch.ones(1, 1, 2, 2), "transform_matrix": torch.ones(1, 6), **tensors},
        )


def points(mode: str, start: float, end: float, count: int) -> list[float]:
    """Sample points of [start, end], an interval of end - start + 1 pixels."""
    extent, steps = end - start, np.arange(count)
    if mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        found = np.linspace(0, extent, count)
        if count == 1 and mode == "ALIGN_CORNERS":
            found = np.array([extent / 2])
    elif mode == "DEFAULT":
        found = steps * (extent + 1) / count
    elif mode == "OFFSET_CORNERS":
        delta = max(1, extent) / count
        found = 0.5 * delta + steps * delta
    else:
        found = (steps + 0.5) * (extent + 1) / count - 0.5
    return [start + float(min(extent, max(0, p))) for p in found]


def cropped(
    image: Array, box: list[float], mode: str, size: tuple[int, int], value: float = 0.0
) -> NDArray[np.float64]:
    """Bilinear values of a box [h_start, w_start, h_end, w_end] of an image, [C, H, W]."""
    found = np.full((len(image), *size), float(value))
    for i, row in enumerate(points(mode, box[0], box[2], size[0])):
        for j, column in enumerate(points(mode, box[1], box[3], size[1])):
            if not (0 <= row <= image.shape[1] - 1 and 0 <= column <= image.shape[2] - 1):
                continue
            y, z = int(row), int(column)
            y1, z1 = min(y + 1, image.shape[1] - 1), min(z + 1, image.shape[2] - 1)
            dy, dz = row - y, column - z
            above = image[:, y, z] * (1 - dz) + image[:, y, z1] * dz
            below = image[:, y1, z] * (1 - dz) + image[:, y1, z1] * dz
            found[:, i, j] = above * (1 - dy) + below * dy
    return found


BOXES = np.array([[0, 0, 4, 6], [1.5, 0.25, 3, 5.5], [2, 2, 2.5, 2]], np.float32)
MODES = [
    "STRICT_ALIGN_CORNERS",
    "ALIGN_CORNERS",
    "DEFAULT",
    "OFFSET_CORNERS",
    "UNALIGN_CORNERS",
]


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("size", [(3, 4), (1, 1), (7, 9)])
def test_boxes_of_ios17(evaluated: Evaluated, mode: str, size: tuple[int, int]) -> None:
    x, images = noise(2, 3, 5, 7), [1, 0, 1]

    found = evaluated(
        "crop_resize",
        {"x": x, "boxes": BOXES, "box_indices": np.array(images, np.int32)},
        opset=7,
        target_height=size[0],
        target_width=size[1],
        sampling_mode=mode,
    )

    pairs = zip(images, BOXES.tolist(), strict=True)
    expected = np.stack([cropped(x[image], box, mode, size) for image, box in pairs])
    close(found, torch.from_numpy(expected))


@pytest.mark.parametrize("opset", [5, 6])
def test_regions_before_ios17_are_cut_from_every_image(evaluated: Evaluated, opset: int) -> None:
    x = noise(2, 3, 5, 7)

    found = evaluated(
        "crop_resize",
        {"x": x, "roi": BOXES.reshape(3, 1, 4, 1, 1)},
        opset=opset,
        target_height=2,
        target_width=3,
        sampling_mode="ALIGN_CORNERS",
    )

    expected = [[cropped(i, box, "ALIGN_CORNERS", (2, 3)) for i in x] for box in BOXES.tolist()]
    close(found, torch.from_numpy(np.stack(list(map(np.stack, expected)))))


def test_regions_may_name_their_image(evaluated: Evaluated) -> None:
    x = noise(1, 3, 5, 7)
    roi = np.concatenate([np.zeros((3, 1), np.float32), BOXES], 1).reshape(3, 1, 5, 1, 1)

    found = evaluated("crop_resize", {"x": x, "roi": roi}, opset=6, target_height=2, target_width=2)

    expected = [cropped(x[0], box, "DEFAULT", (2, 2))[None] for box in BOXES.tolist()]
    close(found, torch.from_numpy(np.stack(expected)))


def test_box_orders_scales_and_normalized_coordinates(evaluated: Evaluated) -> None:
    x, box = noise(1, 3, 5, 7), [1.0, 1.5, 3.0, 6.0]
    unit = np.array([[1 / 4, 1.5 / 6, 3 / 4, 6 / 6]], np.float32)
    size = {"target_height": 2, "target_width": 3, "sampling_mode": "ALIGN_CORNERS"}
    cases: list[tuple[Array, dict[str, Any]]] = [
        (np.array([box], np.float32), {}),
        (np.array([[1.5, 1, 6, 3]], np.float32), {"box_coordinate_mode": "CORNERS_WIDTH_FIRST"}),
        (np.array([box], np.float32) * 4, {"spatial_scale": np.float32(0.25)}),
        (unit, {"normalized_coordinates": True}),
        (
            unit[:, [1, 0, 3, 2]] * 2,
            {
                "normalized_coordinates": True,
                "spatial_scale": np.float32(0.5),
                "box_coordinate_mode": "CORNERS_WIDTH_FIRST",
            },
        ),
    ]

    for boxes, changes in cases:
        found = evaluated("crop_resize", {"x": x, "boxes": boxes}, **size, **changes)

        close(found[0], torch.from_numpy(cropped(x[0], box, "ALIGN_CORNERS", (2, 3))))


def test_points_outside_the_image_are_pad_value(evaluated: Evaluated) -> None:
    x, boxes = noise(1, 2, 5, 7), np.array([[-2, 0, 2, 12]], np.float32)

    found = evaluated(
        "crop_resize",
        {"x": x, "boxes": boxes},
        target_height=5,
        target_width=3,
        sampling_mode="STRICT_ALIGN_CORNERS",
        pad_value=np.float32(9),
    )

    expected = cropped(x[0], boxes[0].tolist(), "STRICT_ALIGN_CORNERS", (5, 3), 9)
    assert (expected == 9).sum() == 2 * 9
    close(found[0], torch.from_numpy(expected))


BOX_REFUSED: dict[str, tuple[list[float], dict[str, Any]]] = {
    "half a pixel over the edge": ([-0.5, 0, 2, 2], {}),
    "reversed": ([2, 0, 1, 2], {}),
    "not a number": ([np.nan, 0, 1, 2], {}),
    "center": ([1, 1, 2, 2], {"box_coordinate_mode": "CENTER_SIZE_HEIGHT_FIRST"}),
    "no image": ([0, 0, 1, 2], {"box_indices": torch.tensor([1])}),
    "mode": ([0, 0, 1, 2], {"sampling_mode": "ROI_ALIGN"}),
    "empty": ([0, 0, 1, 2], {"target_height": torch.tensor(0)}),
}


@pytest.mark.parametrize("case", BOX_REFUSED)
def test_boxes_that_are_not_documented_are_refused(direct: Evaluated, case: str) -> None:
    box, changes = BOX_REFUSED[case]

    with pytest.raises(UnverifiableError):
        direct(
            "crop_resize", {"x": torch.ones(1, 1, 5, 7), "boxes": torch.tensor([box]), **changes}
        )


def test_boxes_over_the_edge_are_refused_in_ios15(direct: Evaluated) -> None:
    roi = torch.tensor([-2.0, 0, 2, 2]).reshape(1, 1, 4, 1, 1)
    arguments = {"x": torch.ones(1, 1, 5, 7), "roi": roi}

    assert direct("crop_resize", arguments, opset=6).flatten().tolist() == [0.0]
    with pytest.raises(UnverifiableError, match="over the edge"):
        direct("crop_resize", arguments, opset=5)


def test_a_region_of_an_image_that_does_not_exist_is_refused(direct: Evaluated) -> None:
    roi = torch.tensor([1.0, 0, 0, 2, 2]).reshape(1, 1, 5, 1, 1)

    with pytest.raises(UnverifiableError, match="does not exist"):
        direct("crop_resize", {"x": torch.ones(1, 1, 5, 7), "roi": roi}, opset=6)


def test_regions_that_name_their_image_in_a_batch_are_refused(direct: Evaluated) -> None:
    arguments = {"x": torch.ones(2, 1, 5, 7), "roi": torch.zeros(1, 1, 5, 1, 1)}

    with pytest.raises(UnverifiableError, match="batch of several"):
        direct("crop_resize", arguments, opset=6)


def test_integer_boxes_cannot_be_normalized(direct: Evaluated) -> None:
    arguments = {"x": torch.ones(1, 1, 5, 7), "boxes": torch.ones(1, 4).int()}

    assert direct("crop_resize", arguments).shape == (1, 1, 1, 1)
    with pytest.raises(UnverifiableError, match="integers"):
        direct("crop_resize", {**arguments, "normalized_coordinates": torch.tensor(True)})


@pytest.mark.parametrize(
    ("opset", "name", "shape"),
    [(7, "boxes", (1, 5)), (7, "boxes", (4,)), (6, "roi", (1, 4)), (6, "roi", (1, 1, 3, 1, 1))],
)
def test_boxes_of_other_shapes_are_damage(
    direct: Evaluated, opset: int, name: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(InputFileError, match="shape"):
        direct("crop_resize", {"x": torch.ones(1, 1, 5, 7), name: torch.zeros(shape)}, opset=opset)
