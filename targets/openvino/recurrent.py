"""LSTM and GRU as OpenVINO's sequence operators, with a dynamic time axis.

The frontend has no rule for `aten.lstm.input`, and torch's decomposition unrolls the example's
length. So each layer and direction becomes one operator of our own, which an extension of the
frontend translates. It returns one tensor, because the frontend reads `getitem` on several
results of an extension as indexing: the states stand behind the sequence on the time axis.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ...exporter.nodes import Editor, argument, tensor_value
from ..base import Unsupported
from ..unsupported import unsupported

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["extensions", "split_layers", "unrolled"]

aten = torch.ops.aten


@torch.library.custom_op("isomorph::lstm_direction", mutates_args=())
def _lstm_direction(
    x: torch.Tensor,
    h: torch.Tensor,
    c: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor,
    reverse: bool,
) -> torch.Tensor:
    """x [batch, time, in], states [batch, hidden] -> [batch, time + 2, hidden]; h, c at the end."""
    none = torch.zeros_like(b)
    sequence = x.flip(1) if reverse else x
    y, last, cell = torch.lstm(
        sequence, (h[None], c[None]), [w, r, b, none], True, 1, 0.0, False, False, True
    )
    y = y.flip(1) if reverse else y
    return torch.cat([y, last.transpose(0, 1), cell.transpose(0, 1)], 1)


@torch.library.custom_op("isomorph::gru_direction", mutates_args=())
def _gru_direction(
    x: torch.Tensor,
    h: torch.Tensor,
    w: torch.Tensor,
    r: torch.Tensor,
    b: torch.Tensor,
    reverse: bool,
) -> torch.Tensor:
    """x [batch, time, in], state [batch, hidden] -> [batch, time + 1, hidden]; h at the end."""
    of_input, of_state = b.chunk(2)
    sequence = x.flip(1) if reverse else x
    y, last = torch.gru(
        sequence, h[None], [w, r, of_input, of_state], True, 1, 0.0, False, False, True
    )
    y = y.flip(1) if reverse else y
    return torch.cat([y, last.transpose(0, 1)], 1)


@_lstm_direction.register_fake
def _(x: Any, h: Any, c: Any, w: Any, r: Any, b: Any, reverse: bool) -> Any:
    return x.new_empty((x.shape[0], x.shape[1] + 2, h.shape[-1]))


@_gru_direction.register_fake
def _(x: Any, h: Any, w: Any, r: Any, b: Any, reverse: bool) -> Any:
    return x.new_empty((x.shape[0], x.shape[1] + 1, h.shape[-1]))


def split_layers(program: ExportedProgram) -> None:
    """Rewrite, in place, whole LSTMs and GRUs (without projections) into layers and directions."""
    graph = program.graph_module.graph
    editor = Editor(graph)
    for node in list(graph.nodes):
        if node.op == "call_function" and node.target in (aten.lstm.input, aten.gru.input):
            results = _layers(editor, node)
            if results is not None:
                editor.replace(node, results)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def unrolled(program: ExportedProgram) -> list[Unsupported]:
    """Recurrent operators that torch would unroll for the example's length, although it varies."""
    whole = (aten.lstm.input, aten.gru.input, aten.rnn_tanh.input, aten.rnn_relu.input)
    found = []
    for node in program.graph.nodes:
        if node.op != "call_function" or node.target not in whole:
            continue
        x = tensor_value(argument(node, "input"))
        if x is not None and not all(isinstance(size, int) for size in x.shape[:2]):
            found.append(
                unsupported(
                    node,
                    "only LSTM without projections and GRU have a form "
                    "with a dynamic time or batch axis",
                )
            )
    return found


def _layers(editor: Editor, node: Node) -> list[Node] | None:
    lstm = node.target is aten.lstm.input
    states: Any = list(argument(node, "hx")) if lstm else [argument(node, "hx")]
    params: Any = list(argument(node, "params"))
    biased, both = argument(node, "has_biases"), argument(node, "bidirectional")
    directions, layers = (2 if both else 1), argument(node, "num_layers")
    per = 4 if biased else 2
    if argument(node, "train") or len(params) != per * layers * directions:
        return None  # an LSTM with projections has one more weight each
    value: Any = argument(node, "input")
    if not argument(node, "batch_first"):
        value = editor.call(node, aten.transpose.int, value, 0, 1)
    ends: list[list[Any]] = [[] for _ in states]
    for layer in range(layers):
        parts = []
        for direction in range(directions):
            index = layer * directions + direction
            weights = params[per * index : per * (index + 1)]
            before = [editor.call(node, aten.select.int, state, 0, index) for state in states]
            packed = _direction(editor, node, lstm, value, before, weights, direction == 1)
            count = len(states)
            parts.append(editor.call(node, aten.slice.Tensor, packed, 1, 0, -count))
            for place in range(count):
                ends[place].append(editor.call(node, aten.select.int, packed, 1, place - count))
        value = parts[0] if len(parts) == 1 else editor.call(node, aten.cat.default, parts, 2)
    if not argument(node, "batch_first"):
        value = editor.call(node, aten.transpose.int, value, 0, 1)
    return [value, *(editor.call(node, aten.stack.default, end, 0) for end in ends)]


