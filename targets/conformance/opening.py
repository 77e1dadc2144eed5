"""How files open, and what a session refuses."""

from __future__ import annotations

import json
import random
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ...errors import InputFileError, UsageError
from .running import example_arrays, run
from .subject import Converted, Subject, died, fail, first_line

__all__ = ["OpeningChecks"]

_WRONG_FEEDS = ("missing", "unknown", "dtype", "axes", "size")


class OpeningChecks:
    """Checks of `open`, and of a session's manners."""

    @pytest.mark.parametrize("wrong", _WRONG_FEEDS)
    def test_wrong_input_is_a_usage_error(self, subject: Subject, wrong: str) -> None:
        """A missing or unknown name, another dtype, rank or size."""
        found = subject.converted("conv")
        feed = _wrong_feed(example_arrays(found), wrong)
        with subject.open(found) as session:
            try:
                session.run(feed)
            except UsageError:
                return
            except Exception as error:  # noqa: BLE001 - a session may raise anything
                fail(
                    f"run() with a wrong input ({wrong}) raised {first_line(error)}: raise "
                    f"UsageError; targets.feed.checked_feed(inputs, self.inputs) does"
                )
        fail(
            f"run() takes a wrong input ({wrong}): compare names, dtypes and shapes with "
            f"targets.feed.checked_feed(inputs, self.inputs)"
        )

    def test_closed_session_refuses_to_run(self, subject: Subject) -> None:
        """`with` closes, closing twice is harmless, and running after it is a UsageError."""
        found = subject.converted("conv")
        session = subject.open(found)
        with session as entered:
            run(entered, example_arrays(found))
        try:
            session.run(example_arrays(found))
        except UsageError:
            pass
        except Exception as error:  # noqa: BLE001 - a session may raise anything
            fail(f"run() of a closed session raised {first_line(error)}: raise UsageError")
        else:
            fail("a session runs after `with` was left: release the model, then raise UsageError")
        try:
            session.__exit__(None, None, None)
        except Exception as error:  # noqa: BLE001 - a session may raise anything
            fail(f"closing a session twice raised {first_line(error)}")

    def test_unknown_device_is_a_usage_error(self, subject: Subject) -> None:
        """A device that no machine has."""
        found = subject.converted("conv")
        subject.demand_runs()
        try:
            subject.target.open(found.path, "abacus", found.signature)
        except UsageError as error:
            if subject.device not in str(error):
                fail(f"the UsageError for an unknown device does not name those there are: {error}")
            return
        except Exception as error:  # noqa: BLE001 - a target may raise anything
            fail(f"open() on the device 'abacus' raised {first_line(error)}: raise UsageError")
        fail("open() takes the device 'abacus': raise UsageError that lists the devices")

    def test_evidence_is_filled(self, subject: Subject) -> None:
        """Kind, runtime, version and device, as something that JSON can hold."""
        found = subject.converted("conv")
        with subject.open(found) as session:
            run(session, example_arrays(found))
            evidence = session.evidence
        if evidence.kind not in ("executed", "evaluated", "built"):
            fail(f"evidence.kind is {evidence.kind!r}: executed, evaluated or built")
        if evidence.kind == "built":
            fail("evidence.kind is 'built' though the session runs: it executed or evaluated")
        for name in ("runtime", "version", "device"):
            value = getattr(evidence, name)
            if not isinstance(value, str) or not value:
                fail(f"evidence.{name} is {value!r}: say which, 'unknown' where nobody knows")
        if evidence.device != subject.device:
            fail(f"evidence.device is {evidence.device!r}: the session is on {subject.device!r}")
        try:
            json.dumps(evidence.to_json(), allow_nan=False)
        except (TypeError, ValueError) as error:
            fail(f"evidence.details do not fit into JSON: {error}")

    def test_the_file_alone_opens(self, subject: Subject) -> None:
        """Without a Signature: the same dtypes and values, under names that may be made up."""
        found = subject.converted("outputs")
        given = example_arrays(found)
        with subject.open(found) as session:
            right = list(run(session, given).values())
        with subject.open(found, alone=True) as session:
            dtypes = [spec.dtype for spec in session.inputs]
            if dtypes != [spec.dtype for spec in found.graph.inputs]:
                fail(
                    f"opened without a Signature the inputs are {dtypes}: they are "
                    f"{[spec.dtype for spec in found.graph.inputs]}, in the graph's order"
                )
            names = [spec.name for spec in session.inputs]
            outputs = list(run(session, dict(zip(names, given.values(), strict=True))).values())
        same = len(outputs) == len(right) and all(
            value.dtype == other.dtype
            and value.shape == other.shape
            and np.allclose(value, other, rtol=1e-4, atol=1e-5)
            for value, other in zip(outputs, right, strict=True)
        )
        if not same:
            fail("opened without a Signature the outputs are others, or in another order")

    def test_file_that_is_none_is_refused(self, subject: Subject, tmp_path: Path) -> None:
        """Missing, a folder, empty: InputFileError, which says what is wrong."""
        found = subject.converted("conv")
        subject.demand_runs()
        folder = tmp_path / f"folder{subject.target.suffix}"
        folder.mkdir()
        empty = tmp_path / f"empty{subject.target.suffix}"
        empty.touch()
        absent = tmp_path / f"absent{subject.target.suffix}"
        for path, what in ((absent, "missing file"), (folder, "folder"), (empty, "empty file")):
            for signature in (found.signature, None):
                try:
                    subject.target.open(path, subject.device, signature)
                except InputFileError:
                    continue
                except Exception as error:  # noqa: BLE001 - a target may raise anything
                    fail(f"open() of a {what} raised {first_line(error)}: raise InputFileError")
                fail(f"open() takes a {what}: raise InputFileError")

    def test_damaged_file_is_refused(self, subject: Subject, tmp_path: Path) -> None:
        """Cut short at several lengths, or random bytes: InputFileError, no crash.

        In a process of its own, since native code may crash.
        """
        found = subject.converted("conv")
        subject.demand_runs()
        paths = _damaged(found, tmp_path)
        signature = {
            "inputs": [spec.to_json() for spec in found.artifact.inputs],
            "outputs": [spec.to_json() for spec in found.artifact.outputs],
        }
        task = {"do": "open", "paths": list(paths), "device": subject.device, **signature}
        reports = subject.elsewhere(task)
        seen = [report for report in reports if "path" in report]
        if death := died(reports):
            crashed = list(paths)[len(seen)] if len(seen) < len(paths) else "(at its end)"
            fail(
                f"open() of {paths.get(crashed, crashed)}: {death}\n"
                f"Compare lengths and checksums before native code reads the file"
            )
        wrong = [r for r in seen if r["error"] != "InputFileError"]
        if wrong:
            told = "\n".join(
                f"  {paths[r['path']]}: "
                + (f"{r['error']}: {r['message']}" if r["error"] else "opened")
                for r in wrong
            )
            fail(f"open() of damaged files must raise InputFileError, but:\n{told}")


