"""Sizes and bounds that the written file would compute otherwise than torch does.

torch computes `floor(n * 1.3)` in float64; ONNX keeps resize factors, and torch's
translation keeps every number in a graph, as float32. Where a size is dynamic and
depends on a number that float32 does not hold exactly, the file would give wrong
sizes for some inputs (scale factor 1.3, n = 90: 116 instead of 117). Such graphs
are refused; factors like 2, 0.5, 1.5 or 0.25 are exact in both.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ...exporter.graph import node_origin
from ..base import Unsupported

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["REMEDY", "inexact_sizes", "is_exact", "same_samples"]

REMEDY = (
    "give the size itself (size=), or a factor that floats hold exactly (2, 1.5, 0.25), "
    "or leave that axis out of --dynamic"
)

# Numerators up to 2^8: their products with sizes up to 2^16 are exact in float32 too.
_FACTOR_LIMIT = 1 << 8
# Where the largest size is not known, nearest samples are compared up to this many.
_SAMPLES = 1 << 14

_ROUNDED = ("TruncToInt", "FloorToInt", "CeilToInt", "RoundToInt")
_DIVISIONS = ("FloatTrueDiv", "IntTrueDiv")


def inexact_sizes(program: ExportedProgram) -> list[Unsupported]:
    """Nodes that compute a size, a bound or sample points from inexact numbers."""
    found = []
    tainted: set[Node] = set()  # told once, where it begins
    for node in program.graph.nodes:
        if node.op != "call_function":
            continue
        if not tainted.isdisjoint(node.all_input_nodes):
            tainted.add(node)
        elif reason := _fault(node):
            tainted.add(node)
            target: Any = node.target
            origin = node_origin(node)
            name = str(target.name()) if hasattr(target, "name") else str(target.__name__)
            found.append(Unsupported(name, origin.module, origin.location, reason))
    return found


def is_exact(factor: float) -> bool:
    """Whether products of the factor with sizes are the same in float32 and float64."""
    if not math.isfinite(factor):
        return False
    numerator, denominator = float(factor).as_integer_ratio()
    while numerator and numerator % 2 == 0:
        numerator //= 2
    return abs(numerator) < _FACTOR_LIMIT and denominator <= _FACTOR_LIMIT


def _fault(node: Node) -> str:
    name = getattr(getattr(node.target, "overloadpacket", None), "__name__", "")
    if name.startswith(("upsample_", "_upsample_")):
        return _resize_fault(node, nearest="nearest" in name)
    if name.startswith(("adaptive_", "_adaptive_")):
        return _pool_fault(node)
    if name == "lstm":
        return _projection_fault(node)
    if any(_is_inexact(expression) for expression in _expressions(node, name)):
        return "a dynamic size follows from a float that ONNX computes in float32"
    return ""


def _resize_fault(node: Node, *, nearest: bool) -> str:
    from ...exporter.nodes import argument, tensor_value

    x, result = tensor_value(node.args[0]), tensor_value(node)
    if x is None or result is None:
        return ""
    names = {entry.name for entry in node.target._schema.arguments}  # type: ignore[union-attr]
    key = "scale_factors"
    factors: Any = argument(node, key) if key in names else None
    if "_aa" in str(node.target) and "scales_h" in names:
        factors = [argument(node, "scales_h"), argument(node, "scales_w")]
    for size, factor in zip(x.shape[2:], factors or (), strict=False):
        if isinstance(size, int) or factor is None:
            continue
        if not is_exact(factor) or (nearest and not same_samples(factor, _SAMPLES, _SAMPLES)):
            return f"ONNX holds the scale factor {factor} as float32, which gives wrong sizes"
    return ""


def _projection_fault(node: Node) -> str:
    """ONNX's LSTM has no projection, and torch's decomposition unrolls the time axis."""
    from ...exporter.nodes import argument, tensor_value

    x, (hidden, cell) = tensor_value(node.args[0]), argument(node, "hx")
    states = tensor_value(hidden), tensor_value(cell)
    if x is None or states[0] is None or states[1] is None:
        return ""
    time = x.shape[1 if argument(node, "batch_first") else 0]
    projected = states[0].shape[-1] != states[1].shape[-1]
    return "proj_size with a dynamic time axis" if projected and not isinstance(time, int) else ""


def _pool_fault(node: Node) -> str:
    """torch's decomposition lays the windows for the traced size, whatever comes later."""
    from ...exporter.nodes import argument, tensor_value

    x, wanted = tensor_value(node.args[0]), argument(node, "output_size")
    value = node.meta.get("val")
    result = value[0] if isinstance(value, (tuple, list)) else value
    if x is None or result is None:
        return ""
    rank = len(wanted)
    for size, count in zip(x.shape[-rank:], result.shape[-rank:], strict=True):
        if not isinstance(size, int) and str(size) != str(count):
            return f"the windows that make {count} of a dynamic size would be those of one size"
    return ""


def same_samples(factor: float, size: int, count: int) -> bool:
    """Whether ONNX Runtime (i / float32(s)) and torch (i * float32(1 / s)) take the same pixels."""
    import numpy as np

    index = np.arange(count, dtype=np.float32)
    ours = np.minimum(np.floor(index / np.float32(factor)), size - 1)
    theirs = np.minimum(np.floor(index * np.float32(1 / factor)), size - 1)
    return bool(np.array_equal(ours, theirs))


def _expressions(node: Node, name: str) -> Iterator[Any]:
    """Of a node's value, the sizes; of a range, the bounds too."""
    import torch

    value = node.meta.get("val")
    values = value if isinstance(value, (tuple, list)) else [value]
    for item in values:
        sizes = item.shape if isinstance(item, torch.Tensor) else [item]
        yield from (size.node.expr for size in sizes if isinstance(size, torch.SymInt))
    if name in ("arange", "linspace"):
        given: list[Any] = [*node.args, *node.kwargs.values()]
        bounds = [arg.meta.get("val") if hasattr(arg, "meta") else arg for arg in given]
        yield from (b.node.expr for b in bounds if isinstance(b, torch.SymFloat))


def _is_inexact(expression: Any, rounded: bool = False) -> bool:
    """Whether a sympy expression of sizes may differ between float32 and float64.

    A quotient of two whole numbers that is rounded at once is the same in both.
    """
    if expression.is_Float:
        return not is_exact(float(expression))
    name = type(expression).__name__
    if name in _DIVISIONS:
        above, below = expression.args
        power = below.is_number and math.frexp(float(below))[0] == 0.5
        if not power and not (rounded and _is_whole(above) and _is_whole(below)):
            return True
    return any(_is_inexact(part, name in _ROUNDED) for part in expression.args)


def _is_whole(expression: Any) -> bool:
    if expression.is_Float:
        return float(expression).is_integer()
    return type(expression).__name__ == "ToFloat" or bool(expression.is_integer)
