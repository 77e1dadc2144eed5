"""Matrix products and what is built on them."""

from __future__ import annotations

from collections.abc import Callable

import torch

from .call import Call, Operator
from .widening import require_floats, widened

__all__ = ["OPERATORS"]

_MATRIX_OPERATIONS = {"NONE": "NONE", "TRANSPOSE": "TRANSPOSE", "VECTOR": "VECTOR"}


def _matrix_multiply(call: Call) -> torch.Tensor:
    """Products of collections of matrices or vectors, sizes of 1 standing for any."""
    first, second = call.tensor(0), call.tensor(1)
    require_floats(call, first, second)
    left = call.choice("op0", _MATRIX_OPERATIONS)
    right = call.choice("op1", _MATRIX_OPERATIONS)
    first = first.unsqueeze(-2) if left == "VECTOR" else first
    second = second.unsqueeze(-1) if right == "VECTOR" else second
    first = first.transpose(-1, -2) if left == "TRANSPOSE" else first
    second = second.transpose(-1, -2) if right == "TRANSPOSE" else second
    if all(size == 1 for size in second.shape[:-2]):
        second = second.reshape(second.shape[-2:])  # one matrix for all: a single product is faster
    result = torch.matmul(first, second)
    result = result.squeeze(-1) if right == "VECTOR" else result
    if left == "VECTOR":
        result = result.squeeze(-1 if right == "VECTOR" else -2)
    return result


def _einsum(call: Call) -> torch.Tensor:
    """Einstein's summation as numpy writes it.

    The layer's documentation gives the meaning of an ellipsis and of a repeated label, then says
    that TensorRT has neither. The builder takes an ellipsis (1.7, and infers its shape); a
    diagonal is refused.
    """
    equation = str(call.value("equation")).replace(" ", "")
    operands = [call.tensor(index) for index in range(len(call.inputs))]
    require_floats(call, *operands)
    labels = [term.replace(".", "") for term in equation.split("->")[0].split(",")]
    if any(len(set(term)) != len(term) for term in labels):
        call.refuse("a diagonal")
    return torch.einsum(equation, *operands)


def _rotary_embedding(call: Call) -> torch.Tensor:
    """Rotates pairs of elements of [B, N, S, H] by angles given as cosines and sines.

    The transformer guide of TensorRT gives the shapes: the caches are [B, S, R/2], or with the
    positions of input 3 [positions, R/2], R being the rotated part of H, all of it for 0.
    Pairs are neighbours where interleaved, else an element of each half, as in ONNX.
    """
    value, cosine, sine = call.tensor(0), call.tensor(1), call.tensor(2)
    require_floats(call, value, cosine, sine)
    if value.dim() != 4:
        call.refuse(f"an input of rank {value.dim()}")
    positions = call.optional(3)
    if positions is not None:
        if positions.numel() and not 0 <= int(positions.min()) <= int(positions.max()) < len(sine):
            call.refuse("a position outside the caches")
        cosine, sine = cosine[positions.long()], sine[positions.long()]
    size = call.integer("rotary_embedding_dim") or value.shape[-1]
    rotated, rest = value[..., :size], value[..., size:]
    if size % 2 or cosine.shape[-1] != size // 2 or cosine.dim() != 3:
        call.refuse(f"caches of shape {list(cosine.shape)} for {size} elements")
    cosine, sine = cosine.unsqueeze(1), sine.unsqueeze(1)
    if call.flag("interleaved"):
        real, imaginary = rotated[..., 0::2], rotated[..., 1::2]
    else:
        real, imaginary = rotated.chunk(2, -1)
    parts = (real * cosine - imaginary * sine, real * sine + imaginary * cosine)
    if call.flag("interleaved"):
        turned = torch.stack(parts, -1).flatten(-2)
    else:
        turned = torch.cat(parts, -1)
    return torch.cat([turned, rest], -1)


def _attention(call: Call) -> torch.Tensor:
    """norm(query * key^T + mask) * value of [B, heads, tokens, size]; the scale is the caller's.

    The operator page: a mask of bool is True where a position may attend, any other is added.
    """
    query, key, value = (call.tensor(index) for index in range(3))
    require_floats(call, query, key, value)
    _require_plain_attention(call)
    if query.dim() != 4 or query.shape[1] % max(key.shape[1], 1):
        call.refuse(f"queries of {list(query.shape)} and keys of {list(key.shape)}")
    share = query.shape[1] // max(key.shape[1], 1)
    key, value = key.repeat_interleave(share, 1), value.repeat_interleave(share, 1)
    scores = query @ key.transpose(-1, -2)
    allowed = call.choice("causal_kind", _CAUSAL)(*scores.shape[-2:])
    mask = call.optional(3)
    if (None if mask is None else call.layer.inputs[3]) != call.value("mask"):
        call.refuse("inputs in another order")
    if mask is not None and mask.dtype == torch.bool:
        allowed = allowed & mask
    elif mask is not None:
        scores = scores + mask
    norm = call.choice("norm_op", {"SOFTMAX": True, "NONE": False})
    if not norm:
        if not bool(allowed.all()):
            call.refuse("a mask without a softmax")
        return scores @ value
    scores = scores.masked_fill(~allowed, -torch.inf)
    if bool((scores == -torch.inf).all(-1).any()):
        call.refuse("a query that may attend to nothing")
    return torch.softmax(scores, -1) @ value


# Which keys j a query i may attend to, by CausalMaskKind.
_CAUSAL: dict[str, Callable[[int, int], torch.Tensor]] = {
    "NONE": lambda queries, keys: torch.ones(queries, keys, dtype=torch.bool),
    "UPPER_LEFT": lambda queries, keys: torch.ones(queries, keys, dtype=torch.bool).tril(),
    "LOWER_RIGHT": lambda queries, keys: torch.ones(queries, keys, dtype=torch.bool).tril(
        keys - queries
    ),
}


def _require_plain_attention(call: Call) -> None:
    """Refuse packed layouts, lengths, a quantised softmax and several devices."""
    for name in ("query_form", "key_value_form"):
        call.choice(name, {"PADDED_BHND": None})
    for name in ("query_lengths", "key_value_lengths", "normalization_quantize_scale"):
        if call.value(name) is not None:
            call.refuse(f"an attention with {name}")
    if call.integer("num_ranks") != 1:
        call.refuse("an attention on several devices")
    # "causal" is the older name of a causal_kind, "decomposable" a permission to the builder.
    call.ignore("causal", "decomposable", "normalization_quantize_to_type")


def _attention_output(call: Call) -> torch.Tensor:
    """The other end of an attention: its input layer has read the same attributes."""
    call.ignore(*call.unread)
    return call.tensor()


OPERATORS: dict[str, Operator] = {
    "ATTENTION_INPUT": widened(_attention),
    "ATTENTION_OUTPUT": _attention_output,
    "MATRIX_MULTIPLY": widened(_matrix_multiply),
    "EINSUM": widened(_einsum),
    "ROTARY_EMBEDDING": widened(_rotary_embedding),
}
