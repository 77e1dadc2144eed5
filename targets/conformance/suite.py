"""The class that a target's tests derive from: declared limits, and every check."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import pytest

from .conversion import ConversionChecks
from .declaration import DeclarationChecks
from .opening import OpeningChecks
from .running import RunningChecks
from .subject import Subject, fail, limit

__all__ = ["TargetConformance"]

_subjects: dict[type, Subject] = {}


class TargetConformance(DeclarationChecks, ConversionChecks, RunningChecks, OpeningChecks):
    """Derive a class whose name begins with `Test`, and pytest runs every check on your target.

    target: the format's registered name, or a class that follows `targets.base.Target` and
        takes no arguments (it is also looked up by other processes).
    options: values for the target's options.
    device: where sessions run; one of `capability().devices`.

    What a format cannot do is declared, and shows as a skip with its reason:

    dynamic: False if it has no dynamic dims. Then a dynamic graph must be refused with
        ConversionError, and the models are tried with fixed sizes.
    lacks: models of `conformance.models.MODELS` that it cannot express, each with the reason;
        `convert` must refuse them with ConversionError.
    unrun: precisions that the format holds but the runtime does not run on `device`, each with
        the reason; `open` must refuse their files with ConversionError.
    waived: checks that are not made, by name without `test_` (one case of a check: with its
        brackets), each with the reason. Say it in the target's documents too.
    """

    target: ClassVar[Any] = None
    options: ClassVar[Mapping[str, Any]] = {}
    device: ClassVar[str] = "cpu"
    dynamic: ClassVar[bool] = True
    lacks: ClassVar[Mapping[str, str]] = {}
    unrun: ClassVar[Mapping[str, str]] = {}
    waived: ClassVar[Mapping[str, str]] = {}

    @pytest.fixture(autouse=True)
    def _waive(self, request: pytest.FixtureRequest) -> None:
        for name in (request.node.originalname, request.node.name):
            check = name.removeprefix("test_")
            if check in self.waived:
                limit(f"waived by {type(self).__name__}: {check}: {self.waived[check]}")

    @pytest.fixture
    def subject(self, tmp_path_factory: pytest.TempPathFactory) -> Subject:
        """The target that is tried; made once per class, since conversions are slow."""
        kind = type(self)
        if self.target is None:
            fail(f'{kind.__name__} names no target: write target = "NAME" in it')
        if kind not in _subjects:
            folder = tmp_path_factory.mktemp(kind.__name__)
            _subjects[kind] = Subject(
                self.target,
                self.options,
                self.dynamic,
                self.lacks,
                self.unrun,
                self.device,
                folder,
            )
        return _subjects[kind]

    def test_limits_are_declared_by_known_names(self) -> None:
        """A misspelt limit would hide nothing, and mislead whoever reads it."""
        from .models import MODELS

        checks = {name.removeprefix("test_") for name in dir(self) if name.startswith("test_")}
        for kind, declared, known in (
            ("lacks", self.lacks, set(MODELS)),
            ("unrun", self.unrun, {"fp16", "bf16"}),
            ("waived", {name.partition("[")[0]: r for name, r in self.waived.items()}, checks),
        ):
            if unknown := sorted(set(declared) - known):
                fail(f"{kind} names {', '.join(unknown)}; known are {', '.join(sorted(known))}")
            if empty := [name for name, reason in declared.items() if not str(reason).strip()]:
                fail(f"{kind} gives no reason for {', '.join(empty)}")
