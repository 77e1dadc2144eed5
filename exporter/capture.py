"""A module and an example call go in, a `Graph` comes out.

What torch.export leaves implicit is made explicit here: names, dynamic axes
that came out static, writes to inputs and buffers, random operators.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind
from torch.utils import _pytree as pytree

from ..errors import ConversionError, UsageError, first_line
from .border import dtype_name, input_specs, output_specs
from .calling import (
    CallStructure,
    Constant,
    argument_paths,
    flat_names,
    key_paths,
    register_dataclasses,
    unique_names,
)
from .effects import make_functional, random_operators
from .examples import ExampleCall, make_tensor
from .graph import Attempt, Graph, Provenance
from .ranges import infer_index_ranges
from .rewrites.attention import note_on_padding
from .signature import Dim, DynamicRequest
from .strategies import try_strategies

__all__ = ["Capture", "capture", "capture_program"]


class Capture:
    """A graph with the example call it was captured with (`inputs`: name -> tensor)."""

    def __init__(self, graph: Graph, inputs: dict[str, torch.Tensor], synthetic: bool) -> None:
        self.graph = graph
        self.inputs = inputs
        self.synthetic = synthetic


def capture(
    module: torch.nn.Module,
    example: ExampleCall,
    *,
    dynamic: Sequence[DynamicRequest] = (),
    ranges: Mapping[str, tuple[float, float]] | None = None,
    architecture: str | None = None,
) -> Capture:
    """Trace `module` once, on the example call.

    Args:
        module: in eval mode.
        example: arguments; tensors may nest in dicts, tuples, lists, dataclasses.
        dynamic: axes whose size must stay free.
        ranges: inclusive value ranges by input name, where the user gave them.
        architecture: how the module was built, for the provenance.

    Raises:
        UsageError: the module rejects the example, or a name is unknown.
        ConversionError: no strategy could capture it, or a requested axis is static.
    """
    args, kwargs = example.args, dict(example.kwargs)
    register_dataclasses((args, kwargs))
    forward = getattr(module, "forward", module)
    paths, leaves, input_tree = argument_paths(forward, args, kwargs)
    names = unique_names(flat_names(paths, "input"))
    axes = _axes(dynamic, names, [".".join(path) for path in paths], leaves)
    leaves = [
        _room_to_vary(leaf, axes.get(name, {})) for name, leaf in zip(names, leaves, strict=True)
    ]
    leaves = _apart(leaves)
    args, kwargs = pytree.tree_unflatten(leaves, input_tree)
    try:
        program, attempts = try_strategies(module, args, kwargs, leaves, names, axes)
    except ConversionError:
        # What the model returns may be of a type that torch.export does not know yet.
        if not register_dataclasses(_reject_bad_example(module, leaves, input_tree)):
            raise
        program, attempts = try_strategies(module, args, kwargs, leaves, names, axes)
    tensors = {n: v for n, v in zip(names, leaves, strict=True) if isinstance(v, torch.Tensor)}
    graph = _describe(program, names, leaves, input_tree, axes, tensors, attempts)
    padding = note_on_padding(module, program)
    graph = replace(
        graph,
        notes=(*graph.notes, padding) if padding else graph.notes,
        provenance=replace(graph.provenance, architecture=architecture),
    )
    graph = _with_ranges(graph, tensors, ranges or {}, example.synthetic)
    return Capture(graph, tensors, example.synthetic)


def capture_program(program: ExportedProgram, *, architecture: str | None = None) -> Capture:
    """A graph from a program that was exported elsewhere (`.pt2`).

    Its own example inputs are used where it carries them, else made-up ones of
    its shapes; its dynamic axes keep their ranges and are named INPUT_AXIS.
    """
    user = [s for s in program.graph_signature.input_specs if s.kind == InputKind.USER_INPUT]
    names = unique_names(getattr(s.arg, "name", "") or f"input_{i}" for i, s in enumerate(user))
    values = {n.name: n.meta.get("val") for n in program.graph_module.graph.nodes}
    axes: dict[str, dict[int, Dim]] = {}
    dims: dict[str, Dim] = {}
    for spec, name in zip(user, names, strict=True):
        value = values.get(getattr(spec.arg, "name", ""))
        for axis, size in enumerate(value.shape if isinstance(value, torch.Tensor) else ()):
            if not isinstance(size, int):
                dim = dims.setdefault(str(size), _program_dim(f"{name}_{axis}", size, program))
                axes.setdefault(name, {})[axis] = dim
    leaves, synthetic = _program_leaves(program, user, values, axes)
    tensors = {n: v for n, v in zip(names, leaves, strict=True) if isinstance(v, torch.Tensor)}
    attempt = Attempt("exported program", 0.0)
    in_tree = program.call_spec.in_spec
    graph = _describe(program, names, leaves, in_tree, axes, tensors, (attempt,))
    graph = replace(graph, provenance=replace(graph.provenance, architecture=architecture))
    return Capture(_with_ranges(graph, tensors, {}, synthetic), tensors, synthetic)


def _program_dim(name: str, size: Any, program: ExportedProgram) -> Dim:
    span = program.range_constraints.get(size.node.expr)
    low = max(1, int(span.lower)) if span is not None else 1
    return Dim(name, low, None if span is None else _finite(span.upper))


def _finite(bound: Any) -> int | None:
    """A sympy bound as an int; None where it is infinite."""
    try:
        value = int(bound)
    except (TypeError, ValueError, OverflowError):
        return None
    return value if value < 1 << 40 else None


def _program_leaves(
    program: ExportedProgram,
    user: Sequence[Any],
    values: Mapping[str, Any],
    axes: Mapping[str, Mapping[int, Dim]],
) -> tuple[list[Any], bool]:
    if program.example_inputs is not None:
        return pytree.tree_leaves(program.example_inputs), False
    generator = torch.Generator().manual_seed(0)
    leaves: list[Any] = []
    for spec in user:
        if isinstance(spec.arg, ConstantArgument):
            leaves.append(spec.arg.value)
            continue
        value = values[spec.arg.name]
        dims = axes.get(spec.arg.name, {})
        shape = [
            size if isinstance(size, int) else max(2, dims[axis].min)
            for axis, size in enumerate(value.shape)
        ]
        leaves.append(make_tensor(shape, dtype_name(value.dtype), None, generator))
    return leaves, True


def _axes(
    dynamic: Sequence[DynamicRequest],
    names: Sequence[str],
    dotted: Sequence[str],
    leaves: Sequence[Any],
) -> dict[str, dict[int, Dim]]:
    """Requested dims by input name and axis; every request must meet a tensor's axis."""
    axes: dict[str, dict[int, Dim]] = {}
    dims: dict[str, Dim] = {}
    for request in dynamic:
        if request.name in names:
            position = list(names).index(request.name)
        elif request.name in dotted:
            position = list(dotted).index(request.name)
        else:
            raise UsageError(
                f"--dynamic names the input {request.name!r}, which the model does not have",
                hint=f"its inputs are {', '.join(names)}",
            )
        leaf = leaves[position]
        rank = leaf.dim() if isinstance(leaf, torch.Tensor) else 0
        axis = request.axis + rank if request.axis < 0 else request.axis
        if not 0 <= axis < rank:
            raise UsageError(
                f"input {request.name} has {rank} axes, so there is no axis {request.axis}"
            )
        dim = request.dim
        known = dims.setdefault(dim.name, dim)
        if known != dim and (dim.max, dim.min, dim.step) != (None, 1, 1):
            if (known.max, known.min, known.step) != (None, 1, 1):
                raise UsageError(f"dim {dim.name!r} is given with two different ranges")
            dims[dim.name] = dim
        axes.setdefault(names[position], {})[axis] = dim
    return {
        name: {axis: dims[dim.name] for axis, dim in found.items()} for name, found in axes.items()
    }