def _direction(
    editor: Editor, node: Node, lstm: bool, x: Any, states: Any, weights: Any, reverse: bool
) -> Any:
    w, r, *biases = weights
    if biases:
        b = editor.call(node, (aten.add.Tensor if lstm else aten.cat.default), *_pair(biases, lstm))
    else:
        recurrent: Any = tensor_value(r)
        size = recurrent.shape[0] * (1 if lstm else 2)
        zeros = tensor_value(x).new_zeros([size])  # type: ignore[union-attr]
        b = editor.call(node, aten.full.default, [size], 0.0, dtype=recurrent.dtype, value=zeros)
    target = torch.ops.isomorph.lstm_direction if lstm else torch.ops.isomorph.gru_direction
    return editor.call(node, target.default, x, *states, w, r, b, reverse)


def _pair(biases: list[Any], lstm: bool) -> tuple[Any, ...]:
    return tuple(biases) if lstm else (biases, 0)


def extensions() -> list[Any]:
    """Translations of the operators above, for `openvino.convert_model`."""
    from openvino.frontend.pytorch import ConversionExtension

    return [
        ConversionExtension("isomorph.lstm_direction.default", _to_lstm_sequence),
        ConversionExtension("isomorph.gru_direction.default", _to_gru_sequence),
    ]


def _to_lstm_sequence(context: Any) -> list[Any]:
    from openvino import opset13 as ops

    x, h, c, w, r, b = (context.get_input(i) for i in range(6))
    ax0, ax1 = ops.constant(0), ops.constant(1)

    def reordered(value: Any) -> Any:
        i, f, g, o = ops.split(value, ax0, 4).outputs()  # torch's gates
        return ops.unsqueeze(ops.concat([f, i, g, o], 0), ax0)

    sequence = ops.lstm_sequence(
        x,
        ops.unsqueeze(h, ax1),
        ops.unsqueeze(c, ax1),
        _lengths(x),
        reordered(w),
        reordered(r),
        reordered(b),
        _hidden(h, r),
        "reverse" if context.get_values_from_const_input(6) else "forward",
    )
    y, last, cell = sequence.outputs()
    return [ops.concat([ops.squeeze(y, ax1), last, cell], 1).output(0)]


def _to_gru_sequence(context: Any) -> list[Any]:
    from openvino import opset13 as ops

    x, h, w, r, b = (context.get_input(i) for i in range(5))
    ax0, ax1 = ops.constant(0), ops.constant(1)

    def reordered(value: Any) -> Any:
        reset, update, new = ops.split(value, ax0, 3).outputs()  # torch's gates
        return ops.unsqueeze(ops.concat([update, reset, new], 0), ax0)

    ri, zi, ni, rh, zh, nh = ops.split(b, ax0, 6).outputs()
    bias = ops.concat([ops.add(zi, zh), ops.add(ri, rh), ni, nh], 0)
    sequence = ops.gru_sequence(
        x,
        ops.unsqueeze(h, ax1),
        _lengths(x),
        reordered(w),
        reordered(r),
        ops.unsqueeze(bias, ax0),
        _hidden(h, r),
        "reverse" if context.get_values_from_const_input(5) else "forward",
        linear_before_reset=True,
    )
    y, last = sequence.outputs()
    return [ops.concat([ops.squeeze(y, ax1), last], 1).output(0)]


def _lengths(x: Any) -> Any:
    """The whole length, for every sequence of the batch."""
    from openvino import opset13 as ops

    shape, axis = ops.shape_of(x), ops.constant(0)
    length = ops.gather(shape, ops.constant([1]), axis)
    return ops.broadcast(length, ops.gather(shape, ops.constant([0]), axis))


def _hidden(h: Any, r: Any) -> int:
    for shape in (r.get_partial_shape(), h.get_partial_shape()):
        if shape.rank.is_static and shape[-1].is_static:
            return int(shape[-1].get_length())
    raise ValueError("the hidden size of a recurrent layer is not known")
