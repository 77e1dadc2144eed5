"""A written engine, run on the GPU."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..base import Evidence, Signature
from ..closing import Closing
from .products import Product

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ...exporter.signature import TensorSpec

__all__ = ["EngineSession"]


class EngineSession(Closing):
    """An engine of `product`, deserialised on the first GPU."""

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    evidence: Evidence

    def __init__(self, product: Product, path: Path, signature: Signature | None) -> None:
        raise NotImplementedError

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for `inputs` by name."""
        raise NotImplementedError

    def close(self) -> None:
        """Release the engine and its memory."""
        raise NotImplementedError
