"""A graph's program made ready for ExecuTorch's lowering."""

from __future__ import annotations

import logging
import operator
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ConversionError, IsomorphError, innermost
from ...exporter.flattening import flat_program, refresh_outputs
from ...exporter.graph import Graph
from ...exporter.legalize import legalize
from ...exporter.nodes import argument, tensor_value
from ...exporter.quiet import quiet_loggers
from ..base import Unsupported
from ..unsupported import cannot_express, unsupported
from .kernels import has_kernel, lacking
from .rules import accurate_rules

if TYPE_CHECKING:
    from executorch.exir import EdgeProgramManager
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = [
    "find_unsupported",
    "lowering",
    "prepared",
    "require_border",
    "require_fixed_steps",
    "require_sizes",
    "to_edge",
]


def prepared(graph: Graph, backend: str) -> ExportedProgram:
    """A flat program of core ATen operators (and those that the backend wants whole), made exact.

    Raises:
        ConversionError: torch cannot decompose it.
    """
    program: ExportedProgram = flat_program(graph)
    with lowering():
        _legalize(program)
        _lay_out_plainly(program)
        table = _decompositions(program, backend)
        program = program.run_decompositions(table)
        _legalize(program)
        legalize(program, _never, accurate_rules(backend))
        refresh_outputs(program)
        _spare_retraces(program, table)
    return program


def to_edge(program: ExportedProgram, methods: dict[str, str] | None = None) -> EdgeProgramManager:
    """A prepared program in the edge dialect, with constant methods; nothing is delegated.

    Without the verifier of that dialect: `lacking` asks the runtime's registry instead.
    """
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    return to_edge_transform_and_lower(
        program,
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
        constant_methods=methods,
    )


def _spare_retraces(program: ExportedProgram, table: dict[Any, Any]) -> None:
    """Let exir's two further decompositions pass where they would find nothing to do.

    Each retraces the whole program, which is a fifth of the time of a conversion. The second
    would take apart what XNNPACK wants whole, too.
    """
    aten = torch.ops.aten
    for node in program.graph.nodes:
        if node.target is aten.reshape.default:
            node.target = aten.view_copy.default
    program.graph_module.recompile()
    program.run_decompositions = lambda _=None: program


def _lay_out_plainly(program: ExportedProgram) -> None:
    """Let inputs and weights be contiguous: kernels refuse a mixture of layouts when they run.

    An example that was `channels_last` would fix that layout for good otherwise. The retrace
    that follows works out the layouts of all other values.
    """
    for node in program.graph.find_nodes(op="placeholder"):
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and not value.is_contiguous():
            node.meta["val"] = value.contiguous()
    program._state_dict = {name: _plain(tensor) for name, tensor in program.state_dict.items()}
    program._constants = {
        name: _plain(value) if isinstance(value, torch.Tensor) else value
        for name, value in program.constants.items()
    }


def _plain(tensor: torch.Tensor) -> torch.Tensor:
    if tensor.is_contiguous():
        return tensor
    plain = tensor.detach().contiguous()
    kept = isinstance(tensor, torch.nn.Parameter)
    return torch.nn.Parameter(plain, tensor.requires_grad) if kept else plain


def _legalize(program: ExportedProgram) -> None:
    legalize(program, lambda node: has_kernel(node.target))
    refresh_outputs(program)


def _never(_: Node) -> bool:
    return False


def _is_view(target: Any) -> bool:
    return any(value.alias_info is not None for value in target._schema.returns)


def _decompositions(program: ExportedProgram, backend: str) -> dict[Any, Any]:
    """torch's decompositions to core ATen, and of all else that has no kernel."""
    usual = torch.export.default_decompositions()
    table = dict(usual.items())
    for node in program.graph.nodes:
        target: Any = node.target
        known = torch._decomp.decomposition_table.get(target)
        if node.op != "call_function" or known is None or has_kernel(target):
            continue
        if not _is_view(target):  # the lowering turns those into copies
            table.setdefault(target, known)
    if backend == "xnnpack":
        from .delegation import Partitioner

        for target in Partitioner().ops_to_not_decompose(program)[0]:
            table.pop(target, None)
    return table


