"""Layers whose result depends on where an index points."""

from __future__ import annotations

import torch

from .call import Call, Operator

__all__ = ["OPERATORS"]


def _gather(call: Call) -> torch.Tensor:
    """GatherMode: as ONNX gathers, in whose operators a negative index counts from the end.

    The operator page of Gather has indices from 0 on only. But the parser, which once rewrote
    negative ones, passes them on, and the builder infers sizes by counting from the end.
    """
    value, indices = call.tensor(), call.tensor(1).long()
    modes = {"DEFAULT": _gather_default, "ELEMENT": _gather_element, "ND": _gather_nd}
    return call.choice("mode", modes)(call, value, indices)


def _gather_default(call: Call, value: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Indices stand in for the axis; axes handled elementwise are walked together."""
    axis, shared = _axis(call, value.dim()), call.integer("num_elementwise_dims")
    indices = _from_start(call, indices, value.shape[axis])
    if shared == 0:
        flat = value.index_select(axis, indices.reshape(-1))
        return flat.reshape([*value.shape[:axis], *indices.shape, *value.shape[axis + 1 :]])
    if shared != 1 or axis == 0 or indices.dim() == 0:
        call.refuse(f"{shared} elementwise axes and the axis {axis}")
    count = max(value.shape[0], indices.shape[0]) if 0 not in (len(value), len(indices)) else 0
    if not count or not {len(value), len(indices)} <= {1, count}:
        call.refuse(f"{len(value)} and {len(indices)} slices handled elementwise")
    value, indices = (
        value.expand(count, *value.shape[1:]),
        indices.expand(count, *indices.shape[1:]),
    )
    rows = [
        each.index_select(axis - 1, where.reshape(-1))
        for each, where in zip(value, indices, strict=True)
    ]
    sizes = [*value.shape[:axis], *indices.shape[1:], *value.shape[axis + 1 :]]
    return torch.stack(rows).reshape(sizes)


def _gather_element(call: Call, value: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    axis = _axis(call, value.dim())
    _require_no_shared(call)
    return value.gather(axis, _from_start(call, indices, value.shape[axis]))


def _gather_nd(call: Call, value: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """The last axis of indices holds places in the axes behind those handled elementwise."""
    call.ignore("axis")  # it is of the other modes
    shared = call.integer("num_elementwise_dims")
    if not 0 <= shared < min(value.dim(), indices.dim()):
        call.refuse(f"{shared} elementwise axes of {value.dim()} and {indices.dim()}")
    if value.shape[:shared] != indices.shape[:shared]:
        call.refuse("elementwise axes of several sizes")
    sizes = value.shape[shared : shared + indices.shape[-1]]
    if len(sizes) != indices.shape[-1]:
        raise call.contradiction(f"tuples of {indices.shape[-1]} in a rank of {value.dim()}")
    indices = torch.where(indices < 0, indices + torch.tensor(sizes, dtype=torch.int64), indices)
    return value[_places(call, value, indices, shared)]


def _places(
    call: Call, value: torch.Tensor, indices: torch.Tensor, shared: int
) -> tuple[torch.Tensor, ...]:
    """Places along the first axes of `value`, for each tuple in the last axis of `indices`."""
    depth = indices.shape[-1]
    if depth + shared > value.dim() or depth == 0:
        call.refuse(f"tuples of {depth} in a rank of {value.dim()}")
    walked = [
        torch.arange(size).reshape([-1 if i == axis else 1 for i in range(indices.dim() - 1)])
        for axis, size in enumerate(indices.shape[:shared])
    ]
    pointed = list(indices.unbind(-1))
    for along, size in zip(pointed, value.shape[shared:], strict=False):
        _require_inside(call, along, size)
    return (*walked, *pointed)


def _scatter(call: Call) -> torch.Tensor:
    """A copy of the data with updates at the places that indices name.

    Two different updates of one place are refused: which of them stays is not documented.
    """
    value, indices, updates = call.tensor(), call.tensor(1).long(), call.tensor(2)
    if updates.dtype != value.dtype:
        raise call.contradiction(f"updates of {updates.dtype} of a tensor of {value.dtype}")
    modes = {"ELEMENT": _scatter_element, "ND": _scatter_nd}
    return call.choice("mode", modes)(call, value, indices, updates)


def _scatter_element(
    call: Call, value: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor
) -> torch.Tensor:
    axis = _axis(call, value.dim())
    _require_inside(call, indices, value.shape[axis])
    if indices.shape != updates.shape:
        raise call.contradiction(f"{list(indices.shape)} indices of {list(updates.shape)} updates")
    result = value.scatter(axis, indices, updates)
    _require_kept(call, result.gather(axis, indices), updates)
    return result


def _scatter_nd(
    call: Call, value: torch.Tensor, indices: torch.Tensor, updates: torch.Tensor
) -> torch.Tensor:
    call.ignore("axis")  # documented to be ignored
    places = _places(call, value, indices, 0)
    if list(updates.shape) != [*indices.shape[:-1], *value.shape[indices.shape[-1] :]]:
        raise call.contradiction(f"{list(indices.shape)} indices of {list(updates.shape)} updates")
    result = value.index_put(places, updates)
    _require_kept(call, result[places], updates)
    return result


def _require_kept(call: Call, found: torch.Tensor, updates: torch.Tensor) -> None:
    same = found == updates
    if updates.is_floating_point():
        same = same | found.isnan() & updates.isnan()
    if not bool(same.all()):
        call.refuse("two updates of one place")


def _axis(call: Call, rank: int) -> int:
    axis = call.integer("axis")
    if not 0 <= axis < rank:
        call.refuse(f"axis {axis} of a rank of {rank}")
    return axis


def _require_no_shared(call: Call) -> None:
    if call.integer("num_elementwise_dims"):
        raise call.contradiction("elementwise axes in the mode ELEMENT")


def _require_inside(call: Call, indices: torch.Tensor, size: int) -> None:
    if indices.numel() and not 0 <= int(indices.min()) <= int(indices.max()) < size:
        call.refuse(f"indices from {int(indices.min())} to {int(indices.max())} of {size} elements")


def _from_start(call: Call, indices: torch.Tensor, size: int) -> torch.Tensor:
    found = torch.where(indices < 0, indices + size, indices)
    _require_inside(call, found, size)
    return found


def _one_hot(call: Call) -> torch.Tensor:
    """`values` is [off, on]; the axis of the classes is one of the result's."""
    indices, values, depth = call.tensor().long(), call.tensor(1), call.tensor(2)
    axis, rank = call.integer("axis"), indices.dim() + 1
    if not -rank <= axis < rank or depth.numel() != 1 or list(values.shape) != [2]:
        call.refuse(f"axis {axis} of a rank of {rank}, or {list(values.shape)} values")
    count = int(depth)
    _require_inside(call, indices, count)
    classes = torch.arange(count).reshape([-1 if i == axis % rank else 1 for i in range(rank)])
    return torch.where(indices.unsqueeze(axis % rank) == classes, values[1], values[0])


def _non_zero(call: Call) -> torch.Tensor:
    """[rank, count] places in row-major order."""
    if call.value("indices_type") != call.layer.outputs[0].dtype:
        raise call.contradiction("indices_type is not the dtype of its result")
    return call.tensor().nonzero().T.to(call.result_dtype())


def _reverse_sequence(call: Call) -> torch.Tensor:
    """Of each slice along the batch, the first N elements of the sequence backwards."""
    value, lengths = call.tensor(), call.tensor(1)
    batch, sequence = call.integer("batch_axis"), call.integer("sequence_axis")
    rank = value.dim()
    if not 0 <= batch < rank or not 0 <= sequence < rank or batch == sequence:
        call.refuse(f"the batch along {batch} and the sequence along {sequence} of {rank} axes")
    if list(lengths.shape) != [value.shape[batch]]:
        raise call.contradiction(f"{list(lengths.shape)} lengths of {value.shape[batch]} slices")
    _require_inside(call, lengths, value.shape[sequence] + 1)
    places = torch.arange(value.shape[sequence]).reshape(1, -1)
    ends = lengths.long().reshape(-1, 1)
    turned = torch.where(places < ends, ends - 1 - places, places)
    turned = turned if batch < sequence else turned.T
    sizes = [size if axis in (batch, sequence) else 1 for axis, size in enumerate(value.shape)]
    return value.gather(sequence, turned.reshape(sizes).expand(value.shape))


OPERATORS: dict[str, Operator] = {
    "GATHER": _gather,
    "NON_ZERO": _non_zero,
    "ONE_HOT": _one_hot,
    "REVERSE_SEQUENCE": _reverse_sequence,
    "SCATTER": _scatter,
}
