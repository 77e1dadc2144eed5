"""Names, dtypes and dims at the border of an exported program."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    InputKind,
    OutputKind,
    OutputSpec,
)

from ..errors import ConversionError
from .calling import Constant
from .signature import Dim, TensorSpec

__all__ = ["dtype_name", "input_specs", "output_specs"]


def dtype_name(dtype: torch.dtype) -> str:
    """torch.float32 -> "float32"."""
    return str(dtype).removeprefix("torch.")


def input_specs(
    program: ExportedProgram,
    names: Sequence[str],
    leaves: Sequence[Any],
    axes: Mapping[str, Mapping[int, Dim]],
) -> tuple[tuple[TensorSpec, ...], tuple[str, ...]]:
    """Specs of the tensor inputs and their placeholder nodes' names.

    `names` and `leaves` are all leaves of the call, in order; those that are
    not tensors were fixed by the capture.

    Raises:
        ConversionError: an axis of `axes` is static in the program, or ties came out otherwise.
    """
    values = _node_values(program)
    user = [s for s in program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
    if len(user) != len(leaves):
        raise ConversionError(
            f"the captured program takes {len(user)} inputs where the call has {len(leaves)}"
        )
    symbols = _symbols(program, user, names, axes, values)
    specs, nodes = [], []
    for spec, name, leaf in zip(user, names, leaves, strict=True):
        if not isinstance(leaf, torch.Tensor):
            continue
        shape = tuple(
            _input_size(size, name, axis, axes, symbols)
            for axis, size in enumerate(values[spec.arg.name].shape)
        )
        specs.append(TensorSpec(name, dtype_name(leaf.dtype), shape))
        nodes.append(spec.arg.name)
    return tuple(specs), tuple(nodes)


def _node_values(program: ExportedProgram) -> dict[str, Any]:
    return {node.name: node.meta.get("val") for node in program.graph_module.graph.nodes}


def _symbols(
    program: ExportedProgram,
    user: Sequence[Any],
    names: Sequence[str],
    axes: Mapping[str, Mapping[int, Dim]],
    values: Mapping[str, Any],
) -> dict[str, Dim]:
    """The user's dim for each symbolic size expression."""
    symbols: dict[str, Dim] = {}
    for spec, name in zip(user, names, strict=True):
        for axis, dim in axes.get(name, {}).items():
            size = values[spec.arg.name].shape[axis]
            if isinstance(size, int):
                raise ConversionError(
                    f"the requested dynamic axis {name}.{axis} ({dim.name}) came out static, "
                    f"fixed to {size}",
                    hint="leave it out of --dynamic, or change the code that fixes it",
                )
            known = symbols.setdefault(str(size), dim)
            if known.name != dim.name:
                raise ConversionError(
                    f"dims {known.name} and {dim.name} must be equal in this model",
                    hint=f"give both axes the same name, for example {name}.{axis}={known.name}",
                )
    return symbols


def _input_size(
    size: Any,
    name: str,
    axis: int,
    axes: Mapping[str, Mapping[int, Dim]],
    symbols: Mapping[str, Dim],
) -> int | Dim:
    if isinstance(size, int):
        return size
    dim = axes.get(name, {}).get(axis) or symbols.get(str(size))
    return dim if dim is not None else _unnamed(size)


