"""What `check` and `convert` do: refuse by name, write what was told, the same bytes each time."""

from __future__ import annotations

import os
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

from ...errors import ConversionError
from ..base import Artifact, Unsupported
from .subject import STEM, Converted, Subject, died, fail, first_line, limit

__all__ = ["ConversionChecks"]

# The model whose bytes are compared: it has most kinds of operators and constants.
_COMPARED = "transformer"


class ConversionChecks:
    """Checks of the way from a graph to files."""

    def test_check_names_an_unknown_operator(self, subject: Subject, tmp_path: Path) -> None:
        """`check` finds what `convert` would refuse: operator, module path and line."""
        from .models import made_up

        subject.demand_builds()
        graph, line = made_up(tmp_path)
        try:
            reports = subject.target.check(graph)
        except Exception as error:  # noqa: BLE001 - a target may raise anything
            fail(f"check() raised {first_line(error)}: it returns a list of Unsupported")
        if not isinstance(reports, list) or not all(isinstance(r, Unsupported) for r in reports):
            fail(f"check() returned {reports!r}: it returns a list of Unsupported")
        texts = [str(report) for report in reports]
        if not any("made_up" in text for text in texts):
            fail(
                f"check() found {texts or 'nothing'} in a model that calls the made-up operator "
                f"isomorph_conformance::made_up: compare each node's target with the operators "
                f"that the installed converter knows"
            )
        named = [r for r in reports if "made_up" in r.operator]
        if len(reports) != 1:
            fail(f"check() also objects to ordinary operators: {texts}")
        if (named[0].module, named[0].location) != ("inner", line):
            fail(
                f"check() puts the made-up operator at module {named[0].module!r}, line "
                f"{named[0].location!r}: it is called in 'inner' at {line}. "
                f"targets.unsupported.unsupported(node) makes an Unsupported from a node"
            )

    def test_convert_refuses_an_unknown_operator(self, subject: Subject, tmp_path: Path) -> None:
        """ConversionError (exit code 4) with operator, module and line, and nothing written."""
        from .models import made_up

        subject.demand_builds()
        graph, line = made_up(tmp_path)
        folder = tmp_path / "out"
        folder.mkdir()
        try:
            subject.target.convert(graph, subject.build_options(), folder, STEM)
        except ConversionError as error:
            message = str(error)
        except Exception as error:  # noqa: BLE001 - a target may raise anything
            fail(
                f"convert() of a made-up operator raised {first_line(error)}: raise "
                f"ConversionError; errors of libraries never reach the user raw"
            )
        else:
            fail(
                "convert() wrote a model with a made-up operator, which no runtime has: "
                "raise ConversionError for what check() finds"
            )
        if lacking := [part for part in ("made_up", "inner", line) if part not in message]:
            fail(
                f"the ConversionError lacks {lacking}: {message!r}\n"
                f"targets.unsupported.cannot_express words it from what check() finds"
            )
        if left := _names(folder):
            fail(f"convert() failed and left {left} behind: write once everything is known")

    def test_convert_writes_what_it_declares(self, subject: Subject) -> None:
        """The files of the Artifact, and no others, all of them named by `files(stem)`."""
        found = subject.converted("conv")
        artifact, target = found.artifact, subject.target
        if not isinstance(artifact, Artifact):
            fail(f"convert() returned {type(artifact).__name__}: return an Artifact")
        if artifact.path.name != f"{STEM}{target.suffix}":
            fail(f"the artifact is {artifact.path.name}: it must be {STEM}{target.suffix}")
        if artifact.format != target.name:
            fail(f"Artifact.format is {artifact.format!r}: it is the target's name, {target.name}")
        present, told = set(_names(found.folder)), {path.name for path in artifact.files}
        allowed = set(target.files(STEM))
        if present != told:
            fail(f"convert() wrote {sorted(present)}, Artifact.files says {sorted(told)}")
        if more := told - allowed:
            fail(f"convert() wrote {sorted(more)}, which files({STEM!r}) does not name")
        for path, digest in artifact.hashes.items():
            from ...hashing import sha256_of

            if sha256_of(found.folder / path.name) != digest:
                fail(f"Artifact.hashes has a wrong SHA-256 for {path.name}")

    def test_convert_leaves_the_graph_as_it_was(self, subject: Subject) -> None:
        """Other targets get the same graph: `graph.fingerprint()` is unchanged."""
        for model in ("conv", "transformer", "mutation"):
            if model in subject.lacks:
                continue
            before, after = subject.converted(model).fingerprints
            if before != after:
                fail(
                    f"convert() changed the graph of {model!r}: work on graph.copy_program() or "
                    f"exporter.flattening.flat_program(graph), and never write to a weight"
                )

    def test_files_tell_nothing_of_this_machine(self, subject: Subject) -> None:
        """No home, temporary or working folder in an artifact's bytes."""
        found = subject.converted("conv")
        made = str(found.artifact.path.parent)
        for name, content in _contents(found):
            for secret in dict.fromkeys((made, *_machine_paths())):
                if secret.encode() in content or secret.encode("utf-16-le") in content:
                    fail(
                        f"{name} holds the path {secret}: artifacts must not tell where they "
                        f"were made (source locations, debug strings, temporary names)"
                    )

    def test_converting_again_gives_the_same_bytes(self, subject: Subject) -> None:
        """Twice in one process: no counter, time stamp or random name in the files."""
        first = subject.converted(_COMPARED)
        again = subject.convert(_COMPARED, place="-again")
        if difference := _difference(first.folder, again.folder):
            fail(
                f"converting the same graph twice in a process gives other bytes: {difference}\n"
                f"Look for counters in names, time stamps, random ids"
            )

    def test_other_processes_write_the_same_bytes(self, subject: Subject) -> None:
        """Two fresh processes with other hash seeds, in other folders: no order of a set."""
        first = subject.converted(_COMPARED)
        for seed in ("1", "2"):
            folder = subject.folder / f"seed-{seed}"
            folder.mkdir()
            reports = subject.elsewhere(
                {
                    "do": "convert",
                    "model": _COMPARED,
                    "precision": "fp32",
                    "dynamic": subject.dynamic,
                    "options": subject.options,
                    "directory": str(folder),
                    "stem": STEM,
                },
                PYTHONHASHSEED=seed,
            )
            if death := died(reports):
                fail(f"convert() in a fresh process: {death}")
            if difference := _difference(first.folder, folder):
                fail(
                    f"a process with PYTHONHASHSEED={seed} writes other bytes: {difference}\n"
                    f"Look for iteration over sets, hash(), id(), time stamps, folder names"
                )

    def test_dynamic_dims_are_taken_or_refused(self, subject: Subject) -> None:
        """`dynamic = False` is a promise: a dynamic graph is refused, with the choices."""
        subject.demand_builds()
        if subject.dynamic:
            subject.converted("sizes")
            return
        try:
            subject.convert("sizes")
        except ConversionError as error:
            if not error.hint:
                fail(
                    f"the ConversionError for a dynamic dim has no hint: name the choices "
                    f"(a fixed size, another format): {error.message!r}"
                )
            if not any(name in str(error) for name in ("batch", "time")):
                fail(f"the ConversionError does not name the dim (batch or time): {error}")
        except Exception as error:  # noqa: BLE001 - a target may raise anything
            fail(f"a dynamic dim raised {first_line(error)}: raise ConversionError")
        else:
            fail(
                "the test class declares dynamic = False, but a graph with dynamic dims "
                "converts: refuse it with ConversionError, or drop the declaration"
            )
        limit("declared limit, refused as declared: dynamic = False")


