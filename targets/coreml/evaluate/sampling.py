"""Sampling of images at computed coordinates: resample, affine and crop_resize.

Coordinates are computed in float64 from the values given, so that what is left of rounding is
that of the interpolation.
"""

from __future__ import annotations

import torch

from .axes import bounded
from .call import Call, Operator
from .elementwise import FLOATS, image, of_dtype
from .grids import SAMPLING_MODES, grid, refuse_infinite

__all__ = ["OPERATORS"]

_BOXES = (
    "CORNERS_HEIGHT_FIRST",
    "CORNERS_WIDTH_FIRST",
    "CENTER_SIZE_HEIGHT_FIRST",
    "CENTER_SIZE_WIDTH_FIRST",
)
_NORMALIZED = ("normalized_minus_one_to_one", "normalized_zero_to_one")


def resample(call: Call) -> torch.Tensor:
    """x, [B, C, H, W], at coordinates [B, h, w, 2] given as (x, y): [B, C, h, w]."""
    x, given = _image(call), call.tensor("coordinates")
    if given.dim() != 4 or given.shape[0] != x.shape[0] or given.shape[3] != 2:
        raise call.damaged(f"coordinates {list(given.shape)} do not fit x {list(x.shape)}")
    kind = call.text("coordinates_mode", choices=("unnormalized", *_NORMALIZED))
    align = call.flag("align_corners")
    padding = call.text("padding_mode", choices=("constant", "border", "reflection", "symmetric"))
    nearest = call.text("sampling_mode", choices=("bilinear", "nearest")) == "nearest"
    value = call.number("padding_value")
    coordinates = given.double()
    columns = _pixels(coordinates[..., 0], x.shape[3], kind, align)
    rows = _pixels(coordinates[..., 1], x.shape[2], kind, align)
    if nearest:
        columns, rows = (_nearest(call, points) for points in (columns, rows))
    return _sampled(call, x, rows, columns, padding, value)


def affine(call: Call) -> torch.Tensor:
    """x, [B, C, H, W], under one affine map of the output's normalized coordinates an image."""
    x, matrix = _image(call), of_dtype(call, "transform_matrix", FLOATS)
    if matrix.dim() != 2 or matrix.shape[1] != 6 or matrix.shape[0] not in (1, x.shape[0]):
        raise call.damaged(f"transform_matrix {list(matrix.shape)} for x {list(x.shape)}")
    height, width = call.integer("output_height"), call.integer("output_width")
    call.text("sampling_mode", choices=("bilinear",))
    call.text("padding_mode", choices=("constant",))
    call.text("coordinates_mode", choices=("normalized_minus_one_to_one",))
    if call.number("padding_value") != 0:
        call.refuse("a padding_value other than 0")
    if not call.flag("align_corners"):
        call.refuse("align_corners=False")
    if height < 2 or width < 2:
        call.refuse("where the corners of a row of one pixel are")
    bounded(call, [*x.shape[:2], height, width])
    across = torch.linspace(-1, 1, width, dtype=torch.float64)
    down = torch.linspace(-1, 1, height, dtype=torch.float64)[:, None]
    a, b = matrix.double()[:, :3, None, None], matrix.double()[:, 3:, None, None]
    columns = a[:, 0] * across + a[:, 1] * down + a[:, 2]
    rows = b[:, 0] * across + b[:, 1] * down + b[:, 2]
    shape = (x.shape[0], height, width)
    kind = "normalized_minus_one_to_one"
    columns = _pixels(columns, x.shape[3], kind, align=True).expand(shape)
    rows = _pixels(rows, x.shape[2], kind, align=True).expand(shape)
    return _sampled(call, x, rows, columns, "constant", 0.0)


def crop_resize(call: Call) -> torch.Tensor:
    """Boxes of x, [B, C, H, W], each resized to one size.

    Since iOS 17 boxes are [N, 4] and an image each in `box_indices`, for [N, C, h, w]; before,
    `roi` is [N, 1, 4, 1, 1], for [N, B, C, h, w], or [N, 1, 5, 1, 1] with the image first, for
    [N, 1, C, h, w].
    """
    x = _image(call)
    boxes, images = _boxes(call, x) if call.opset >= 7 else _regions(call, x)
    height = call.integer("target_height", 1)
    width = call.integer("target_width", 1)
    kind = call.text("box_coordinate_mode", "CORNERS_HEIGHT_FIRST", choices=_BOXES)
    mode = call.text("sampling_mode", "DEFAULT", choices=SAMPLING_MODES)
    if height < 1 or width < 1:
        call.refuse("an empty result")
    bounded(call, [max(1, len(boxes)), x.shape[1], height, width])
    if kind.startswith("CENTER"):
        call.refuse("which pixels a box of a given size has at its ends")
    corners = boxes * call.number("spatial_scale", 1.0)
    if kind == "CORNERS_WIDTH_FIRST":
        corners = corners[:, [1, 0, 3, 2]]
    if call.flag("normalized_coordinates", False):
        limits = torch.tensor([x.shape[2] - 1, x.shape[3] - 1], dtype=torch.float64)
        corners = corners * limits.repeat(2)
    value = call.number("pad_value", 0.0) if call.opset >= 6 else None
    found = []
    for (top, left, bottom, right), chosen in zip(corners.tolist(), images, strict=True):
        rows = _along(call, mode, top, bottom, height, x.shape[2], value)[None, :, None]
        columns = _along(call, mode, left, right, width, x.shape[3], value)[None, None]
        shape = (len(chosen), height, width)
        some = x[chosen]
        found.append(
            _sampled(
                call, some, rows.expand(shape), columns.expand(shape), "constant", value or 0.0
            )
        )
    if not found:
        call.refuse("no boxes")
    return torch.cat(found) if call.opset >= 7 else torch.stack(found)