def output_specs(
    program: ExportedProgram,
    names: Sequence[str],
    *,
    taken: set[str],
    inputs: Mapping[str, TensorSpec],
) -> tuple[
    tuple[TensorSpec, ...],
    tuple[str, ...],
    tuple[str | Constant, ...],
    tuple[tuple[str, str], ...],
]:
    """Specs and node names of the outputs, names of all result leaves, and mutated inputs.

    `names` are those of the result's leaves in order. An output may not share a
    name with an input (`taken`): it gets `_out` appended.
    """
    values = _node_values(program)
    sizes = _dims_by_expression(program, inputs, values)
    specs: list[TensorSpec] = []
    nodes: list[str] = []
    all_leaves: list[str | Constant] = []
    returned = [s for s in program.graph_signature.output_specs if s.kind == OutputKind.USER_OUTPUT]
    used = set(taken) | set(names)
    for spec, name in zip(returned, names, strict=True):
        if isinstance(spec.arg, ConstantArgument):
            all_leaves.append(Constant(spec.arg.value))
            continue
        while name in taken:
            name += "_out"
        specs.append(_output_spec(spec, name, values[spec.arg.name], sizes))
        nodes.append(spec.arg.name)
        all_leaves.append(name)
    mutated = []
    for spec in program.graph_signature.output_specs:
        if spec.kind != OutputKind.USER_INPUT_MUTATION or spec.target is None:
            continue
        source = inputs[spec.target].name
        name = f"{source}_mutated"
        while name in used:
            name += "_"
        used.add(name)
        specs.append(_output_spec(spec, name, values[spec.arg.name], sizes, mutates=source))
        nodes.append(spec.arg.name)
        mutated.append((source, name))
    return tuple(specs), tuple(nodes), tuple(all_leaves), tuple(mutated)


def _output_spec(
    spec: OutputSpec,
    name: str,
    value: Any,
    sizes: Mapping[str, Dim],
    mutates: str | None = None,
) -> TensorSpec:
    if not isinstance(value, torch.Tensor):  # a size that was returned as a number
        dtype = {bool: "bool", float: "float64"}.get(type(value), "int64")
        if isinstance(value, torch.SymFloat):
            dtype = "float64"
        if isinstance(value, torch.SymBool):
            dtype = "bool"
        return TensorSpec(name, dtype, ())
    shape = tuple(size if isinstance(size, int) else _derived(size, sizes) for size in value.shape)
    return TensorSpec(name, dtype_name(value.dtype), shape, mutates=mutates)


def _dims_by_expression(
    program: ExportedProgram, inputs: Mapping[str, TensorSpec], values: Mapping[str, Any]
) -> dict[str, Dim]:
    found: dict[str, Dim] = {}
    for node, spec in inputs.items():
        for size, dim in zip(values[node].shape, spec.shape, strict=True):
            if isinstance(dim, Dim):
                found[str(size)] = dim
    return found


def _derived(size: Any, known: Mapping[str, Dim]) -> Dim:
    """A dim for a size expression: the input's own, or one named by the expression."""
    text = str(size)
    if text in known:
        return known[text]
    import sympy

    expression = size.node.expr
    table: dict[str, tuple[str, int, int | None]] = {}
    for symbol_text, dim in known.items():
        parsed = sympy.sympify(symbol_text)
        if isinstance(parsed, sympy.Symbol):
            table[symbol_text] = (dim.name, dim.min, dim.max)
        elif parsed.args and dim.step > 1:  # step * _name
            free = next(iter(parsed.free_symbols))
            high = None if dim.max is None else dim.max // dim.step
            table[str(free)] = (f"({dim.name}/{dim.step})", -(-dim.min // dim.step), high)
    symbols = sorted(expression.free_symbols, key=str)
    if not symbols or any(str(s) not in table for s in symbols):
        return _unnamed(size)
    name = str(expression.subs({s: sympy.Symbol(table[str(s)][0]) for s in symbols}))
    low = _at(expression, {s: table[str(s)][1] for s in symbols}) or 0
    high = _at(expression, {s: table[str(s)][2] for s in symbols})
    return Dim(name, low if high is None else min(low, high), high)


def _at(expression: Any, sizes: Mapping[Any, int | None]) -> int | None:
    if any(size is None for size in sizes.values()):
        return None
    value = expression.subs(sizes)
    return int(value) if value.is_finite and math.isfinite(float(value)) else None


def _unnamed(size: Any) -> Dim:
    """A size that depends on data, or that torch found to be free by itself."""
    return Dim(str(size), 0, None)
