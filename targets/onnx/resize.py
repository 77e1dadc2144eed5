"""Resizing as ONNX operators, where torchlib's translation is not exact."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .sizes import is_exact

if TYPE_CHECKING:
    import torch

__all__ = ["antialiased", "interpolated"]


def antialiased(resize: Callable[..., torch.Tensor]) -> Callable[..., Any]:
    """Antialiased resizing, which torchlib translates without its scale factors.

    Resizing is linear in each axis, so the general case is two products with
    matrices that torch's own operator computes.
    """

    def translate(
        self: Any,
        output_size: Any,
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Any:
        from onnxscript import opset18 as op

        if not align_corners and scales_h is None and scales_w is None:
            size = op.Concat(op.Shape(self, start=0, end=2), _sizes(output_size), axis=0)
            return op.Resize(
                self,
                None,
                None,
                size,
                mode="cubic" if "bicubic" in str(resize) else "linear",
                coordinate_transformation_mode="half_pixel",
                cubic_coeff_a=-0.5,
                exclude_outside=1,
                antialias=1,
            )
        height, width = (int(size) for size in self.shape[2:])
        rows = _matrix(resize, height, int(output_size[0]), align_corners, scales_h)
        columns = _matrix(resize, width, int(output_size[1]), align_corners, scales_w)
        tall = op.MatMul(op.CastLike(_constant(rows.T), self), self)
        return op.MatMul(tall, op.CastLike(_constant(columns), self))

    return translate


def _sizes(sizes: Any) -> Any:
    from onnxscript import opset18 as op

    if not isinstance(sizes, (list, tuple)):
        return op.Cast(sizes, to=7)
    if all(isinstance(size, int) for size in sizes):
        return op.Constant(value_ints=list(sizes))
    parts = [
        op.Constant(value_ints=[size]) if isinstance(size, int) else op.Reshape(size, [1])
        for size in sizes
    ]
    return op.Concat(*parts, axis=0)


def _matrix(
    resize: Callable[..., torch.Tensor], size: int, count: int, aligned: bool, scale: float | None
) -> torch.Tensor:
    """[size, count] weights of a resize along one axis: what it makes of the unit vectors."""
    import torch

    units = torch.eye(size, dtype=torch.float64)[None, None]
    return resize(units, [size, count], aligned, None, scale)[0, 0].float()


def _constant(values: torch.Tensor) -> Any:
    import onnx_ir as ir
    from onnxscript import opset18 as op

    return op.Constant(value=ir.tensor(values.numpy()))


def interpolated(mode: str, otherwise: Callable[..., Any]) -> Callable[..., Any]:
    """Resizing by `nearest`, `bilinear` (any rank) or `bicubic`, told size or scale factors.

    `Resize` takes float32 factors: for static sizes and a factor that float32 does not hold,
    size and sample points are torch's, as constants. The rest is torchlib's, `otherwise`;
    dynamic sizes with such a factor are refused (`sizes`).
    """

    def translate(self: Any, output_size: Any, *rest: Any) -> Any:
        factors = rest[-1]
        static = all(isinstance(size, int) for size in self.shape[2:])
        if not factors or not static or all(map(is_exact, factors)):
            return otherwise(self, output_size, *rest)
        value = self
        for axis, factor in enumerate(factors, start=2):
            value = _along(value, self, axis, factor, mode, rest[0] if len(rest) > 1 else None)
        return value

    return translate


def _along(value: Any, like: Any, axis: int, factor: float, mode: str, aligned: bool | None) -> Any:
    """`value` resized along one axis; resizing is separable."""
    import torch
    from onnxscript import opset18 as op

    size = int(like.shape[axis])
    options: dict[str, Any] = {
        "mode": mode,
        "align_corners": aligned,
        "scale_factor": (1.0, factor),
    }
    if mode == "nearest":
        # Within float32's whole numbers, so that the samples name themselves.
        line = torch.arange(size, dtype=torch.float32)[None, None, None]
        index = torch.nn.functional.interpolate(line, **options).reshape(-1).long()
        return op.Gather(value, _constant(index), axis=axis)
    units = torch.eye(size, dtype=torch.float64)[None, None]
    matrix = torch.nn.functional.interpolate(units, **options)[0, 0].float()
    order = list(range(len(like.shape)))
    order[axis], order[-1] = order[-1], order[axis]
    turned = op.Transpose(value, perm=order)
    return op.Transpose(op.MatMul(turned, op.CastLike(_constant(matrix), like)), perm=order)
