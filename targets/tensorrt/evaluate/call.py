"""One layer at the moment it is computed: its inputs and attributes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, TypeVar

import torch

from ....errors import ConversionError, UnverifiableError
from .network import Layer
from .weights import RawWeights

__all__ = ["Call", "Operator", "refuse", "torch_dtype"]

Operator = Callable[["Call"], Any]
"""Computes one layer: a tensor, or a tuple of one tensor per output."""

_T = TypeVar("_T")


class Call:
    """Inputs and attributes of one layer.

    A function reads every attribute that its layer has: `unread` names those that it left, and
    the interpreter refuses them, so that a property of a later TensorRT cannot be ignored.
    """

    def __init__(self, layer: Layer, inputs: Sequence[torch.Tensor | None]) -> None:
        self.layer = layer
        self.kind = layer.kind
        self.name = layer.name
        self.inputs = tuple(inputs)
        self._read: set[str] = set()

    def tensor(self, index: int = 0) -> torch.Tensor:
        """An input that must be there."""
        found = self.optional(index)
        if found is None:
            raise self.contradiction(f"input {index} is missing")
        return found

    def optional(self, index: int) -> torch.Tensor | None:
        """An input, None where it is not set."""
        return self.inputs[index] if index < len(self.inputs) else None

    def integers_of(self, index: int) -> list[int]:
        """The numbers in an integer input tensor of rank 0 or 1 (a shape tensor)."""
        return [int(item) for item in self.tensor(index).reshape(-1).tolist()]

    def used(self, index: int) -> bool:
        """Whether a layer or the network's border reads an output."""
        return self.layer.outputs[index].name not in self.layer.unused

    def value(self, name: str) -> Any:
        """An attribute as it was read from the network."""
        self._read.add(name)
        if name not in self.layer.attributes:
            raise self.contradiction(f"the attribute {name} is missing")
        return self.layer.attributes[name]

    def ignore(self, *names: str) -> None:
        """Attributes that do not change the result, or have no meaning beside those given."""
        self._read.update(names)

    def weights(self, name: str) -> torch.Tensor | None:
        """Weights of one axis, a view that must not be written to; None where they are not set.

        Raises:
            UnverifiableError: they are of a dtype that torch does not compute with.
        """
        found = self.value(name)
        if found is None:
            return None
        if isinstance(found, RawWeights):
            bits = torch.from_numpy(found.bits)
            return bits.view(torch_dtype(found.dtype, self)) if bits.numel() else None
        if not hasattr(found, "ctypes"):
            self.refuse(f"{name} is of a dtype that cannot be read")
        return torch.from_numpy(found) if found.size else None

    def integer(self, name: str) -> int:
        return int(self.value(name))

    def number(self, name: str) -> float:
        return float(self.value(name))

    def flag(self, name: str) -> bool:
        return bool(self.value(name))

    def integers(self, name: str) -> list[int]:
        """A list of integers that must be set (a `Dims`)."""
        found = self.value(name)
        if found is None:
            raise self.contradiction(f"the attribute {name} is not set")
        return [int(item) for item in found]

    def axes(self, name: str = "axes") -> list[int]:
        """Axes of a bit mask, ascending."""
        mask = self.integer(name)
        return [axis for axis in range(mask.bit_length()) if mask >> axis & 1]

    def choice(self, name: str, choices: Mapping[str, _T]) -> _T:
        """What stands for the name of an enum's member; one that is not listed is refused."""
        found = self.value(name)
        if found not in choices:
            self.refuse(f"{name} {found} is not implemented")
        return choices[found]

    def result_dtype(self, index: int = 0) -> torch.dtype:
        """The dtype that the network declares for an output."""
        return torch_dtype(self.layer.outputs[index].dtype, self)

    def result_shape(self, index: int = 0) -> tuple[int, ...] | None:
        """The declared shape of an output, -1 for sizes that are not known while building."""
        return self.layer.outputs[index].shape

    @property
    def unread(self) -> list[str]:
        return sorted(set(self.layer.attributes) - self._read)

    def refuse(self, edge: str) -> NoReturn:
        """Stop: it is not known what TensorRT computes here.

        Raises:
            UnverifiableError: always; the verdict is then "unverified", naming the layer.
        """
        refuse(self.layer, edge)

    def contradiction(self, what: str) -> ConversionError:
        """The network contradicts itself, or what it was given."""
        return ConversionError(
            f"the network contradicts itself in {self.kind} ({self.name}): {what}",
            hint="please report this; another opset (--set opset=...) may avoid it",
        )


def refuse(layer: Layer, edge: str) -> NoReturn:
    """See `Call.refuse`."""
    where = f", of {layer.source}" if layer.source else ""
    raise UnverifiableError(
        f"the evaluator does not know what TensorRT computes for {layer.kind} "
        f"({layer.name}{where}): {edge}",
        hint="check the engine on its GPU: isomorph validate ENGINE --device cuda",
    )


# What torch computes with or converts; others that it names have no operators.
_COMPUTED = {
    *("float32", "float16", "bfloat16", "float8_e4m3fn"),
    *("int8", "uint8", "int32", "int64", "bool"),
}


def torch_dtype(name: str, call: Call) -> torch.dtype:
    """torch's dtype of that name; one that torch does not compute with is refused."""
    if name not in _COMPUTED:
        call.refuse(f"it is of {name}")
    found: torch.dtype = getattr(torch, name)
    return found