OPERATORS: dict[str, Operator] = {
    "affine": affine,
    "crop_resize": crop_resize,
    "resample": resample,
}


def _image(call: Call) -> torch.Tensor:
    x = image(call)
    refuse_infinite(call, x)
    return x


def _pixels(points: torch.Tensor, size: int, kind: str, align: bool) -> torch.Tensor:
    """Positions in a row of `size` pixels, whose centres are whole numbers from 0."""
    if kind == "unnormalized":
        return points
    if kind == "normalized_minus_one_to_one":
        points = (points + 1) / 2
    # The extremes 0 and 1 are the centres of the corner pixels, or their edges.
    return points * (size - 1) if align else points * size - 0.5


def _nearest(call: Call, points: torch.Tensor) -> torch.Tensor:
    found = (points + 0.5).floor()
    # Coordinates are float32 at best: so near a tie, rounding decides.
    edge = (points - points.floor() - 0.5).abs()
    if bool((edge <= 4 * torch.finfo(torch.float32).eps * points.abs().clamp(min=1)).any()):
        call.refuse("which of two pixels at equal distance is nearest")
    return found


def _sampled(
    call: Call,
    x: torch.Tensor,
    rows: torch.Tensor,
    columns: torch.Tensor,
    padding: str,
    value: float,
) -> torch.Tensor:
    """x, [B, C, H, W], between its pixels at `rows` and `columns`, [B, h, w]: [B, C, h, w]."""
    if not bool(torch.isfinite(rows).all() and torch.isfinite(columns).all()):
        call.refuse("coordinates that are not finite")
    top, left = rows.floor(), columns.floor()
    down, right = (rows - top).float(), (columns - left).float()
    images = torch.arange(x.shape[0]).reshape(-1, 1, 1)
    found = torch.zeros(x.shape[0], *rows.shape[1:], x.shape[1])
    for row, row_weight in ((top, 1 - down), (top + 1, down)):
        for column, column_weight in ((left, 1 - right), (left + 1, right)):
            weight = row_weight * column_weight
            used = weight > 0
            in_row, y = _padded(call, row, x.shape[2], padding, used)
            in_column, z = _padded(call, column, x.shape[3], padding, used)
            pixels = x.float().permute(0, 2, 3, 1)[images, y, z]
            pixels = torch.where((in_row & in_column)[..., None], pixels, value)
            found = found + pixels * weight[..., None]
    return found.permute(0, 3, 1, 2).to(x.dtype)


def _padded(
    call: Call, index: torch.Tensor, size: int, padding: str, used: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Where whole `index` falls on pixels of the padded image, and on which one of the image."""
    clamped = index.clamp(0, size - 1)
    if padding == "constant":
        return index == clamped, clamped.long()
    if padding == "reflection":
        if size == 1 and bool((used & (index != clamped)).any()):
            call.refuse("the reflection of a row of one pixel")
        period = max(2 * (size - 1), 1)
        folded = index.remainder(period)
        clamped = torch.minimum(folded, period - folded).clamp(0, size - 1)
    elif padding == "symmetric":
        folded = index.remainder(2 * size)
        clamped = torch.minimum(folded, 2 * size - 1 - folded)
    return torch.ones_like(index, dtype=torch.bool), clamped.long()


def _boxes(call: Call, x: torch.Tensor) -> tuple[torch.Tensor, list[list[int]]]:
    boxes = call.tensor("boxes")
    if boxes.dim() != 2 or boxes.shape[1] != 4:
        raise call.damaged(f"boxes of shape {list(boxes.shape)}")
    if boxes.dtype not in FLOATS and call.flag("normalized_coordinates", False):
        call.refuse("normalized_coordinates that are integers")
    images = call.integers("box_indices", range(len(boxes)))
    if len(images) != len(boxes):
        raise call.damaged(f"{len(images)} box_indices for {len(boxes)} boxes")
    if not all(0 <= image < x.shape[0] for image in images):
        call.refuse("a box in an image that does not exist")
    return boxes.double(), [[image] for image in images]


def _regions(call: Call, x: torch.Tensor) -> tuple[torch.Tensor, list[list[int]]]:
    roi = of_dtype(call, "roi", FLOATS)
    if roi.dim() != 5 or roi.shape[2] not in (4, 5) or roi.numel() != len(roi) * roi.shape[2]:
        raise call.damaged(f"roi of shape {list(roi.shape)}")
    boxes = roi.double().reshape(len(roi), -1)
    if boxes.shape[1] == 4:
        return boxes, [list(range(x.shape[0]))] * len(boxes)
    if x.shape[0] > 1:
        # The documentation gives the result a size of 1 there, the compiler the batch's.
        call.refuse("boxes that name their image, in a batch of several")
    if bool((boxes[:, 0] != 0).any()):
        call.refuse("a box in an image that does not exist")
    return boxes[:, 1:], [[0]] * len(boxes)


def _along(
    call: Call, mode: str, start: float, end: float, count: int, size: int, value: float | None
) -> torch.Tensor:
    """`count` points of a box from `start` to `end` along a dimension of `size` pixels."""
    if not start <= end:
        call.refuse(f"a box from {start} to {end}")
    points = start + grid(mode, end - start, count)
    outside = (points < 0) | (points > size - 1)
    if value is None and bool(outside.any()):
        call.refuse("a box over the edge of the image")
    # "The input image is padded with pad_value": half a pixel over the edge that mixes the two;
    # "the same as extrapolation_value" of TensorFlow: there it is pad_value alone.
    if bool((outside & (points > -1) & (points < size)).any()):
        call.refuse("a box less than a pixel over the edge of the image")
    return points