def _apart(leaves: list[Any]) -> list[Any]:
    """One tensor given for two arguments becomes two: torch.export would merge the inputs."""
    seen: set[int] = set()
    apart = []
    for leaf in leaves:
        again = isinstance(leaf, torch.Tensor) and id(leaf) in seen
        apart.append(leaf.clone(memory_format=torch.preserve_format) if again else leaf)
        seen.add(id(leaf))
    return apart


def _room_to_vary(leaf: Any, axes: Mapping[int, Dim]) -> Any:
    """Grow axes that are to vary: torch.export takes size 0 or 1 for a constant."""
    if not isinstance(leaf, torch.Tensor):
        return leaf
    for axis, dim in axes.items():
        size = leaf.shape[axis]
        wanted = max(2, dim.min, size)
        wanted += -wanted % dim.step
        if dim.max is not None and wanted > dim.max:
            if size > dim.max:
                raise UsageError(
                    f"the example has size {size} on axis {axis}, above the maximum {dim.max} "
                    f"of dim {dim.name}"
                )
            raise UsageError(
                f"dim {dim.name} allows only sizes of 0 or 1 besides its minimum",
                hint="leave it out of --dynamic, or raise its maximum",
            )
        if wanted != size:
            if size == 0:
                raise UsageError(f"the example has size 0 on the dynamic axis {axis}")
            index = torch.arange(wanted) % size
            leaf = leaf.index_select(axis, index)
    return leaf


