"""A module and an example call go in, a `Graph` comes out.

Capture strategies are tried in order; each attempt's failure is kept and told
when none works. What torch.export leaves implicit is made explicit here: names,
dynamic axes that came out static, writes to inputs and buffers, random
operators.
"""

from __future__ import annotations

import contextlib
import io
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ..errors import ConversionError, UsageError
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
from .examples import ExampleCall
from .graph import Attempt, Graph, Provenance
from .ranges import infer_index_ranges
from .rewrites.recurrent import whole_recurrent_operators
from .signature import Dim, DynamicRequest

__all__ = ["Capture", "capture"]


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
    source_sha256: str | None = None,
    architecture: str | None = None,
) -> Capture:
    """Trace `module` once, on the example call.

    Args:
        module: in eval mode.
        example: arguments; tensors may nest in dicts, tuples, lists, dataclasses.
        dynamic: axes whose size must stay free.
        ranges: inclusive value ranges by input name, where the user gave them.
        source_sha256: SHA-256 of the checkpoint, for the provenance.
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
    args, kwargs = pytree.tree_unflatten(leaves, input_tree)
    result = _call_once(module, leaves, input_tree)
    program, attempts = _try_strategies(module, args, kwargs, leaves, names, axes)
    tensors = {n: v for n, v in zip(names, leaves, strict=True) if isinstance(v, torch.Tensor)}
    graph = _describe(program, names, leaves, input_tree, result, axes, tensors, attempts)
    graph = replace(
        graph,
        provenance=replace(
            graph.provenance, source_sha256=source_sha256, architecture=architecture
        ),
    )
    graph = _with_ranges(graph, tensors, ranges or {}, example.synthetic)
    return Capture(graph, tensors, example.synthetic)


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
                f"dim {dim.name} may only be 1, which is not dynamic",
                hint="leave it out of --dynamic, or raise its maximum",
            )
        if wanted != size:
            if size == 0:
                raise UsageError(f"the example has size 0 on the dynamic axis {axis}")
            index = torch.arange(wanted) % size
            leaf = leaf.index_select(axis, index)
    return leaf


def _call_once(module: torch.nn.Module, leaves: Sequence[Any], tree: pytree.TreeSpec) -> Any:
    """The module's own answer; the first place where a wrong shape shows."""
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
            f"{type(error).__name__}: {_brief(error)}",
            hint="give inputs that the model accepts with --input NAME=SHAPE:DTYPE",
        ) from error


def _try_strategies(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    leaves: Sequence[Any],
    names: Sequence[str],
    axes: Mapping[str, Mapping[int, Dim]],
) -> tuple[ExportedProgram, tuple[Attempt, ...]]:
    shapes = torch.export.ShapesCollection()
    torch_dims = _torch_dims(axes)
    for name, leaf in zip(names, leaves, strict=True):
        if isinstance(leaf, torch.Tensor) and axes.get(name):
            shapes[leaf] = {axis: torch_dims[dim.name] for axis, dim in axes[name].items()}
    dynamic_shapes = shapes.dynamic_shapes(module, args, kwargs) if torch_dims else None
    attempts: list[Attempt] = []
    errors: list[BaseException] = []
    for strategy, run in _strategies(module):
        start = time.perf_counter()
        try:
            with _quiet(), torch.no_grad(), whole_recurrent_operators():
                program = run(module, args, kwargs, dynamic_shapes)
        except Exception as error:  # noqa: BLE001  kept, and told if no strategy works
            errors.append(error)
            attempts.append(Attempt(strategy, time.perf_counter() - start, _brief(error)))
            continue
        attempts.append(Attempt(strategy, time.perf_counter() - start))
        return program, tuple(attempts)
    raise _capture_error(attempts, errors)


_Strategy = Callable[[Any, tuple[Any, ...], dict[str, Any], Any], ExportedProgram]


def _strategies(module: torch.nn.Module) -> list[tuple[str, _Strategy]]:
    if isinstance(module, torch.jit.ScriptModule):
        return [("torchscript", _from_torchscript)]
    return [
        ("torch.export", lambda m, a, k, d: torch.export.export(m, a, k, dynamic_shapes=d)),
        (
            "torch.export strict",
            lambda m, a, k, d: torch.export.export(m, a, k, dynamic_shapes=d, strict=True),
        ),
    ]


def _from_torchscript(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], dynamic_shapes: Any
) -> ExportedProgram:
    """TorchScript has no public way into torch.export; this is torch's own converter."""
    from torch._export.converter import TS2EPConverter

    names = [argument.name for argument in module.forward.schema.arguments[1:]]
    ordered = (*args, *(kwargs[name] for name in names[len(args) :] if name in kwargs))
    program = TS2EPConverter(module, ordered, {}).convert()
    if dynamic_shapes:
        shapes = torch.export.ShapesCollection()
        given = [v for v in pytree.tree_leaves(ordered) if isinstance(v, torch.Tensor)]
        wanted = pytree.tree_leaves(dynamic_shapes, is_leaf=lambda v: v is None or _is_axis_map(v))
        for tensor, axes in zip(given, wanted, strict=True):
            if axes:
                shapes[tensor] = axes
        inner = program.module()
        return torch.export.export(
            inner, ordered, dynamic_shapes=shapes.dynamic_shapes(inner, ordered)
        )
    return program


