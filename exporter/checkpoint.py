"""From a checkpoint file to a module that is ready to be captured.

Accepts what people save: a state_dict, a training dict around one, a pickled
module, TorchScript, a torch.export archive (.pt2) and safetensors. Loading is
safe by default: nothing in the file is executed unless the caller trusts it.
"""

from __future__ import annotations

import pickle
import sys
import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import nn

from ..errors import InputFileError
from .allowlist import WRAPPERS
from .architecture import Architecture, default_inputs
from .inspection import Inspection, inspect
from .matching import candidates, describe_entries
from .programs import load_exported_program, load_torchscript
from .refusals import as_spec, needs_allow, refused, some
from .sniffing import FileKind, looks_like, sniff
from .training_mode import training_notes
from .unpickling import Admission, ForeignObject, admit, restricted_pickle
from .weights import fill, require_values

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["CheckpointKind", "LoadedModel", "load_checkpoint"]

CheckpointKind = Literal[
    "state_dict", "training_state", "module", "torchscript", "exported_program", "safetensors"
]


@dataclass(frozen=True)
class LoadedModel:
    """A module with its trained weights, in eval mode, on the CPU, without gradients.

    `program` is set for a `.pt2` only; `module` is then the program's own.
    `architecture` is the `--model` specification, or the pickled class's name.
    `notes` say what the user should know about how it was loaded.
    `default_inputs` are input specifications that the architecture's library
    publishes, such as `("2x3x224x224",)`; empty where unknown.
    """

    module: nn.Module
    program: ExportedProgram | None
    kind: CheckpointKind
    architecture: str | None
    notes: tuple[str, ...] = ()
    default_inputs: tuple[str, ...] = ()


def load_checkpoint(
    path: str | Path, *, model: str | None = None, allow: Sequence[str] = (), trust: bool = False
) -> LoadedModel:
    """Load a checkpoint.

    Args:
        path: the file.
        model: architecture specification, see `architecture`; needed where the file
            holds weights only, and where its pickled class cannot be imported.
        allow: classes (`package.module.Class`) that a pickled module may be made of.
        trust: unpickle freely and load native code: the file can then run anything.

    Raises:
        InputFileError: not a checkpoint, refused, does not fit, or needs `model`.
        UsageError: `model` or `allow` names something that does not exist or raises.
    """
    source = Path(path)
    found = sniff(source)
    if found.kind in ("torchscript", "pt2", "aot_package"):
        return _load_program(source, found, model, allow, trust)
    if found.kind == "safetensors":
        return _from_state(_load_safetensors(source), source, model, kind="safetensors")
    if found.kind not in ("torch_zip", "torch_legacy", "torch_tar", "pickle"):
        raise looks_like(source, found)
    return _load_pickled(source, found, model, allow, trust)


def _load_program(
    source: Path, found: FileKind, model: str | None, allow: Sequence[str], trust: bool
) -> LoadedModel:
    notes = [f"--allow imported {name}" for name in allow]
    if model is not None:
        notes.append(f"--model was not needed: {source.name} holds its own program")
    if trust:
        notes.append("--trust: the file was loaded without any check")
    if found.kind == "torchscript":
        script = load_torchscript(source, trust=trust)
        try:
            notes = [*notes, *training_notes(script)]
            return _finished(script, "torchscript", _script_name(script), notes)
        except (RuntimeError, AttributeError, UnicodeDecodeError) as error:
            raise _damaged(source, found, error) from error
    program = load_exported_program(source, found, allowed=admit(allow), trust=trust)
    try:
        module = program.module()
    except Exception as error:
        raise _damaged(source, found, error) from error
    return LoadedModel(module, program, "exported_program", None, tuple(notes))


def _script_name(script: nn.Module) -> str | None:
    name = getattr(script, "original_name", None)
    return name if isinstance(name, str) else None


