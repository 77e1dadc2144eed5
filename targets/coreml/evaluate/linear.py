"""Matrix products: linear, matmul, einsum, attention."""

from __future__ import annotations

import math
import string

import torch

from .call import Call, Operator
from .elementwise import FLOATS, INT32, NUMBERS, of_dtype
from .sums import product, total
from .types import STORAGE

__all__ = ["OPERATORS"]

_IOS17 = 7
# Letters numbered by their first appearance: "nchw,nwhu->nchu" and "chw,whr->chr".
_RANK4 = ([0, 1, 2, 3], [0, 3, 2, 4], [0, 1, 2, 4])
_RANK3 = ([0, 1, 2], [2, 1, 3], [0, 1, 3])


def _multiplied(call: Call, x: torch.Tensor, y: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """`x @ y` in float32, or in int32 where the result is."""
    if dtype != torch.int32:
        return product(x, y, call.accumulate, dtype)
    if (x.double().abs() @ y.double().abs()).gt(INT32.max).any():
        call.refuse("sums of integers that may leave int32")
    # What fits int32 is exact in float64, and torch multiplies it faster than integers.
    return (x.double() @ y.double()).int()


def _alike(call: Call, x: torch.Tensor, y: torch.Tensor, since: int = _IOS17) -> None:
    """Two float dtypes may meet since iOS 17, where one side is a constant."""
    if x.dtype != y.dtype and (call.opset < since or torch.int32 in (x.dtype, y.dtype)):
        call.refuse("factors of different dtypes")


def _linear(call: Call) -> torch.Tensor:
    x, weight = of_dtype(call, "x", NUMBERS), of_dtype(call, "weight", NUMBERS)
    bias = call.optional_tensor("bias")
    _alike(call, x, weight)
    if weight.dim() != 2 or not x.dim() or x.shape[-1] != weight.shape[1]:
        raise call.damaged(f"x of {list(x.shape)} and weight of {list(weight.shape)}")
    # Ranks of 1 to 3 are documented, but Apple's own converter writes higher ones, as from
    # nn.Linear in Swin and ConvNeXt; "x * weight.T" leaves no choice of what they mean.
    found = _multiplied(call, x, weight.t(), x.dtype)
    if bias is None:
        return found.to(x.dtype)
    _alike(call, x, bias)
    if bias.shape != weight.shape[:1]:
        raise call.damaged(f"bias of {list(bias.shape)} and weight of {list(weight.shape)}")
    if x.dtype != torch.int32:
        return (found + bias.float()).to(x.dtype)
    wide = found.long() + bias
    if wide.numel() and (int(wide.min()) < INT32.min or int(wide.max()) > INT32.max):
        call.refuse("sums of integers that may leave int32")
    return wide.int()


def _matmul(call: Call) -> torch.Tensor:
    x, y = of_dtype(call, "x", NUMBERS), of_dtype(call, "y", NUMBERS)
    flip_x, flip_y = call.flag("transpose_x", False), call.flag("transpose_y", False)
    _alike(call, x, y)
    # Of two dtypes the result has that of the factor that is no constant; the file declares it.
    dtype = x.dtype if x.dtype == y.dtype else STORAGE.get(call.result_dtype())
    if dtype not in (x.dtype, y.dtype):
        raise call.damaged(f"its result is declared {call.result_dtype()}")
    if not x.dim() or not y.dim():
        raise call.damaged("a factor is a scalar")
    # Transposing has no effect on a vector.
    row, column = x.dim() == 1, y.dim() == 1
    left = x.unsqueeze(0) if row else x.mT if flip_x else x
    right = y.unsqueeze(-1) if column else y.mT if flip_y else y
    if left.shape[-1] != right.shape[-2]:
        raise call.damaged(f"{list(left.shape)} by {list(right.shape)}")
    found = _multiplied(call, left, right, dtype).to(dtype)
    if row:
        found = found.squeeze(-2)
    return found.squeeze(-1) if column else found


def _einsum(call: Call) -> torch.Tensor:
    values = call.values("values")
    equation = call.text("equation")
    if len(values) != 2 or not all(isinstance(value, torch.Tensor) for value in values):
        raise call.damaged("values are not two tensors")
    x, y = values
    if x.dtype != y.dtype or x.dtype not in FLOATS:
        call.refuse("factors of other dtypes than documented")
    form = _numbered(equation)
    if form not in (_RANK4, _RANK3):
        call.refuse(f"the equation {equation!r}")
    if not x.dim() == y.dim() == len(form[0]):
        raise call.damaged(f"factors of rank {x.dim()} and {y.dim()} in {equation!r}")
    if x.shape[-1] != y.shape[-3]:
        raise call.damaged(f"{list(x.shape)} and {list(y.shape)} in {equation!r}")
    # The axis -2 of both joins the batch, in which sizes of 1 broadcast.
    found = product(x.transpose(-2, -3), y.transpose(-2, -3), call.accumulate)
    return found.transpose(-2, -3).to(x.dtype)


def _numbered(equation: str) -> tuple[list[int], ...]:
    """`chw,whr->chr` as ([0, 1, 2], [2, 1, 3], [0, 1, 3]); () if it has no such form."""
    terms, arrow, result = equation.partition("->")
    parts = [*terms.split(","), result]
    letters = dict.fromkeys("".join(parts))
    if not arrow or len(parts) != 3 or not set(letters) <= set(string.ascii_letters):
        return ()
    numbers = {letter: number for number, letter in enumerate(letters)}
    return tuple([numbers[letter] for letter in part] for part in parts)


def _attention(call: Call) -> torch.Tensor:
    query, key, value = (of_dtype(call, name, FLOATS) for name in ("query", "key", "value"))
    mask = call.optional_tensor("attn_mask")
    if not query.dtype == key.dtype == value.dtype:
        call.refuse("query, key and value of different dtypes")
    if (
        not query.dim() == key.dim() == value.dim() >= 3
        or not query.shape[:-2] == key.shape[:-2] == value.shape[:-2]
        or query.shape[-1] != key.shape[-1]
        or key.shape[-2] != value.shape[-2]
    ):
        shapes = ", ".join(str(list(item.shape)) for item in (query, key, value))
        raise call.damaged(f"query, key and value are of {shapes}")
    # Nothing says where float16 is rounded within: nowhere if sums are kept in float32, and
    # after every step if they are not.
    half = query.dtype == call.accumulate == torch.float16

    def step(found: torch.Tensor) -> torch.Tensor:
        return found.half().float() if half else found

    score = step(product(query, key.mT, call.accumulate) / math.sqrt(query.shape[-1]))
    if mask is not None:
        score = step(score + _added(call, mask, score))
    if not score.numel():
        return torch.zeros(*query.shape[:-1], value.shape[-1], dtype=query.dtype)
    top = score.amax(-1, keepdim=True)
    if bool((top == -math.inf).any()):
        call.refuse("a query that may attend to nothing")
    weight = step(torch.exp(score - top))
    weight = step(weight / total(weight, [-1], call.accumulate if half else torch.float32, True))
    return product(weight, value, call.accumulate, query.dtype).to(query.dtype)


def _added(call: Call, mask: torch.Tensor, score: torch.Tensor) -> torch.Tensor:
    """What the mask adds to the scores; it must broadcast to them."""
    if mask.dtype not in (torch.bool, *FLOATS):
        call.refuse(f"a mask of {str(mask.dtype).removeprefix('torch.')}")
    if torch.broadcast_shapes(mask.shape, score.shape) != score.shape:
        raise call.damaged(f"a mask of {list(mask.shape)} on scores of {list(score.shape)}")
    if mask.dtype != torch.bool:
        return mask.float()
    return torch.zeros(mask.shape).masked_fill(~mask, -math.inf)


OPERATORS: dict[str, Operator] = {
    "einsum": _einsum,
    "linear": _linear,
    "matmul": _matmul,
    "scaled_dot_product_attention": _attention,
}
