"""The contract between a deployment format and the rest of Isomorph.

A target turns a `Graph` into files (`Artifact`) and opens them again
(`Session`). Validation sees a target only through its session.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from .evidence import Evidence, EvidenceKind

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..exporter.graph import Graph
    from ..exporter.signature import TensorSpec

__all__ = [
    "PRECISIONS",
    "Artifact",
    "Capability",
    "Evidence",
    "EvidenceKind",
    "Session",
    "Signature",
    "Target",
    "Unsupported",
]

PRECISIONS = ("fp32", "fp16", "bf16")
"""What `--precision` can be: the model's own arithmetic, or half precision of either kind."""


@dataclass(frozen=True)
class Capability:
    """What this machine can do with a target.

    `remedy` is the command that brings what lacks, `device_remedies` what brings
    a device that is not among `devices`. `package` is the distribution whose
    `version` counts. `note` is what one should know before
    choosing the format ("deprecated upstream"). `evaluates`: what runs here is an evaluator of
    ours, not the format's own runtime, so that no artifact is `executed` on this machine.
    `lacks` says why it does not build here, where that is no package.
    """

    installed: bool
    version: str | None
    builds: bool
    runs: bool
    devices: tuple[str, ...] = ()
    remedy: str | None = None
    device_remedies: Mapping[str, str] = field(default_factory=dict)
    note: str | None = None
    package: str | None = None
    evaluates: bool = False
    lacks: str | None = None


@dataclass(frozen=True)
class Unsupported:
    """An operator that the target cannot take, and where the user wrote it."""

    operator: str
    module: str
    location: str
    reason: str = ""

    def __str__(self) -> str:
        where = ", ".join(part for part in (self.module, self.location) if part)
        return (
            f"{self.operator}"
            + (f" ({where})" if where else "")
            + (f": {self.reason}" if self.reason else "")
        )


@dataclass(frozen=True)
class Artifact:
    """Files written by a target: `path` is what a user loads, `files` all of them.

    `hashes` may carry the SHA-256 (hex) of files that were hashed while they
    were written, keyed by path, so that nobody reads gigabytes twice. `settled` holds
    what options that were left open came to.
    """

    path: Path
    files: tuple[Path, ...]
    format: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    versions: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    hashes: Mapping[Path, str] = field(default_factory=dict)
    settled: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Signature:
    """What goes in and comes out of an artifact, in order, under the user's names.

    Formats that keep no names or bounds in their files take them from here.
    """

    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]


class Session(AbstractContextManager["Session"], Protocol):
    """A loaded artifact. `run` maps input names to arrays and returns outputs by name.

    numpy has no bfloat16: such values go in and come out as float32 (exact), and
    the spec's dtype says "bfloat16".

    A session that evaluates a file may have `readings`: names of the ways in which the format
    leaves a runtime free to compute. `run` then takes `reading=NAME`, and all of them must
    pass. Where it cannot tell what the runtime computes, `run` raises `UnverifiableError`.
    """

    @property
    def inputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def outputs(self) -> tuple[TensorSpec, ...]: ...

    @property
    def evidence(self) -> Evidence: ...

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]: ...


class Target(Protocol):
    """One deployment format.

    `suffix` is the artifact's file suffix, `extra` the pip extra that brings its
    packages, `options_type` a frozen dataclass whose fields are the `--set` keys.
    `precisions` are those of `--precision` that the format can hold, "fp32" first.
    A target whose `open` runs native code from the file has `native_code = True`; callers that
    did not write the file themselves ask the user for trust (`--trust`) before they open it.
    """

    name: str
    suffix: str
    extra: str
    options_type: type
    precisions: tuple[str, ...]

    def files(self, stem: str) -> tuple[str, ...]:
        """Every file name that an artifact called `stem` may consist of, `stem + suffix` first."""
        ...

    def capability(self) -> Capability:
        """What this machine can do; imports none of the target's packages."""
        ...

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators that the target cannot take, without converting."""
        ...

    def convert(self, graph: Graph, options: Any, directory: Path, stem: str) -> Artifact:
        """Write the artifact as `directory/stem + suffix` (and files beside it).

        `graph` may hold half-precision operators (see `exporter.precision`); its inputs and
        outputs keep the dtypes of the model. The graph is not changed. Finds by itself what
        `check` finds, before the slow part where it can.

        Raises:
            ConversionError: names each unsupported operator, its module path and line.
            OSError: the directory cannot be written; the caller tells the user which it was for.
        """
        ...

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> Session:
        """Load a written artifact on `device`.

        Args:
            artifact: the path that `convert` gave.
            device: one of `capability().devices`.
            signature: names and dims as the exporter knows them, for what the file does not
                hold; None: the file alone must do, with names like `input_0` where it has none.

        Raises:
            InputFileError: the file is missing, corrupt, or does not fit `signature`.
            MissingRequirementError: the runtime or the device is missing.
            ConversionError: the file is sound, but the runtime cannot run it.
        """
        ...