def find_unsupported(graph: Graph) -> list[Unsupported]:
    """Operators without a portable kernel, after rewrites and decompositions."""
    require_border(graph)
    if loops := _endless_loops(graph):
        return loops
    if unplannable := _unplannable(graph):
        return unplannable
    program = prepared(graph, "portable")
    with lowering():
        return lacking(to_edge(program).exported_program())


def _unplannable(graph: Graph) -> list[Unsupported]:
    """Operators whose result's size depends on values: memory is planned ahead.

    executorch 1.5.1 lowers `nonzero` and gives other values at run time.
    """
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    found = []
    for node in graph.program.graph.nodes:
        value = tensor_value(node)
        if node.op != "call_function" or value is None:
            continue
        known = [v for n in node.all_input_nodes if (v := tensor_value(n)) is not None]
        before = {symbol for v in known for symbol in free_unbacked_symbols(v.shape)}
        if set(free_unbacked_symbols(value.shape)) - before:
            maker: Any = node.args[0] if node.target is operator.getitem else node
            found.append(unsupported(maker, "the size of its result depends on values"))
    return found


def _endless_loops(graph: Graph) -> list[Unsupported]:
    """Recurrent layers along an axis whose size varies: the lowering unrolls every step."""
    aten = torch.ops.aten
    recurrent = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    found: list[Unsupported] = []
    for node in graph.program.graph.nodes:
        if node.target in recurrent and (value := tensor_value(node.args[0])) is not None:
            steps = value.shape[1 if argument(node, "batch_first") else 0]
            if not isinstance(steps, int):
                found.append(unsupported(node, "its number of steps varies, and they are unrolled"))
    return found


def require_fixed_steps(graph: Graph) -> None:
    """Demand that recurrent layers take a fixed number of steps.

    Raises:
        ConversionError: names each that does not, and the choices.
    """
    if loops := _endless_loops(graph):
        raise cannot_express(
            "ExecuTorch",
            loops,
            "leave the time axis out of --dynamic and export one file per length, or pad to one; "
            "the batch may stay dynamic",
        )


def require_sizes(graph: Graph) -> None:
    """Demand that every size is known before the program runs.

    Raises:
        ConversionError: names each operator whose result's size depends on values.
    """
    if unplannable := _unplannable(graph):
        raise cannot_express(
            "ExecuTorch", unplannable, "return a mask of fixed size (torch.where) instead"
        )


def require_border(graph: Graph) -> None:
    """Demand what the format can say of inputs and outputs: real dtypes, bounded sizes.

    Raises:
        ConversionError: names the input and the choices.
    """
    for spec in (*graph.inputs, *graph.outputs):
        if spec.dtype.startswith("complex"):
            raise ConversionError(
                f"{spec.name} is {spec.dtype}, and ExecuTorch programs take and return real "
                "tensors only",
                hint="pass real and imaginary parts: torch.view_as_real / view_as_complex",
            )
    for spec in graph.inputs:
        for axis, size in enumerate(spec.shape):
            if getattr(size, "max", 0) is None:
                raise ConversionError(
                    f"ExecuTorch plans memory ahead and needs the largest size of every dynamic "
                    f"dim; {size} of {spec.name} has none",
                    hint=f"give one, --dynamic {spec.name}.{axis}={size}:1..MAX, or leave the "
                    "axis out of --dynamic to fix its size",
                )


@contextmanager
def lowering() -> Iterator[None]:
    """Where executorch and torch work: keeps them quiet, and tells the cause of what they raise.

    Dims keep the bounds that they were captured with. A retrace adds guards (a convolution asks
    whether the batch is below 16), which would narrow them: the file's bound, too.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    names = ("executorch", "root", "torch.export", "torch.utils._pytree", "torchao")
    level = logging.root.level
    try:
        with warnings.catch_warnings(), quiet_loggers(*names), ShapeEnv().suppress_guards():
            warnings.simplefilter("ignore")
            logging.root.setLevel(logging.ERROR)
            yield
    except IsomorphError:
        raise
    except Exception as error:
        cause = innermost(error)
        text = (str(cause).strip() or type(cause).__name__).splitlines()[0]
        raise ConversionError(
            f"ExecuTorch's lowering failed: {text}",
            hint="rewriting the operation that the message names may help; -v shows the trace",
        ) from error
    finally:
        logging.root.setLevel(level)