def _names(folder: Path) -> list[str]:
    """Files below `folder`; a folder that is an artifact (a package) counts by its name."""
    return sorted(path.name for path in folder.iterdir())


def _tree(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def _contents(found: Converted) -> Iterator[tuple[str, bytes]]:
    """Every file's bytes, and those of each member where it is a zip archive."""
    for name, content in _tree(found.folder).items():
        yield name, content
        if zipfile.is_zipfile(found.folder / name):
            with zipfile.ZipFile(found.folder / name) as archive:
                for member in archive.namelist():
                    yield f"{name}:{member}", archive.read(member)


def _machine_paths() -> Iterator[str]:
    for path in (Path.home(), Path.cwd(), Path(tempfile.gettempdir())):
        if path != Path(path.anchor):
            yield str(path) + os.sep


def _difference(first: Path, second: Path) -> str:
    """What differs between two folders, in words; empty if nothing does."""
    ours, theirs = _tree(first), _tree(second)
    if ours.keys() != theirs.keys():
        return f"{sorted(ours)} against {sorted(theirs)}"
    for name, content in ours.items():
        other = theirs[name]
        if content != other:
            shorter = min(len(content), len(other))
            at = next((i for i in range(shorter) if content[i] != other[i]), shorter)
            around = slice(max(at - 20, 0), at + 20)
            return (
                f"{name} ({len(content)} and {len(other)} bytes) from byte {at}: "
                f"{content[around]!r} against {other[around]!r}"
            )
    return ""
