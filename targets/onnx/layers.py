"""Attention and plain recurrent layers as ONNX operators.

Attention: torch gives zeros for a row that is masked entirely, whether the mask
is boolean or adds -inf; torchlib's translation averages or gives NaN.
https://pytorch.org/docs/stable/generated/torch.nn.functional.scaled_dot_product_attention.html

Recurrent: torchlib has LSTM and GRU; for the plain RNN torch's decomposition
unrolls the time axis, which fixes its length.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

__all__ = ["attention", "recurrent"]

_BOOL = 9  # onnx.TensorProto.DataType


def attention(
    query: Any,
    key: Any,
    value: Any,
    attn_mask: Any = None,
    dropout_p: float = 0.0,
    is_causal: bool = False,
    scale: float | None = None,
    enable_gqa: bool = False,
) -> Any:
    """Attention of `query` [..., L, E] on `key` [..., S, E], `value` [..., S, V]: [..., L, V]."""
    from onnxscript import opset18 as op

    factor = 1 / math.sqrt(query.shape[-1]) if scale is None else scale
    axes = list(range(len(key.shape)))
    if enable_gqa:
        key, value = (_repeated_heads(item, query.shape[-3]) for item in (key, value))
    turned = op.Transpose(key, perm=[*axes[:-2], axes[-1], axes[-2]])
    scores = op.MatMul(op.Mul(query, _scalar(factor, query)), turned)
    if attn_mask is None and not is_causal:
        return op.MatMul(op.Softmax(scores, axis=-1), value)
    lowest = _scalar(-math.inf, query)
    added = attn_mask
    if is_causal or int(attn_mask.dtype) == _BOOL:
        allowed = _causal_mask(query, key) if is_causal else attn_mask
        added = op.Where(allowed, _scalar(0.0, query), lowest)
    attended = op.MatMul(op.Softmax(op.Add(scores, added), axis=-1), value)
    if is_causal:
        return attended
    last = op.Constant(value_ints=[-1])
    open_rows = op.Greater(op.ReduceMax(added, last, keepdims=1), lowest)
    return op.Where(open_rows, attended, _scalar(0.0, query))


def _scalar(number: float, like: Any) -> Any:
    from onnxscript import opset18 as op

    return op.CastLike(op.Constant(value_float=number), like)


def _causal_mask(query: Any, key: Any) -> Any:
    """[L, S], true on and below the diagonal."""
    from onnxscript import opset18 as op

    rows, columns = op.Shape(query, start=-2, end=-1), op.Shape(key, start=-2, end=-1)
    ones = op.Expand(op.Constant(value_float=1.0), op.Concat(rows, columns, axis=0))
    return op.Cast(op.Trilu(ones, upper=0), to=_BOOL)


def _repeated_heads(value: Any, heads: int) -> Any:
    """[..., H, S, E] with each head repeated until there are `heads`."""
    from onnxscript import opset18 as op

    batch = [0] * (len(value.shape) - 3)
    times = heads // value.shape[-3]
    split = op.Unsqueeze(value, op.Constant(value_ints=[-3]))
    repeats = [1] * (len(batch) + 1) + [times, 1, 1]
    repeated = op.Expand(split, op.Constant(value_ints=repeats))
    shape = [*batch, heads, -1, int(value.shape[-1])]
    return op.Reshape(repeated, op.Constant(value_ints=shape))


def recurrent(activation: str) -> Callable[..., Any]:
    """The translation of `rnn_tanh` or `rnn_relu`; the time axis may be dynamic."""

    def translate(
        data: Any,
        hx: Any,
        params: Any,
        has_biases: bool,
        num_layers: int,
        dropout: float,
        train: bool,
        bidirectional: bool,
        batch_first: bool,
    ) -> Any:
        from onnxscript import opset18 as op

        directions = 2 if bidirectional else 1
        count = (4 if has_biases else 2) * directions
        value = op.Transpose(data, perm=[1, 0, 2]) if batch_first else data
        finals = []
        for layer in range(num_layers):
            weights = params[layer * count : (layer + 1) * count]
            step = 4 if has_biases else 2
            inner, outer = weights[0::step], weights[1::step]
            bias = None
            if has_biases:
                rows = [
                    op.Concat(a, b, axis=0)
                    for a, b in zip(weights[2::4], weights[3::4], strict=True)
                ]
                bias = _stacked(rows)
            start = op.Slice(
                hx,
                op.Constant(value_ints=[layer * directions]),
                op.Constant(value_ints=[(layer + 1) * directions]),
                op.Constant(value_ints=[0]),
            )
            states, final = op.RNN(
                value,
                _stacked(inner),
                _stacked(outer),
                bias,
                None,
                start,
                activations=[activation] * directions,
                direction="bidirectional" if bidirectional else "forward",
                hidden_size=int(hx.shape[-1]),
            )
            # [time, direction, batch, hidden] to [time, batch, direction * hidden]
            joined = op.Transpose(states, perm=[0, 2, 1, 3])
            value = op.Reshape(joined, op.Constant(value_ints=[0, 0, -1]))
            finals.append(final)
        output = op.Transpose(value, perm=[1, 0, 2]) if batch_first else value
        return output, finals[0] if len(finals) == 1 else op.Concat(*finals, axis=0)

    return translate


def _stacked(items: Any) -> Any:
    from onnxscript import opset18 as op

    rows = [op.Unsqueeze(item, op.Constant(value_ints=[0])) for item in items]
    return rows[0] if len(rows) == 1 else op.Concat(*rows, axis=0)
