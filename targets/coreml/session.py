"""A written package, computed by the evaluator."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import UsageError
from ..base import Evidence, Signature
from ..closing import Closing
from ..feed import checked_feed

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["CoreMlSession"]

_ACCUMULATE = {"float16 sums": torch.float16, "float32 sums": torch.float32}


class CoreMlSession(Closing):
    """An `.mlpackage` read back from disk and evaluated."""

    def __init__(self, path: Path, device: str = "cpu", signature: Signature | None = None) -> None:
        from .evaluate.package import read_package

        self._package: Any = read_package(path)
        if signature is None:
            raise UsageError("a signature is needed")
        self.inputs = signature.inputs
        self.outputs = signature.outputs
        self.readings = tuple(_ACCUMULATE)
        self.evidence = Evidence("evaluated", "isomorph", "0", device)

    def run(
        self, inputs: Mapping[str, NDArray[Any]], reading: str = "float32 sums"
    ) -> dict[str, NDArray[Any]]:
        """Outputs by name."""
        from .evaluate.interpreter import run_function

        feed = checked_feed(inputs, self.inputs)
        given = {name: torch.from_numpy(array) for name, array in feed.items()}
        function = self._package.program.functions["main"]
        found = run_function(function, given, _ACCUMULATE[reading])
        return {
            spec.name: value.numpy()
            for spec, value in zip(self.outputs, found.values(), strict=True)
        }

    def close(self) -> None:
        self._package = None