def _is_axis_map(value: Any) -> bool:
    return isinstance(value, dict) and all(isinstance(key, int) for key in value)


def _torch_dims(axes: Mapping[str, Mapping[int, Dim]]) -> dict[str, Any]:
    dims = {dim.name: dim for found in axes.values() for dim in found.values()}
    result: dict[str, Any] = {}
    for name, dim in dims.items():
        if dim.step == 1:
            result[name] = torch.export.Dim(name, min=dim.min, max=dim.max)
            continue
        low = -(-dim.min // dim.step)
        high = None if dim.max is None else dim.max // dim.step
        result[name] = dim.step * torch.export.Dim(f"_{name}", min=low, max=high)
    return result


def _capture_error(attempts: Sequence[Attempt], errors: Sequence[BaseException]) -> ConversionError:
    first = errors[0]
    text = str(first)
    static = re.findall(
        r"You marked (\w+) as dynamic but your code specialized it to be a constant \((\d+)\)", text
    )
    if static:
        told = ", ".join(f"{name} (fixed to {size})" for name, size in static)
        return ConversionError(
            f"a requested dynamic axis came out static: {told}",
            hint="leave it out of --dynamic, or change the code that fixes it "
            f"({_code_line(first) or 'a reshape, a loop or a comparison of sizes'})",
        )
    fixes = re.search(r"Suggested fixes:\n((?:  .*\n?)+)", text)
    if "Constraints violated" in text and fixes:
        return ConversionError(
            "the model does not work for every size that --dynamic asks for: "
            + " ".join(line.strip(" -") for line in text.splitlines()[1:2]),
            hint=_translate_fixes(fixes.group(1)),
        )
    tried = "; ".join(f"{a.strategy}: {a.error}" for a in attempts)
    where = _code_line(first)
    return ConversionError(
        f"the model cannot be captured{f' ({where})' if where else ''}: {tried}",
        hint="torch.export must be able to trace forward(): replace branches on tensor values "
        "with torch.where or torch.cond, and calls into other libraries with torch operators",
    )


def _translate_fixes(fixes: str) -> str:
    """torch's suggestions in the words of `--dynamic`."""
    lines = [line.strip() for line in fixes.splitlines() if line.strip()]
    options = []
    for line in lines:
        if match := re.fullmatch(r"(\w+) = (\d+)\*_(\w+)", line):
            options.append(
                f"{match[1]} must be a multiple of {match[2]}: end its --dynamic with "
                f":MIN..MAX:{match[2]}"
            )
        elif match := re.fullmatch(r"(\w+) = Dim\('(\w+)'(?:, min=(\d+))?(?:, max=(\d+))?\)", line):
            if not match[1].startswith("_"):
                options.append(f"{match[1]} works for {match[3] or 1}..{match[4] or ''}")
        else:
            options.append(line)
    return "; ".join(options)


def _code_line(error: BaseException) -> str:
    """The user's line that torch names, as file:line."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in forward', str(error))
    own = [f for f in frames if "site-packages" not in f[0] and not f[0].startswith("<")]
    if not own:
        return ""
    return f"{own[-1][0].rpartition('/')[2]}:{own[-1][1]}"


def _brief(error: BaseException) -> str:
    """The first sentence of an exception's message."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return (lines[0] if lines else type(error).__name__)[:300]


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch.export warns, logs and prints about code that is not the user's to change."""
    loggers = [logging.getLogger(name) for name in ("torch._guards", "torch.export", "torch.fx")]
    levels = [logger.level for logger in loggers]
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        for logger in loggers:
            logger.setLevel(logging.CRITICAL)
        try:
            yield
        finally:
            for logger, level in zip(loggers, levels, strict=True):
                logger.setLevel(level)


def _describe(
    program: ExportedProgram,
    names: Sequence[str],
    leaves: Sequence[Any],
    input_tree: pytree.TreeSpec,
    result: Any,
    axes: Mapping[str, Mapping[int, Dim]],
    tensors: Mapping[str, torch.Tensor],
    attempts: tuple[Attempt, ...],
) -> Graph:
    """Put the user's names to the program's inputs and outputs."""
    program = make_functional(program)
    inputs, input_nodes = input_specs(program, names, leaves, axes)
    out_paths, out_leaves, output_tree = key_paths(result)
    outputs, output_nodes, output_leaves, mutated = output_specs(
        program,
        flat_names(out_paths, "output"),
        out_leaves,
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


def _span(low: int, high: int) -> tuple[int, int]:
    """The example's range; a single value gets neighbours, or a frozen constant would not show."""
    if low < high:
        return low, high
    return (0, 1) if low == 0 else (low - 1, high + 1)