def _wrong_feed(feed: dict[str, Any], wrong: str) -> Mapping[str, Any]:
    name, value = next(iter(feed.items()))
    if wrong == "missing":
        return {}
    if wrong == "unknown":
        return {**feed, "no_such_input": value}
    if wrong == "dtype":
        return {**feed, name: value.astype(np.float64)}
    if wrong == "axes":
        return {**feed, name: value[0]}
    return {**feed, name: value[:, :, 1:]}


def _damaged(found: Converted, folder: Path) -> dict[str, str]:
    """Paths to open, each with what was done to it. A package's files are damaged one at a time."""
    files = sorted(p.relative_to(found.folder) for p in found.folder.rglob("*") if p.is_file())
    paths: dict[str, str] = {}
    for file in files:
        content = (found.folder / file).read_bytes()
        size = len(content)
        noise = random.Random(0).randbytes(size)
        damages = {f"cut to {n} of {size} bytes": content[:n] for n in _lengths(size)}
        damages[f"{size} random bytes"] = noise
        for index, (what, damaged) in enumerate(damages.items()):
            place = folder / f"{len(paths)}-{index}"
            shutil.copytree(found.folder, place)
            (place / file).write_bytes(damaged)
            paths[str(place / found.path.name)] = f"{file} {what}"
    return paths


def _lengths(size: int) -> list[int]:
    return sorted({4, 16, size // 10, size // 2, size * 9 // 10, size - 16} & set(range(1, size)))