def _load_safetensors(source: Path) -> dict[str, torch.Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        return load_file(source, device="cpu")
    except (SafetensorError, OSError, ValueError, KeyError, RuntimeError) as error:
        raise InputFileError(
            f"{source} is a damaged safetensors file: {error}", hint="download or save it again"
        ) from error


def _load_pickled(
    source: Path, found: FileKind, model: str | None, allow: Sequence[str], trust: bool
) -> LoadedModel:
    if trust:
        return _trusted(source, found, model)
    if found.kind in ("torch_tar", "pickle"):
        raise InputFileError(
            f"{source} is {found.looks_like}, which cannot be read without running what it says",
            hint="save the weights again with torch.save(model.state_dict(), ...), or, if you "
            "trust whoever made the file, give --trust",
        )
    extra = admit(allow)
    notes = [f"--allow imported {name}" for name in allow]
    contents = inspect(source)  # first: what it refuses would keep torch's unpickler busy for ever
    if not extra:
        root = _weights_only(source, found)
        if root is not None:
            return _dispatch(root, source, model, notes)
    return _restricted(source, found, contents, model, extra, notes)


def _weights_only(source: Path, found: FileKind) -> Any | None:
    """What torch's own restricted unpickler reads, or None where it refuses."""
    try:
        return _torch_load(source, found, weights_only=True)
    except pickle.UnpicklingError:
        return None


def _torch_load(source: Path, found: FileKind, **options: Any) -> Any:
    """`torch.load` on the CPU, mapped where the format can be.

    Raises:
        pickle.UnpicklingError: the unpickler refused something.
        InputFileError: the file is truncated or damaged.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return torch.load(source, map_location="cpu", mmap=found.kind == "torch_zip", **options)
    except pickle.UnpicklingError:
        raise
    except MemoryError as error:
        raise InputFileError(f"{source} does not fit into memory") from error
    except Exception as error:
        if options.get("weights_only") or "pickle_module" in options:
            raise _damaged(source, found, error) from error
        raise


def _damaged(source: Path, found: FileKind, error: BaseException) -> InputFileError:
    text = str(error).strip().splitlines()
    return InputFileError(
        f"{source} looks like {found.looks_like} but is truncated or damaged "
        f"({type(error).__name__}{': ' + text[0] if text else ''})",
        hint="the save or download was interrupted; repeat it",
    )


def _restricted(
    source: Path,
    found: FileKind,
    contents: Inspection,
    model: str | None,
    extra: dict[str, type],
    notes: list[str],
) -> LoadedModel:
    """Load a file that names classes, or say which of them stand in the way."""
    dangerous = contents.named("dangerous")
    if dangerous:
        raise refused(source, dangerous)
    unknown = [name for name in contents.named("unknown") if name not in extra]
    if unknown and model is not None:
        architecture = Architecture(model)
        stand_ins = _stand_ins(contents, architecture, unknown)
        if stand_ins:
            extra, unknown = {**extra, **stand_ins}, []
            took = f"took the pickled class {contents.root_class} from {model}"
            notes = [*notes, took, *architecture.notes]
            model = None
    salvage = bool(unknown)
    if salvage and model is None and contents.root_class is not None:
        raise needs_allow(source, contents, unknown)
    admission = Admission(extra, salvage=salvage)
    try:
        root = _torch_load(
            source, found, weights_only=False, pickle_module=restricted_pickle(admission)
        )
    except pickle.UnpicklingError as error:
        raise InputFileError(
            f"{source} is refused: {error}",
            hint="if you trust whoever made the file, --trust loads it without any check",
        ) from error
    if salvage and isinstance(root, (Mapping, ForeignObject)):
        notes.append(
            f"read the weights only; objects of {some(sorted(admission.foreign))} in the file "
            "were not made"
        )
    return _dispatch(root, source, model, notes)


def _stand_ins(
    contents: Inspection, architecture: Architecture, unknown: list[str]
) -> dict[str, type]:
    """Classes of the code that `--model` names, for pickled classes of the same names.

    The user named that code, so its classes are admitted for those that the pickle
    expects in a module which is missing (often `__main__`). Empty where the pickled
    module is of another name, or not all its classes are there: then `--model` builds
    a module and only the weights are read.
    """
    spec, code = architecture.spec, architecture.module
    module, _, name = (contents.root_class or "").rpartition(".")
    if name != spec.name or code is None or spec.called:
        return {}
    found: dict[str, type] = {}
    for qualified in unknown:
        owner, _, leaf = qualified.rpartition(".")
        stand_in = getattr(code, leaf, None)
        if owner != module or not isinstance(stand_in, type):
            return {}
        found[qualified] = stand_in
    return found


def _trusted(source: Path, found: FileKind, model: str | None) -> LoadedModel:
    """Unpickle without any check."""
    notes = ["--trust: the file was unpickled without any check"]
    try:
        if found.kind == "pickle":
            with source.open("rb") as file:
                root = pickle.load(file)
        else:
            root = _torch_load(source, found, weights_only=False)
    except ModuleNotFoundError as error:
        raise InputFileError(
            f"{source} needs the module {error.name}, which is not importable here",
            hint="run where it can be imported, or set PYTHONPATH",
        ) from error
    except AttributeError as error:
        raise InputFileError(
            f"{source} names a class that does not exist here: {error}",
            hint="give --model path/to/file.py:Class instead of --trust",
        ) from error
    except InputFileError:
        raise
    except Exception as error:
        raise _damaged(source, found, error) from error
    return _dispatch(root, source, model, notes)


def _dispatch(root: Any, source: Path, model: str | None, notes: list[str]) -> LoadedModel:
    """Tell a module from a state_dict from a training dict."""
    if model is None:
        module, where = _find_module(root)
        if module is not None:
            notes = [*notes, *([f"took entry '{where}' of the file"] if where else [])]
            try:
                module, taken_off = _unwrapped(module)
                notes += [f"took the model out of its {name}" for name in taken_off]
                notes = [*notes, *training_notes(module)]
                return _finished(module, "module", _qualified(module), notes)
            except (AttributeError, TypeError, RuntimeError, RecursionError) as error:
                raise InputFileError(
                    f"{source} is a pickled {_qualified(module)} that is not complete: {error}",
                    hint="another version of its package saved it: install that version, or "
                    f"load only the weights: --model {as_spec(_qualified(module))}",
                ) from error
    return _from_state(root, source, model, notes=notes)


def _unwrapped(module: nn.Module) -> tuple[nn.Module, list[str]]:
    """The module inside DataParallel and the like, and the wrappers' names, outermost first."""
    taken_off: dict[int, str] = {}  # by identity: a hostile file may wrap a module in itself
    while _qualified(module) in WRAPPERS and id(module) not in taken_off:
        inner = getattr(module, "module", None)
        if not isinstance(inner, nn.Module):
            break
        taken_off[id(module)] = type(module).__name__
        module = inner
    return module, list(taken_off.values())


def _is_optimizer(root: Any) -> bool:
    """What `Optimizer.state_dict()` gives, itself or as an entry."""
    if not isinstance(root, Mapping):
        return False
    inner = [value for value in root.values() if isinstance(value, Mapping)]
    return any(set(one) == {"state", "param_groups"} for one in (root, *inner))


def _find_module(root: Any) -> tuple[nn.Module | None, str]:
    if isinstance(root, nn.Module):
        return root, ""
    if isinstance(root, Mapping):
        held = {str(k): v for k, v in root.items() if isinstance(v, nn.Module)}
        for name in (*("model", "net", "network", "module", "ema"), *held):
            if name in held:
                return held[name], name
    return None, ""


def _qualified(module: nn.Module) -> str:
    """The class's name; `file.py:Class` where `--model` gave the class from a file."""
    place, name = type(module).__module__, type(module).__qualname__
    if place.startswith("_isomorph_"):
        return f"{Path(str(sys.modules[place].__file__)).name}:{name}"
    return f"{place}.{name}"


def _from_state(
    root: Any,
    source: Path,
    model: str | None,
    *,
    notes: Sequence[str] = (),
    kind: CheckpointKind | None = None,
) -> LoadedModel:
    try:
        found = candidates(root)
    except (ValueError, TypeError, AttributeError, RuntimeError) as error:
        raise InputFileError(
            f"{source} holds a module that is not complete: {error}",
            hint="save the weights again: torch.save(model.state_dict(), ...)",
        ) from error
    if not found and _is_optimizer(root):
        raise InputFileError(
            f"{source}: this is an optimizer's state, not a model",
            hint="save the model's weights: torch.save(model.state_dict(), ...)",
        )
    if not found:
        raise InputFileError(
            f"{source} holds {describe_entries(root)}",
            hint="save the weights: torch.save(model.state_dict(), ...)",
        )
    if model is None:
        raise InputFileError(
            f"{source} holds {describe_entries(root)}, but not the model's code",
            hint="say how to build the model: --model path/to/file.py:Class, --model "
            "package.module:callable, --model torchvision:NAME or --model timm:NAME",
        )
    architecture = Architecture(model)
    filled = fill(architecture.build, found, source=source.name, spec=model)
    all_notes = (*notes, *architecture.notes, *filled.notes)
    if kind is None:
        kind = "state_dict" if any(not c.path for c in found) else "training_state"
    return _finished(filled.module, kind, model, all_notes, spec=architecture)


def _finished(
    module: nn.Module,
    kind: CheckpointKind,
    architecture: str | None,
    notes: Sequence[str],
    spec: Architecture | None = None,
) -> LoadedModel:
    module.eval()
    require_values(
        dict((*module.named_parameters(), *module.named_buffers())), architecture or "model"
    )
    for parameter in module.parameters():
        parameter.requires_grad_(False)
    inputs = default_inputs(spec.spec if spec else None, module)
    return LoadedModel(module, None, kind, architecture, tuple(notes), inputs)
