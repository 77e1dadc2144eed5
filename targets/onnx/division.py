"""Division with rounding, and remainders, exactly as torch computes them.

torchlib divides integers in float32, and floats without regard to the rounding
of the quotient: 1.0 // 0.1 is 9 in torch and Python, where floor(1.0 / 0.1) is 10.
Source of the float formulas: `div_floor_floating` and `remainder` in torch's
c10/util and aten/src/ATen/native/cpu/BinaryOpsKernel.cpp.
"""

from __future__ import annotations

from typing import Any

__all__ = ["divide_rounded", "floor_divide", "remainder"]

_INT32, _FLOAT = 6, 1  # onnx.TensorProto.DataType
_NARROW = ("INT8", "UINT8", "INT16", "UINT16", "FLOAT16", "BFLOAT16")


def divide_rounded(self: Any, other: Any, rounding_mode: str | None = None) -> Any:
    """`div` with `rounding_mode` None, trunc or floor."""
    from onnxscript import opset18 as op

    if rounding_mode == "floor":
        return floor_divide(self, other)
    a, b, dtype = _operands(self, other)
    if rounding_mode is None and dtype.is_integer():
        return op.Div(op.Cast(a, to=_FLOAT), op.Cast(b, to=_FLOAT))
    quotient = op.Div(a, b)  # ONNX truncates integers
    if rounding_mode == "trunc" and dtype.is_floating_point():
        quotient = op.Mul(op.Sign(quotient), op.Floor(op.Abs(quotient)))
    return _narrowed(quotient, dtype)


def floor_divide(self: Any, other: Any) -> Any:
    """`//`: rounded towards minus infinity."""
    from onnxscript import opset18 as op

    a, b, dtype = _operands(self, other)
    left = op.Mod(a, b, fmod=1)  # of the dividend's sign
    down = op.CastLike(_of_other_sign(left, b), a)
    if dtype.is_integer():
        return _narrowed(op.Sub(op.Div(a, b), down), dtype)
    whole = op.Sub(op.Div(op.Sub(a, left), b), down)
    floor = op.Floor(whole)
    half, zero = _scalar(0.5, a), _scalar(0.0, a)
    floor = op.Add(floor, op.CastLike(op.Greater(op.Sub(whole, floor), half), a))
    quotient = op.Div(a, b)
    signed = op.Where(op.Less(quotient, zero), op.Neg(zero), op.Mul(zero, op.Sign(quotient)))
    result = op.Where(op.Equal(whole, zero), signed, floor)
    return _narrowed(op.Where(op.Equal(b, zero), quotient, result), dtype)


def remainder(self: Any, other: Any) -> Any:
    """`%`: of the divisor's sign."""
    from onnxscript import opset18 as op

    a, b, dtype = _operands(self, other)
    if dtype.is_integer():
        return _narrowed(op.Mod(a, b), dtype)
    left = op.Mod(a, b, fmod=1)
    return _narrowed(op.Where(_of_other_sign(left, b), op.Sum(left, b), left), dtype)


def _of_other_sign(left: Any, divisor: Any) -> Any:
    """Where a remainder is not zero and its sign is not the divisor's."""
    from onnxscript import opset18 as op

    zero = _scalar(0.0, divisor)
    return op.Or(
        op.And(op.Less(divisor, zero), op.Greater(left, zero)),
        op.And(op.Greater(divisor, zero), op.Less(left, zero)),
    )


def _operands(self: Any, other: Any) -> tuple[Any, Any, Any]:
    """Both operands in the dtype to compute in, and the dtype of the result (`ir.DataType`).

    A Python number takes the tensor's dtype; a float makes an integer tensor float32. Narrow
    dtypes are computed 32 bits wide: torch does so with halves, and runtimes lack narrow
    integer division.
    """
    import onnx_ir as ir

    numbers = [item for item in (self, other) if isinstance(item, (int, float))]
    dtype = next(item.dtype for item in (self, other) if not isinstance(item, (int, float)))
    if dtype.is_integer() and any(isinstance(number, float) for number in numbers):
        dtype = ir.DataType.FLOAT
    code = int(dtype)
    if dtype.name in _NARROW:
        code = _FLOAT if dtype.is_floating_point() else _INT32
    return _as(self, code, dtype), _as(other, code, dtype), dtype


def _as(item: Any, code: int, dtype: Any) -> Any:
    import numpy as np
    import onnx_ir as ir
    from onnxscript import opset18 as op

    if isinstance(item, (int, float)):
        rounded = np.array(item).astype(dtype.numpy())  # as torch rounds it
        return op.Constant(value=ir.tensor(rounded.astype(ir.DataType(code).numpy())))
    return item if item.dtype is not None and int(item.dtype) == code else op.Cast(item, to=code)


def _narrowed(value: Any, dtype: Any) -> Any:
    from onnxscript import opset18 as op

    return op.Cast(value, to=int(dtype)) if dtype.name in _NARROW else value


def _scalar(number: float, like: Any) -> Any:
    from onnxscript import opset18 as op

    return op.CastLike(_constant(number), like)


def _constant(number: float) -> Any:
    import numpy as np
    import onnx_ir as ir
    from onnxscript import opset18 as op

    kind = np.int64 if isinstance(number, int) else np.float64
    return op.Constant(value=ir.tensor(np.array(number, kind)))
