"""What a reader of ONNX files does not take, though ONNX has a form for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch.fx import Node

__all__ = ["PLAIN", "Dialect"]


def _nothing(_: Node) -> bool:
    return False


@dataclass(frozen=True)
class Dialect:
    """How the operators of a model are to be written.

    refuses: nodes that are rewritten where a rule knows how, although ONNX has a form for them.
    rules: rules of the reader's own, tried before the shared ones.
    fourier: write Fourier transforms as products with tables of cosines and sines.
    """

    refuses: Callable[[Node], bool] = _nothing
    rules: Mapping[Any, Any] = field(default_factory=dict)
    fourier: bool = False


PLAIN = Dialect()
"""ONNX as ONNX Runtime reads it."""
