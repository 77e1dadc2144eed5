"""Layers that make and rearrange tensors without arithmetic."""

from __future__ import annotations

from math import prod

import torch

from .call import Call, Operator

__all__ = ["OPERATORS"]


def _constant(call: Call) -> torch.Tensor:
    shape = call.integers("shape")
    weights = call.weights("weights")
    if weights is None:
        return torch.empty(shape, dtype=call.result_dtype())
    return weights.reshape(shape)


def _shape(call: Call) -> torch.Tensor:
    return torch.tensor(list(call.tensor().shape), dtype=call.result_dtype())


def _shuffle(call: Call) -> torch.Tensor:
    """A transpose, a reshape and a second transpose.

    Sizes come from input 1 where there is one.
    """
    value = call.tensor()
    first = call.integers("first_transpose")[: value.dim()]
    turned = _permuted(call, value, first)
    if call.optional(1) is not None:
        call.ignore("reshape_dims")
        sizes: list[int] | None = call.integers_of(1)
    else:
        given = call.value("reshape_dims")
        sizes = None if given is None else [int(size) for size in given]
    if call.flag("zero_is_placeholder") and sizes is not None:
        sizes = [
            _copied(call, turned, axis) if size == 0 else size for axis, size in enumerate(sizes)
        ]
    shaped = turned if sizes is None else turned.reshape(_inferred(call, turned, sizes))
    return _permuted(call, shaped, call.integers("second_transpose")[: shaped.dim()])


def _permuted(call: Call, value: torch.Tensor, order: list[int]) -> torch.Tensor:
    """Axis i of the result is axis order[i]: [1, 2, 0] makes HWC of CHW."""
    if sorted(order) != list(range(value.dim())):
        raise call.contradiction(f"{order} does not permute {value.dim()} axes")
    return value if order == sorted(order) else value.permute(order)


def _copied(call: Call, turned: torch.Tensor, axis: int) -> int:
    """What 0 copies: a size of the transposed input, as the shapes that TensorRT infers show."""
    if axis >= turned.dim():
        raise call.contradiction(f"it copies size {axis} of {turned.dim()}")
    return turned.shape[axis]


