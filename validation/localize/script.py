"""Source of a script that takes torch and numpy only: one operator, or a group of them."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from typing import Any

import torch
from torch.fx import Node

from ..report.localization import Culprit
from .naming import operators_of
from .segments import Segment

__all__ = ["local_name", "script_of", "unknown_to_torch"]

_SCRIPT = '''"""{title}

Run it with torch and numpy. {data} beside it holds the inputs, and what
{artifact} gave for them ("artifact").
{truth}
"""

{modules}from pathlib import Path

import numpy as np
{computed}

def off(values):
    error = np.abs(values.astype(np.float64) - truth.astype(np.float64))
    size = np.sqrt(np.mean(np.square(truth.astype(np.float64))))
    return f"largest error {{error.max():.3e}}, of an output whose RMS is {{size:.3e}}"


print("{operator}")
print("  torch float32:", off(float32))
print("  artifact:     ", off(data["artifact"]))
'''

_IN_TORCH = '''import torch

data = np.load(Path(__file__).with_name("{data}"))


def right(wide):
    """What must come out, by torch; in float64 where `wide` is set."""

    def keep(value):
        if isinstance(value, (list, tuple)):
            return [keep(part) for part in value]
        if not wide or not isinstance(value, torch.Tensor):
            return value
        if value.is_complex():
            return value.to(torch.complex128)
        return value.double() if value.is_floating_point() else value

    def kind(dtype):
        return torch.float64 if wide and dtype.is_floating_point else dtype

    def load(name):
        return keep(torch.from_numpy(data[name]))

    torch.set_default_dtype(kind(torch.float32))
{body}
    return {result}.numpy()


truth, float32 = right(wide=True), right(wide=False)
'''

_STORED = """
data = np.load(Path(__file__).with_name("{data}"))
truth, float32 = data["truth"], data["float32"]
"""

# What torch itself has, without a package that registers more.
_NAMESPACES = ("aten", "prims")
_MODULES = ("operator", "math")

# Names that the script has itself, or that numpy's `savez` does not take.
_RESERVED = frozenset(
    [
        "allow_pickle",
        "args",
        "artifact",
        "data",
        "file",
        "float",
        "float32",
        "keep",
        "kind",
        "kwds",
        "load",
        "math",
        "np",
        "off",
        "operator",
        "Path",
        "right",
        "torch",
        "truth",
        "wide",
    ]
)


def script_of(segment: Segment, given: Sequence[Node], data: str, culprit: Culprit) -> str:
    """Source that compares what the artifact gave with what must come out.

    The latter is computed in torch; where torch lacks an operator it is read from `data`.

    Args:
        segment: what is wrong.
        given: values and weights that are in `data` under their `local_name`.
        data: name of the .npz file.
        culprit: the names of what is wrong.
    """
    foreign = unknown_to_torch(segment)
    where = ", ".join(part for part in (culprit.module, culprit.location) if part)
    operator = operators_of(culprit.targets)
    node = culprit.artifact_node
    lines = [f"{local_name(n)} = load({local_name(n)!r})" for n in given]
    modules: list[str] = []
    if foreign:
        truth = (
            f"torch by itself has no {', '.join(foreign)}: what must come out is\n"
            'stored there too, computed in float64 ("truth") and in float32 ("float32").'
        )
        computed = _STORED.format(data=data)
    else:
        truth = "What must come out is computed here, in float64."
        lines += [f"{local_name(n)} = keep({_call(n)})" for n in segment.nodes]
        modules = sorted({_module(n) for n in segment.nodes if not _is_operator(n)})
        computed = _IN_TORCH.format(
            data=data,
            body=textwrap.indent("\n".join(lines), "    "),
            result=local_name(segment.node),
        )
    return _SCRIPT.format(
        title=f"{operator}{f' at {where}' if where else ''} is wrong in the artifact.",
        data=data,
        artifact=f"the artifact's node {node}" if node else "the converted operator",
        truth=truth[0].upper() + truth[1:],
        modules="".join(f"import {module}\n" for module in modules),
        computed=computed,
        operator=operator,
    )


def local_name(node: Node) -> str:
    """What a value is called in the script and its data."""
    return f"{node.name}_value" if node.name in _RESERVED else node.name


def unknown_to_torch(segment: Segment) -> list[str]:
    """Operators that torch has only while another package is imported, and what is no call."""
    return sorted({str(node.target) for node in segment.nodes if not _is_of_torch(node)})


def _is_of_torch(node: Node) -> bool:
    if _is_operator(node):
        target: Any = node.target
        return target.namespace in _NAMESPACES
    return node.op == "call_function" and _module(node) in _MODULES


def _is_operator(node: Node) -> bool:
    return isinstance(node.target, torch._ops.OpOverload)


def _module(node: Node) -> str:
    return str(getattr(node.target, "__module__", "")).lstrip("_")


def _call(node: Node) -> str:
    """Source of one operator of the graph."""
    arguments = [*(_shown(a) for a in node.args)]
    arguments += [f"{key}={_shown(value)}" for key, value in node.kwargs.items()]
    target: Any = node.target
    if _is_operator(node):
        operator = target._schema.name.split("::")[1]
        name = f"torch.ops.{target.namespace}.{operator}.{target._overloadname}"
    else:
        name = f"{_module(node)}.{target.__name__}"
    return f"{name}({', '.join(arguments)})"


def _shown(value: Any) -> str:
    if isinstance(value, Node):
        return local_name(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(map(_shown, value)) + "]"
    if isinstance(value, torch.dtype):
        return f"kind({value})"
    if isinstance(value, torch.device):
        return f"torch.device({str(value)!r})"
    if isinstance(value, float) and value != value:
        return 'float("nan")'
    if isinstance(value, float) and value in (float("inf"), float("-inf")):
        return f'float("{value}")'
    return repr(value)
