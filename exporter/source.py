"""From what the user gives (a path or a module, and words about inputs) to a captured graph."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..errors import InputFileError, UsageError
from ..hashing import sha256_of
from ..progress import Progress, Silent
from .signature import DynamicRequest, InputRequest, parse_dynamic_entry, parse_input

if TYPE_CHECKING:
    import torch

    from .capture import Capture
    from .checkpoint import LoadedModel
    from .examples import ExampleCall

__all__ = ["Fingerprint", "Request", "Source", "in_eval_mode", "open_source", "sample_entries"]

_TENSOR_FILES = (".npz", ".safetensors", ".pt", ".pth")


@dataclass(frozen=True)
class Request:
    """How to load a source and what its inputs are, as the user wrote it.

    `inputs` is a mapping of example tensors, a tensor file, or a sequence of
    `--input` texts among which one tensor file may stand. `dynamic` maps
    "NAME.AXIS" to "DIM[:MIN..MAX[:STEP]]".
    """

    model: str | None = None
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] | None = None
    inputs: Mapping[str, Any] | Sequence[str | Path] | str | Path | None = None
    dynamic: Mapping[str, str] | None = None
    trust: bool = False
    allow: tuple[str, ...] = ()

    def input_texts(self) -> tuple[str, ...]:
        """The `--input` texts among `inputs`."""
        return tuple(e for e in self._entries() if isinstance(e, str) and not _is_file(e))

    def input_files(self) -> tuple[Path, ...]:
        """The tensor files among `inputs`."""
        return tuple(Path(e) for e in self._entries() if _is_file(e))

    def _entries(self) -> tuple[str | Path, ...]:
        if self.inputs is None or isinstance(self.inputs, Mapping):
            return ()
        if isinstance(self.inputs, (str, Path)):
            return (self.inputs,)
        return tuple(self.inputs)

    def dynamic_requests(self) -> list[DynamicRequest]:
        """Parsed dynamic axes."""
        return [parse_dynamic_entry(k, v) for k, v in (self.dynamic or {}).items()]


def _is_file(entry: str | Path) -> bool:
    return isinstance(entry, Path) or str(entry).endswith(_TENSOR_FILES)


@dataclass(frozen=True)
class Source:
    """A loaded model and its graph. `fingerprint` is None for a module that is no file."""

    path: Path | None
    module: torch.nn.Module
    capture: Capture
    fingerprint: Fingerprint | None
    notes: tuple[str, ...]


class Fingerprint:
    """SHA-256 of a file, computed beside other work (hashing leaves the interpreter's lock)."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._state = _state(path)
        self._digest: str | None = None
        self._error: OSError | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to hash in the background."""
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            if self._path.is_file():
                self._digest = sha256_of(self._path)
        except OSError as error:
            self._error = error

    def demand_unchanged(self) -> None:
        """Weights are read from the mapped file as they are needed: it must stay as it is.

        Raises:
            InputFileError: the file was written to since.
        """
        if _state(self._path) != self._state:
            raise InputFileError(
                f"{self._path} was changed while it was being read",
                hint="export from a copy, or once the training has finished writing",
            )

    def hexdigest(self) -> str:
        """The digest, once it is there."""
        if self._thread is None:
            self._run()
        else:
            self._thread.join()
        if self._error is not None or self._digest is None:
            raise self._error or OSError("the file was not hashed")
        return self._digest


def sample_entries(data: Any) -> list[Any]:
    """The files and mappings of `data`, which may also be one of them, or None."""
    if data is None:
        return []
    return [data] if isinstance(data, (Mapping, str, Path)) else list(data)


@contextmanager
def in_eval_mode(source: str | Path | torch.nn.Module) -> Iterator[tuple[str, ...]]:
    """Put a caller's module in eval mode for a while; each part's own flag comes back.

    Yields:
        A note if that changes what the module computes.
    """
    parts = list(source.modules()) if hasattr(source, "modules") else []
    flags = [part.training for part in parts]
    notes: tuple[str, ...] = ()
    if not isinstance(source, (str, Path)) and parts:
        from .training_mode import training_notes

        notes = training_notes(source)
        source.eval()
    try:
        yield notes
    finally:
        for part, flag in zip(parts, flags, strict=True):
            part.training = flag


def _state(path: Path) -> tuple[int, int, int] | None:
    """What changes when a file is written to: identity, size, time of the last change."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_size, found.st_mtime_ns


def open_source(
    source: str | Path | torch.nn.Module,
    request: Request,
    progress: Progress | None = None,
    *,
    hashed: bool = True,
) -> Source:
    """Load (if a path), make an example call, capture. A module must be `in_eval_mode`.

    `hashed` says that the file's digest will be asked for, so that it is begun at once.

    Raises:
        InputFileError: the file is refused or unreadable.
        UsageError: bad `--model`, `--input` or `--dynamic`.
        ConversionError: the model cannot be captured.
    """
    progress = progress or Silent()
    dynamic = request.dynamic_requests()
    requests = [parse_input(text) for text in request.input_texts()]
    if not isinstance(source, (str, Path)):
        return _open_module(source, request, requests, dynamic, progress)
    path = Path(source)
    fingerprint = Fingerprint(path)
    if hashed:  # before torch is imported: hashing takes the other core
        fingerprint.start()
    with progress.stage("load"):
        from .checkpoint import load_checkpoint

        loaded = load_checkpoint(
            path, model=request.model, allow=request.allow, trust=request.trust
        )
    with progress.stage("capture"):
        captured = _capture_loaded(loaded, request, requests, dynamic)
    return Source(path, loaded.module, captured, fingerprint, loaded.notes)


def _capture_loaded(
    loaded: LoadedModel,
    request: Request,
    requests: list[InputRequest],
    dynamic: list[DynamicRequest],
) -> Capture:
    from .capture import capture, capture_program

    if loaded.program is not None:
        if requests or dynamic:
            raise UsageError(
                "a .pt2 program was captured with its inputs and dynamic axes",
                hint="leave out --input and --dynamic, or export from the checkpoint",
            )
        return capture_program(loaded.program, architecture=loaded.architecture)
    if not requests and request.inputs is None and not request.args and not request.kwargs:
        requests = [parse_input(text) for text in loaded.default_inputs]
    example = _example(loaded.module, request, requests)
    return capture(
        loaded.module,
        example,
        dynamic=dynamic,
        ranges=_ranges(loaded.module, requests),
        architecture=loaded.architecture,
    )


def _open_module(
    module: torch.nn.Module,
    request: Request,
    requests: list[InputRequest],
    dynamic: list[DynamicRequest],
    progress: Progress,
) -> Source:
    from .capture import capture

    if not callable(module) or not hasattr(module, "forward"):
        raise UsageError(
            f"the source is a {type(module).__name__}, neither a path nor a torch.nn.Module"
        )
    with progress.stage("capture"):
        captured = capture(
            module,
            _example(module, request, requests),
            dynamic=dynamic,
            ranges=_ranges(module, requests),
            architecture=f"{type(module).__module__}.{type(module).__qualname__}",
        )
    return Source(None, module, captured, None, ())


def _example(
    module: torch.nn.Module, request: Request, requests: list[InputRequest]
) -> ExampleCall:
    from .examples import ExampleCall, call_from_requests, call_from_tensors, read_tensors
    from .samples import as_tensors, with_tensors
    from .suggest import suggest_input

    if request.args or request.kwargs:
        args, kwargs = with_tensors((request.args, dict(request.kwargs or {})))
        return ExampleCall(args, kwargs, synthetic=False)
    if isinstance(request.inputs, Mapping):
        return call_from_tensors(module, as_tensors(request.inputs))
    files = request.input_files()
    if files:
        tensors: dict[str, torch.Tensor] = {}
        for file in files:
            tensors |= read_tensors(file)
        return call_from_tensors(module, tensors)
    if not requests:
        raise UsageError("the shape of the model's input is not known", hint=suggest_input(module))
    return call_from_requests(module, requests)


def _ranges(
    module: torch.nn.Module, requests: Sequence[InputRequest]
) -> dict[str, tuple[float, float]]:
    """The user's ranges by flat input name."""
    from .examples import parameter_names

    names, _ = parameter_names(module)
    taken = {r.name.partition(".")[0] for r in requests if r.name}
    free = iter([name for name in names if name not in taken])
    ranges: dict[str, tuple[float, float]] = {}
    for request in requests:
        name = request.name or next(free, "")
        if request.range is not None:
            ranges[name.replace(".", "_")] = request.range
    return ranges
