"""Weights of a program in half precision: converted one by one, refused where they do not fit."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from ..errors import ConversionError
from .graph import placeholder_tensors

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["HalfWeights"]


class HalfWeights:
    """The float32 tensors of a copied program, by placeholder node.

    The program's mappings are replaced, so that those of the graph it was copied from stay.
    """

    def __init__(self, program: ExportedProgram, half: torch.dtype) -> None:
        from torch.export.graph_signature import InputKind

        self.notes: list[str] = []
        self._half = half
        self._limits = torch.finfo(half)
        program._state_dict = dict(program.state_dict)
        program._constants = dict(program.constants)
        self._program = program
        self._tensors = {
            name: tensor
            for name, tensor in placeholder_tensors(program).items()
            if tensor.dtype is torch.float32
        }
        self._targets: dict[str, str] = {}
        self._parameters: set[str] = set()
        for spec in program.graph_signature.input_specs:
            name = getattr(spec.arg, "name", None)
            if name in self._tensors and spec.target is not None:
                self._targets[name] = spec.target
                if spec.kind is InputKind.PARAMETER:
                    self._parameters.add(name)
        # Tied weights keep one storage.
        self._made: dict[Any, torch.Tensor] = {}

    def holds(self, node: Node) -> bool:
        """Whether a node stands for a float32 weight, buffer or constant."""
        return node.name in self._targets

    def is_matrix(self, node: Node) -> bool:
        """Whether it is worth storing in half even where float32 operators read it."""
        return node.name in self._parameters and self._tensors[node.name].dim() >= 2

    def is_out_of_range(self, node: Node) -> bool:
        """Whether a buffer or constant holds finite numbers that the half type does not."""
        if node.name not in self._targets or node.name in self._parameters:
            return False
        return _largest(self._tensors[node.name]) > self._limits.max

    def is_tiny_number(self, node: Node) -> bool:
        """Whether it is a single constant, such as an epsilon, that vanishes in the half type."""
        tensor = self._tensors.get(node.name)
        if tensor is None or tensor.numel() != 1:
            return False
        return 0 < abs(float(tensor.detach())) < self._limits.smallest_normal

    def convert(self, node: Node) -> None:
        """Replace the weight in the program by one of the half type.

        Raises:
            ConversionError: it overflows, or all of it rounds to zero.
        """
        target, tensor = self._targets[node.name], self._tensors[node.name]
        key = (tensor.data_ptr(), tensor.shape, tensor.stride())
        if key not in self._made:
            self._made[key] = self._converted(target, tensor)
        owner: Any = (
            self._program._state_dict
            if target in self._program.state_dict
            else self._program._constants
        )
        made = self._made[key]
        owner[target] = torch.nn.Parameter(made, False) if node.name in self._parameters else made

    def _converted(self, target: str, tensor: torch.Tensor) -> torch.Tensor:
        made = tensor.detach().to(self._half)
        kind = str(self._half).removeprefix("torch.")
        if not bool(made.isfinite().all()) and _largest(tensor) > self._limits.max:
            raise ConversionError(
                f"{target} holds {_largest(tensor):.3g}, beyond the {self._limits.max:g} that "
                f"{kind} can hold",
                hint="use --precision bf16, which has float32's range, or fp32",
            )
        if tensor.numel() and not bool(made.any()) and bool(tensor.any()):
            raise ConversionError(
                f"all of {target} is below the smallest {kind}: its largest value is "
                f"{_largest(tensor):.3g}",
                hint="use --precision bf16, which has float32's range, or fp32",
            )
        return made


def _largest(tensor: torch.Tensor) -> float:
    """Largest finite magnitude."""
    if not tensor.numel():
        return 0.0
    low, high = torch.aminmax(tensor.detach())
    if bool(low.isfinite()) and bool(high.isfinite()):
        return max(abs(float(low)), abs(float(high)))
    finite = tensor.detach()[tensor.detach().isfinite()]
    return float(finite.abs().max()) if finite.numel() else 0.0