def _reject_bad_example(
    module: torch.nn.Module, leaves: Sequence[Any], tree: pytree.TreeSpec
) -> Any:
    """After a failed capture: what does the module itself make of the example?

    Raises:
        UsageError: it does not.
    """
    copies = [v.clone() if isinstance(v, torch.Tensor) else v for v in leaves]
    args, kwargs = pytree.tree_unflatten(copies, tree)
    try:
        with torch.no_grad():
            return module(*args, **kwargs)
    except Exception as error:
        shapes = ", ".join(
            f"{list(v.shape)} {dtype_name(v.dtype)}" if isinstance(v, torch.Tensor) else repr(v)
            for v in leaves
        )
        raise UsageError(
            f"the model rejects the example input ({shapes}): "
            f"{type(error).__name__}: {first_line(error)}",
            hint=_accepts(module, leaves),
        ) from error


def _accepts(module: torch.nn.Module, leaves: Sequence[Any]) -> str:
    """What to write instead, where the reason can be guessed."""
    tensors = [v for v in leaves if isinstance(v, torch.Tensor)]
    looks_up = any(isinstance(m, torch.nn.Embedding) for m in module.modules())
    if looks_up and all(v.is_floating_point() for v in tensors):
        return "token ids are integers: give --input NAME=SHAPE:int64"
    return "give inputs that the model accepts with --input NAME=SHAPE:DTYPE"


def _describe(
    program: ExportedProgram,
    names: Sequence[str],
    leaves: Sequence[Any],
    input_tree: pytree.TreeSpec,
    axes: Mapping[str, Mapping[int, Dim]],
    tensors: Mapping[str, torch.Tensor],
    attempts: tuple[Attempt, ...],
) -> Graph:
    """Put the user's names to the program's inputs and outputs."""
    program = make_functional(program)
    inputs, input_nodes = input_specs(program, names, leaves, axes)
    output_tree = program.call_spec.out_spec
    out_paths, _, _ = key_paths(pytree.tree_unflatten(range(output_tree.num_leaves), output_tree))
    outputs, output_nodes, output_leaves, mutated = output_specs(
        program,
        flat_names(out_paths, "output"),
        taken=set(tensors),
        inputs=dict(zip(input_nodes, inputs, strict=True)),
    )
    if not outputs:
        raise ConversionError(
            "the model returns no tensor", hint="forward() must return at least one tensor"
        )
    call = CallStructure(
        input_tree=input_tree,
        input_leaves=tuple(
            name if isinstance(leaf, torch.Tensor) else Constant(leaf)
            for name, leaf in zip(names, leaves, strict=True)
        ),
        output_tree=output_tree,
        output_leaves=output_leaves,
        mutated=mutated,
    )
    notes = [
        f"random operator {operator} left in the graph: its values differ from run to run"
        for operator in random_operators(program)
    ]
    notes += [f"the model writes to its input {a}; the new value is output {b}" for a, b in mutated]
    return Graph(
        program=program,
        inputs=inputs,
        outputs=outputs,
        input_nodes=input_nodes,
        output_nodes=output_nodes,
        call=call,
        provenance=Provenance(None, None, torch.__version__, attempts),
        notes=tuple(notes),
    )


def _with_ranges(
    graph: Graph,
    tensors: dict[str, torch.Tensor],
    given: Mapping[str, tuple[float, float]],
    synthetic: bool,
) -> Graph:
    """Add value ranges: the user's, else the table an index reads from, else the example's."""
    inferred = infer_index_ranges(graph)
    specs, notes = [], list(graph.notes)
    for spec in graph.inputs:
        span = given.get(spec.name) or inferred.get(spec.name)
        table = inferred.get(spec.name)
        if span and table and not table[0] <= span[0] <= span[1] <= table[1]:
            raise UsageError(
                f"input {spec.name} indexes a table of {int(table[1]) + 1} rows, and the range "
                f"{span[0]}..{span[1]} goes beyond it",
                hint=f"give a range within 0..{int(table[1])}",
            )
        if span is None and spec.is_float and not synthetic:
            span = _mask_range(tensors[spec.name])
        if span is None and not spec.is_float and spec.dtype != "bool":
            value = tensors[spec.name]
            if synthetic or not value.numel():
                span = (0, 1)
                notes.append(
                    f"the range of input {spec.name} is unknown; checked with 0 and 1 only "
                    f"(give --input {spec.name}=SHAPE:{spec.dtype}:MIN..MAX)"
                )
            elif not value.dtype.is_complex:
                span = _span(int(value.min()), int(value.max()))
        specs.append(replace(spec, range=span))
    return replace(graph, inputs=tuple(specs), notes=tuple(notes))


def _mask_range(value: torch.Tensor) -> tuple[float, float] | None:
    """0..1 for a float input of which the example holds zeros and ones only: it is a mask."""
    found = set(value.unique().tolist()) if 0 < value.numel() < 1 << 20 else set()
    return (0, 1) if found == {0.0, 1.0} else None


def _span(low: int, high: int) -> tuple[int, int]:
    """The example's range; a single value gets neighbours, or a frozen constant would not show."""
    if low < high:
        return low, high
    return (0, 1) if low == 0 else (low - 1, high + 1)