def _inferred(call: Call, value: torch.Tensor, sizes: list[int]) -> list[int]:
    """-1 is the size that keeps the number of elements."""
    if -1 not in sizes:
        return sizes
    rest = prod(size for size in sizes if size != -1)
    if sizes.count(-1) > 1 or rest == 0:
        call.refuse(f"sizes {sizes} that leave open what -1 is")
    return [value.numel() // rest if size == -1 else size for size in sizes]


def _squeeze(call: Call) -> torch.Tensor:
    value = call.tensor()
    if call.optional(1) is None:
        return _without_ones(call, value)
    axes = _distinct(call, call.integers_of(1), value.dim())
    if any(value.shape[axis] != 1 for axis in axes):
        raise call.contradiction(f"it squeezes axes {axes} of {list(value.shape)}")
    return value.reshape([size for i, size in enumerate(value.shape) if i not in axes])


def _without_ones(call: Call, value: torch.Tensor) -> torch.Tensor:
    """Without axes: those whose size the network declares to be 1 go, and no other may be 1."""
    kept = [size for size in value.shape if size != 1]
    declared = call.result_shape()
    if declared is not None and len(declared) != len(kept):
        call.refuse("a free size without an axis list comes to 1")
    return value.reshape(kept)


def _unsqueeze(call: Call) -> torch.Tensor:
    value = call.tensor()
    given = call.integers_of(1)
    rank = value.dim() + len(given)
    axes = _distinct(call, given, rank)
    sizes = iter(value.shape)
    return value.reshape([1 if axis in axes else next(sizes) for axis in range(rank)])


def _distinct(call: Call, axes: list[int], rank: int) -> set[int]:
    """Axes from -rank to rank - 1, each once."""
    found = {axis % rank for axis in axes if -rank <= axis < rank}
    if len(found) != len(axes):
        raise call.contradiction(f"axes {axes} of a rank of {rank}")
    return found


def _concatenation(call: Call) -> torch.Tensor:
    axis = call.integer("axis")
    values = [call.tensor(index) for index in range(len(call.inputs))]
    # torch takes an empty vector beside any rank.
    if any(value.dim() != values[0].dim() for value in values):
        raise call.contradiction("its inputs differ in rank")
    if not 0 <= axis < values[0].dim():
        call.refuse(f"axis {axis} of a rank of {values[0].dim()}")
    if len({value.dtype for value in values}) != 1:
        call.refuse("inputs of several dtypes")
    return torch.cat(values, axis)


def _select(call: Call) -> torch.Tensor:
    """Sizes of 1 stand for any; the ranks are the same."""
    condition, true, false = (call.tensor(index) for index in range(3))
    if condition.dtype != torch.bool or true.dtype != false.dtype:
        call.refuse(f"a choice by {condition.dtype} between {true.dtype} and {false.dtype}")
    if not condition.dim() == true.dim() == false.dim():
        raise call.contradiction("its inputs differ in rank")
    return torch.where(condition, true, false)


def _fill(call: Call) -> torch.Tensor:
    """LINSPACE: alpha + the sum of beta[i] * index[i]; beta of an attribute is for one axis.

    Random numbers cannot be compared.
    """
    call.choice("operation", {"LINSPACE": None})
    if call.value("to_type") != call.layer.outputs[0].dtype:
        raise call.contradiction("to_type is not the dtype of its result")
    dtype = call.result_dtype()
    if dtype not in (torch.int32, torch.int64, torch.float32):
        call.refuse(f"a range of {dtype}")
    if call.optional(0) is not None:
        call.ignore("shape")
        shape = call.integers_of(0)
    else:
        shape = call.integers("shape")
    call.ignore("is_alpha_beta_int64")  # it tells which getter the bindings read
    alpha = _operand(call, 1, "alpha", dtype)
    beta = _operand(call, 2, "beta", dtype).reshape(-1)
    if alpha.numel() != 1 or beta.numel() != len(shape):
        call.refuse(f"a range of {beta.numel()} steps along {len(shape)} axes")
    result = alpha.reshape([1] * len(shape)).expand(shape)
    for axis, size in enumerate(shape):
        steps = torch.arange(size, dtype=dtype) * beta[axis]
        result = result + steps.reshape([-1 if i == axis else 1 for i in range(len(shape))])
    return result


def _operand(call: Call, index: int, name: str, dtype: torch.dtype) -> torch.Tensor:
    found = call.optional(index)
    if found is None:
        number = call.value(name)
        if not dtype.is_floating_point and number != int(number):
            call.refuse(f"{name} of {number} for a range of {dtype}")
        return torch.tensor(number, dtype=dtype)
    call.ignore(name)
    if found.dtype == dtype:
        return found
    # The parser gives int64 numbers to ranges of int32.
    if found.dtype != torch.int64 or dtype != torch.int32 or bool((found != found.to(dtype)).any()):
        call.refuse(f"{name} of {found.dtype} for a range of {dtype}")
    return found.to(dtype)


def _assertion(call: Call) -> tuple[torch.Tensor, ...]:
    message = call.value("message")
    if not bool(call.tensor().all()):
        raise call.contradiction(f"its assertion fails: {message}")
    return ()


OPERATORS: dict[str, Operator] = {
    "ASSERTION": _assertion,
    "CONCATENATION": _concatenation,
    # What a branch reads of what is around it.
    "CONDITIONAL_INPUT": lambda call: call.tensor(),
    "CONSTANT": _constant,
    "FILL": _fill,
    "SELECT": _select,
    "SHAPE": _shape,
    "SHUFFLE": _shuffle,
    "SQUEEZE": _squeeze,
    "UNSQUEEZE": _unsqueeze,
}
