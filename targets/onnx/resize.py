"""Antialiased resizing as ONNX operators."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

__all__ = ["antialiased"]


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
