"""How large a fault is: how far it moves the float64 values, in floors."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from isomorph.validation.expected import Reference
from isomorph.validation.judging import Finding
from isomorph.validation.verdict import EXTREME_KINDS
from numpy.typing import NDArray

from .exact import Model

__all__ = ["Yardstick"]

Arrays = Mapping[str, NDArray[Any]]


class Yardstick:
    """The correct file's float64 values on every case of usual values, and the floors there.

    Args:
        data: the correct file.
        reference: of the model.
        findings: of judging the correct file; they hold the floors.
        inputs: by case.
    """

    def __init__(
        self,
        data: bytes,
        reference: Reference,
        findings: Sequence[Finding],
        inputs: Mapping[str, Arrays],
    ) -> None:
        self._model = Model(data)
        self._reference = reference
        self._inputs = inputs
        self._values = {name: self._model.run(arrays) for name, arrays in inputs.items()}
        self._floors = {
            (f.case.key, f.output): f.floor
            for f in findings
            if f.floor is not None
            and f.case.name == f.case.key
            and f.case.kind not in EXTREME_KINDS
        }
        self._usual = {c.name for c in reference.cases if c.kind not in EXTREME_KINDS}

    def gap(self) -> float:
        """How far the evaluator is from Isomorph's truth at most, in floors: it must be small."""
        worst = 0.0
        for (case, output), floor in self._floors.items():
            mine = self._values[case][output].numpy()
            truth = self._reference.expected[case][output].truth
            worst = max(worst, _ratio(mine, truth, floor.peak, floor.rms))
        return worst

    def size(self, data: bytes) -> tuple[float, str]:
        """Size of the fault in a file, and the case where it is largest.

        Raises:
            Exception: the file cannot be evaluated, such as for shapes that do not fit.
        """
        model = Model(data)
        worst, where = 0.0, ""
        for name in self._usual:
            clean = self._values[name]
            found = model.run(self._inputs[name], self._model, clean)
            for output in self._model.outputs:
                moved = self._moved(name, output, clean[output].numpy(), found[output].numpy())
                if moved > worst:
                    worst, where = moved, name
        return worst, where

    def _moved(self, case: str, output: str, was: NDArray[Any], now: NDArray[Any]) -> float:
        if was.shape != now.shape or was.dtype != now.dtype:
            return math.inf
        expected = self._reference.expected[case][output]
        if expected.unstable is not None:
            return math.inf if bool(np.any((was != now) & ~expected.unstable)) else 0.0
        floor = self._floors.get((case, output))
        return 0.0 if floor is None else _ratio(now, was, floor.peak, floor.rms)


def _ratio(value: NDArray[Any], truth: NDArray[Any], peak: float, rms: float) -> float:
    finite = np.isfinite(truth)
    if not np.array_equal(finite, np.isfinite(value)):
        return math.inf
    error = np.abs(value[finite] - truth[finite])
    if not error.size:
        return 0.0
    return float(max(error.max() / peak, math.sqrt(float(np.mean(error**2))) / rms))
