"""Find what an architecture specification names, without calling it."""

from __future__ import annotations

import difflib
import functools
import importlib
import inspect
import sys
import types
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import UsageError
from .script import importable, run_file
from .script_slice import defined_in
from .spec import Spec, raised_at

__all__ = ["Located", "locate", "require_callable"]


@dataclass(frozen=True)
class Located:
    """What a specification names, and the Python module that defines it (None for libraries)."""

    target: Any
    module: types.ModuleType | None = None
    notes: tuple[str, ...] = ()


def locate(spec: Spec) -> Located:
    """Find what `spec` names, importing its module.

    Raises:
        UsageError: the module or the name does not exist, or importing it raised.
    """
    if spec.place == "timm":
        return Located(_timm_factory(spec))
    if spec.place == "torchvision":
        return Located(_torchvision_factory(spec))
    if spec.is_file:
        return _from_file(spec)
    return _from_package(spec)


def _from_package(spec: Spec) -> Located:
    with importable(Path.cwd()):
        try:
            module = importlib.import_module(spec.place)
        except ModuleNotFoundError as error:
            raise _no_module(spec, error) from error
        except UsageError:
            raise
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise _import_failed(spec, error) from error
    return Located(_attribute(module, spec), module)


def _no_module(spec: Spec, error: ModuleNotFoundError) -> UsageError:
    missing = error.name or spec.place
    if missing != spec.place and not spec.place.startswith(f"{missing}."):
        return UsageError(
            f"--model {spec.text}: {spec.place} needs the package {missing}, which is missing",
            hint=f"install {missing}, or run where it can be imported (PYTHONPATH)",
        )
    near = _nearest(missing, sorted(_top_level_modules()))
    return UsageError(
        f"--model {spec.text}: there is no module {missing}",
        hint=(f"did you mean {near}? " if near else "")
        + "run where it can be imported, set PYTHONPATH, or name the file: "
        "path/to/file.py:callable",
    )


def _top_level_modules() -> set[str]:
    here = {p.stem for p in Path.cwd().iterdir() if p.suffix == ".py" or p.is_dir()}
    return here | {"torchvision", "timm"} | {name.partition(".")[0] for name in sys.modules}


def _import_failed(spec: Spec, error: BaseException) -> UsageError:
    return UsageError(
        f"--model {spec.text}: importing {spec.place} raised "
        f"{type(error).__name__}: {error}{raised_at(error)}",
        hint="the module must import without side effects that fail here",
    )


def _attribute(module: types.ModuleType, spec: Spec) -> Any:
    found: Any = module
    for part in spec.name.split("."):
        if not hasattr(found, part):
            raise _no_attribute(found, part, spec)
        found = getattr(found, part)
    if not callable(found):
        raise UsageError(
            f"--model {spec.text}: {spec.name} is a {type(found).__name__}",
            hint="name a class, a function that returns the module, or a module",
        )
    return found


def _no_attribute(owner: Any, part: str, spec: Spec) -> UsageError:
    # A training script was run in part, so its other names are only in its text.
    written = _definitions(Path(spec.place)) if spec.is_file and "." not in spec.name else []
    names = [n for n in vars(owner) if not n.startswith("_") and callable(getattr(owner, n, None))]
    near = _nearest(part, list(dict.fromkeys((*names, *written))))
    modules = [n for n in names if _is_own_module_class(getattr(owner, n), owner)]
    offered = near or ", ".join((written or modules)[:8])
    return UsageError(
        f"--model {spec.text}: {spec.place} has no {part}",
        hint=f"did you mean {offered}?" if offered else "check the name",
    )


def _definitions(path: Path) -> list[str]:
    """Classes and functions that a file defines, read without running it."""
    try:
        return defined_in(path.read_text("utf-8-sig"))
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return []


def require_callable(text: str) -> None:
    """Refuse `file.py` without `:Class`, naming what the file defines.

    Raises:
        UsageError: `text` names a file and nothing in it.
    """
    place = text.partition("(")[0].strip().removesuffix(":")
    if not place.endswith(".py") or ":" in Path(place).name:
        return
    path = Path(place)
    _require_file(text, path)
    names = _definitions(path)
    name = names[0] if len(names) == 1 else "Class"
    listed = f"; {path.name} defines {', '.join(names[:8])}" if names else ""
    raise UsageError(
        f"--model {text} names a file but nothing in it: :{name} is missing",
        hint=f"name what builds the model: --model {place}:{name}{listed}",
    )


def _require_file(text: str, path: Path) -> None:
    try:
        found = path.is_file()
    except OSError as error:
        raise UsageError(
            f"--model {text}: the file cannot be read: {error.strerror}", hint="check the path"
        ) from error
    if not found:
        raise UsageError(
            f"--model {text}: {path} does not exist",
            hint="the path is relative to the current directory",
        )


def _is_own_module_class(value: Any, owner: Any) -> bool:
    own = getattr(value, "__module__", None) == getattr(owner, "__name__", "")
    return isinstance(value, type) and issubclass(value, nn.Module) and own


def _nearest(name: str, names: Sequence[str]) -> str:
    lowered = {candidate.lower(): candidate for candidate in names}
    close = difflib.get_close_matches(name.lower(), lowered, n=3, cutoff=0.5)
    return ", ".join(lowered[match] for match in close)


def _torchvision_factory(spec: Spec) -> Callable[..., Any]:
    try:
        from torchvision import models
    except ImportError as error:
        raise _not_installed(spec, "torchvision") from error
    names = models.list_models()
    if spec.name not in names:
        raise _no_library_model(spec, names)
    builder = models.get_model_builder(spec.name)
    return functools.partial(_without_weights, builder)


def _without_weights(builder: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a torchvision builder so that it downloads nothing.

    Detection and segmentation builders fetch a pretrained backbone unless told not to.
    """
    accepted = inspect.signature(builder).parameters
    if "weights_backbone" in accepted:
        kwargs.setdefault("weights_backbone", None)
    kwargs["weights"] = None
    if builder.__name__ in ("googlenet", "inception_v3"):
        kwargs.setdefault("init_weights", False)
    return builder(*args, **kwargs)


def _timm_factory(spec: Spec) -> Callable[..., Any]:
    try:
        import timm
    except ImportError as error:
        raise _not_installed(spec, "timm") from error
    base = spec.name.partition(".")[0]
    if not timm.is_model(base):
        raise _no_library_model(spec, timm.list_models())
    return functools.partial(_timm_model, spec)


def _timm_model(spec: Spec, *args: Any, **kwargs: Any) -> Any:
    import timm

    if args:
        raise UsageError(f"--model {spec.text}: timm takes keyword arguments only")
    kwargs.pop("pretrained", None)
    return timm.create_model(spec.name, pretrained=False, **kwargs)


def _not_installed(spec: Spec, package: str) -> UsageError:
    return UsageError(
        f"--model {spec.text}: {package} is not installed", hint=f"pip install {package}"
    )


def _no_library_model(spec: Spec, names: Sequence[str]) -> UsageError:
    near = _nearest(spec.name, names)
    return UsageError(
        f"--model {spec.text}: {spec.place} has no model {spec.name}",
        hint=f"did you mean {near}?" if near else f"it knows {len(names)} models; check the name",
    )


def _from_file(spec: Spec) -> Located:
    path = Path(spec.place)
    _require_file(spec.text, path)
    module, notes = run_file(path.resolve(), spec)
    return Located(_attribute(module, spec), module, notes)
