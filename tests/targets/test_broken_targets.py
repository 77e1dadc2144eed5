"""Every check of the conformance suite fails on a target that is broken in its way.

The suites are in broken/suites.py. They run once, in this process, where the models'
references are shared; each test reads the outcome of one of them.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

FOLDER = Path(__file__).with_name("broken")
NAMES = re.findall(r"^(?:class )?(Test\w+)", (FOLDER / "suites.py").read_text(), re.M)

# These start processes; of the targets that are tried on every check none is about them.
SLOW = (
    "capability_imports_nothing",
    "other_processes_write_the_same_bytes",
    "damaged_file_is_refused",
)


class Recorder:
    """A pytest plugin that selects the checks and keeps what came of them, by class and check."""

    def __init__(self) -> None:
        self.found: dict[str, dict[str, tuple[str, str]]] = {}
        self.classes: dict[str, Any] = {}

    def pytest_collection_modifyitems(self, items: list[Any]) -> None:
        for item in items:
            self.classes[item.cls.__name__] = item.cls
        items[:] = [item for item in items if self._selected(item)]

    @staticmethod
    def _selected(item: Any) -> bool:
        check = item.name.removeprefix("test_")
        asked = check in item.cls.red or check in item.cls.skipped
        return asked or (item.cls.whole and check not in SLOW)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when != "call" and report.passed:
            return
        _, suite, name = report.nodeid.split("::")
        check = name.removeprefix("test_")
        self.found.setdefault(suite, {})[check] = (report.outcome, str(report.longrepr))


@pytest.fixture(scope="module")
def recorded(replay_project, tmp_path_factory) -> Recorder:
    recorder = Recorder()
    settings = tmp_path_factory.mktemp("settings") / "pytest.ini"
    settings.write_text("[pytest]\n")
    with pytest.MonkeyPatch.context() as patch:
        for folder in (replay_project, FOLDER):
            patch.syspath_prepend(folder)
        pytest.main(
            [
                *("--noconftest", "-c", str(settings), "--import-mode=importlib"),
                *("-p", "no:cacheprovider", "-p", "no:terminal", str(FOLDER / "suites.py")),
            ],
            plugins=[recorder],
        )
    return recorder


@pytest.mark.parametrize("name", NAMES)
def test_the_checks_that_must_fail_do(recorded, name):
    found, suite = recorded.found[name], recorded.classes[name]
    failed = {check for check, (outcome, _) in found.items() if outcome == "failed"}
    assert failed == set(suite.red), {check: found[check] for check in failed ^ set(suite.red)}
    for check in failed:
        assert suite.says in found[check][1]


def test_failures_are_messages_without_a_traceback(recorded):
    for checks in recorded.found.values():
        for outcome, text in checks.values():
            assert outcome != "failed" or "Traceback" not in text
            assert outcome != "failed" or 'File "' not in text or "process" in text


def test_every_check_was_seen_to_fail(recorded):
    failed = {
        check.partition("[")[0]
        for checks in recorded.found.values()
        for check, (outcome, _) in checks.items()
        if outcome == "failed"
    }
    suite = recorded.classes["TestSound"]
    checks = {name.removeprefix("test_") for name in dir(suite) if name.startswith("test_")}
    assert checks == failed


def test_declared_limits_are_skips_that_give_their_reason(recorded):
    found, suite = recorded.found["TestModest"], recorded.classes["TestModest"]
    assert set(found) == set(suite.skipped)
    for check, reason in suite.skipped.items():
        outcome, text = found[check]
        assert outcome == "skipped"
        assert reason in text


def test_the_suite_without_pytest_says_how_to_get_it():
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        "from isomorph.errors import MissingRequirementError\n"
        "try:\n"
        "    from isomorph.targets.conformance import TargetConformance\n"
        "except MissingRequirementError as error:\n"
        "    print(error, [name for name in ('torch', '_pytest') if name in sys.modules])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "run: pip install pytest []" in done.stdout
