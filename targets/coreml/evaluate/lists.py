"""Lists of tensors, which grow where they may."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .call import Call, Operator
from .types import STORAGE

__all__ = ["OPERATORS", "TensorList"]

_LONGEST = 2**20
"""Elements of the longest list that is made: a damaged file must not take all memory."""


class TensorList(list[torch.Tensor | None]):
    """Elements of one dtype and shape (a size is None where it is free); None is never written."""

    def __init__(
        self,
        elements: Iterable[torch.Tensor | None],
        dtype: torch.dtype,
        shape: tuple[int | None, ...],
        grows: bool,
    ) -> None:
        super().__init__(elements)
        self.dtype, self.shape, self.grows = dtype, shape, grows

    def copied(self) -> TensorList:
        """Another list of the same elements, for a value that is written once."""
        return TensorList(self, self.dtype, self.shape, self.grows)


def _make_list(call: Call) -> TensorList:
    length = call.integer("init_length", 1)
    dtype = call.text("dtype", "fp32", ("bool", "fp16", "fp32", "int32"))
    sizes = call.values("elem_shape") if call.has("elem_shape") else ()
    shape = tuple(None if isinstance(size, str) else int(size) for size in sizes)
    if length < 0 or any(size is not None and size < 0 for size in shape):
        raise call.damaged(f"a list of {length} elements of {list(shape)}")
    if length > _LONGEST:
        call.refuse(f"a list of {length} elements is longer than this evaluator makes")
    return TensorList([None] * length, STORAGE[dtype], shape, call.flag("dynamic_length", True))


def _list(call: Call) -> TensorList:
    found = call.value("ls")
    if not isinstance(found, TensorList):
        raise call.damaged("ls is no list")
    return found


def _list_length(call: Call) -> torch.Tensor:
    return torch.tensor(len(_list(call)), dtype=torch.int32)


def _list_read(call: Call) -> torch.Tensor:
    return _element(call, _list(call), call.integer("index"))


def _element(call: Call, ls: TensorList, index: int) -> torch.Tensor:
    if not 0 <= index < len(ls):
        call.refuse(f"element {index} of a list of {len(ls)}")
    found = ls[index]
    if found is None:
        call.refuse(f"element {index}, which was never written")
    return found


def _list_write(call: Call) -> TensorList:
    ls = _list(call).copied()
    _store(call, ls, call.integer("index"), call.tensor("value"))
    return ls


def _store(call: Call, ls: TensorList, index: int, value: torch.Tensor) -> None:
    """Write one element; one directly behind the last makes a list longer that may grow."""
    fits = len(value.shape) == len(ls.shape) and all(
        want in (None, size) for want, size in zip(ls.shape, value.shape, strict=True)
    )
    if value.dtype != ls.dtype or not fits:
        raise call.damaged(
            f"an element of {value.dtype}{list(value.shape)} in a list of {ls.dtype}{ls.shape}"
        )
    if index == len(ls) and ls.grows:
        ls.append(value)
        return
    if not 0 <= index < len(ls):
        call.refuse(f"writing element {index} of a list of {len(ls)}")
    ls[index] = value


def _list_gather(call: Call) -> torch.Tensor:
    ls, indices = _list(call), call.integers("indices")
    if not indices:
        call.refuse("no indices")
    return torch.stack([_element(call, ls, index) for index in indices])


def _list_scatter(call: Call) -> TensorList:
    ls, indices, values = _list(call).copied(), call.integers("indices"), call.tensor("value")
    if values.dim() == 0 or values.shape[0] != len(indices):
        raise call.damaged(f"a value of {list(values.shape)} for {len(indices)} indices")
    if len(set(indices)) != len(indices):
        call.refuse("one index twice")
    for index, value in sorted(zip(indices, values, strict=True), key=lambda pair: pair[0]):
        _store(call, ls, index, value)
    return ls


OPERATORS: dict[str, Operator] = {
    "make_list": _make_list,
    "list_length": _list_length,
    "list_read": _list_read,
    "list_write": _list_write,
    "list_gather": _list_gather,
    "list_scatter": _list_scatter,
}
