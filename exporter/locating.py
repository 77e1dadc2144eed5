"""Find what an architecture specification names, without calling it.

Arguments are literals read with `ast.literal_eval`; nothing is evaluated.
"""

from __future__ import annotations

import ast
import contextlib
import difflib
import functools
import hashlib
import importlib
import inspect
import re
import sys
import traceback
import types
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ..errors import UsageError
from .script_slice import ScriptSlice, needed_by

__all__ = ["Located", "Spec", "locate", "parse", "raised_at"]

_FORMS = (
    "write it as package.module:callable, path/to/file.py:callable, torchvision:NAME or "
    "timm:NAME, with literal arguments where needed: file.py:Net(width=64)"
)


@dataclass(frozen=True)
class Spec:
    """A parsed specification: where to look, what to take, what to call it with."""

    text: str
    place: str
    name: str
    args: tuple[Any, ...] = ()
    kwargs: tuple[tuple[str, Any], ...] = ()
    called: bool = False

    @property
    def is_file(self) -> bool:
        return self.place.endswith(".py")

    @property
    def is_library(self) -> bool:
        return self.place in ("torchvision", "timm")


def parse(text: str) -> Spec:
    """Read a specification.

    Raises:
        UsageError: it has none of the four forms, or an argument is no literal.
    """
    body, brace, rest = text.partition("(")
    place, colon, name = body.strip().rpartition(":")
    name = name.strip()
    if not colon or not place or not name:
        raise UsageError(f"--model {text}: not an architecture", hint=_FORMS)
    if not brace:
        return Spec(text, place, name)
    args, kwargs = _literal_arguments(text, brace + rest)
    return Spec(text, place, name, args, kwargs, called=True)


def _literal_arguments(text: str, call: str) -> tuple[tuple[Any, ...], tuple[tuple[str, Any], ...]]:
    try:
        tree = ast.parse(f"f{call.strip()}", mode="eval").body
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"--model {text}: the arguments cannot be read ({error})",
            hint="arguments are literals: callable(width=64, act='relu')",
        ) from error
    if not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name):
        raise UsageError(f"--model {text}: not a single call", hint=_FORMS)
    try:
        args = tuple(ast.literal_eval(argument) for argument in tree.args)
        kwargs = tuple((k.arg or "", ast.literal_eval(k.value)) for k in tree.keywords)
    except ValueError as error:
        raise UsageError(
            f"--model {text}: an argument is not a literal",
            hint="numbers, strings, None, True, False and tuples, lists or dicts of them; for "
            "more, write a function without arguments and name that",
        ) from error
    return args, kwargs


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
    with _importable(Path.cwd()):
        try:
            module = importlib.import_module(spec.place)
        except ModuleNotFoundError as error:
            raise _no_module(spec, error) from error
        except UsageError:
            raise
        except (Exception, SystemExit) as error:
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
    names = [n for n in vars(owner) if not n.startswith("_") and callable(getattr(owner, n, None))]
    near = _nearest(part, names)
    modules = [n for n in names if _is_own_module_class(getattr(owner, n), owner)]
    offered = near or ", ".join(modules[:8])
    return UsageError(
        f"--model {spec.text}: {spec.place} has no {part}",
        hint=f"did you mean {offered}?" if offered else "check the name",
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
    if not path.is_file():
        raise UsageError(
            f"--model {spec.text}: {path} does not exist",
            hint="the path is relative to the current directory",
        )
    path = path.resolve()
    try:
        source = path.read_bytes()
        part = needed_by(source.decode("utf-8-sig"), spec.name.partition(".")[0])
    except (SyntaxError, ValueError) as error:
        raise UsageError(
            f"--model {spec.text}: {path.name} is not valid Python: {error}",
            hint="name a .py file that imports",
        ) from error
    module = _execute(path, source, part, spec)
    target = _attribute(module, spec)
    notes = (
        (
            f"{path.name} trains when run as a whole: only the definitions that {spec.name} "
            f"needs were executed (skipped line {', '.join(map(str, part.skipped[:6]))})",
        )
        if part.partial
        else ()
    )
    return Located(target, module, notes)


def _execute(path: Path, source: bytes, part: ScriptSlice, spec: Spec) -> types.ModuleType:
    """Run the file, or its slice, as a module of a name nobody else uses."""
    digest = hashlib.sha256(str(path).encode() + source).hexdigest()[:12]
    stem = re.sub(r"\W", "_", path.stem)
    name = f"_isomorph_{stem}_{digest}"
    if name in sys.modules and hasattr(sys.modules[name], spec.name.partition(".")[0]):
        return sys.modules[name]
    module = types.ModuleType(name)
    module.__file__ = str(path)
    sys.modules[name] = module
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    try:
        with _importable(Path.cwd()), _arguments_of(path):
            exec(compile(part.tree, str(path), "exec"), module.__dict__)
    except UsageError:
        raise
    except (Exception, SystemExit) as error:
        del sys.modules[name]
        raise _script_failed(path, part, spec, error) from error
    return module


def _script_failed(path: Path, part: ScriptSlice, spec: Spec, error: BaseException) -> UsageError:
    shown = f"{type(error).__name__}: {error}{raised_at(error)}"
    if part.partial:
        return UsageError(
            f"--model {spec.text}: {path.name} trains when imported, so only the definitions that "
            f"{spec.name} needs were executed, and that failed: {shown}",
            hint="move the training under `if __name__ == '__main__':`, or the model into a file "
            "of its own",
        )
    return UsageError(
        f"--model {spec.text}: running {path.name} raised {shown}",
        hint="the file must run without arguments; put scripts under `if __name__ == '__main__':`",
    )


@contextlib.contextmanager
def _arguments_of(path: Path) -> Iterator[None]:
    """A script that reads its command line must not see Isomorph's."""
    before = sys.argv
    sys.argv = [str(path)]
    try:
        yield
    finally:
        sys.argv = before


@contextlib.contextmanager
def _importable(folder: Path) -> Iterator[None]:
    """The current directory on sys.path, as `python -m` has it; it stays for late imports."""
    if str(folder) not in sys.path and "" not in sys.path:
        sys.path.insert(0, str(folder))
    yield


def raised_at(error: BaseException) -> str:
    """` (file:line)` of the innermost frame that raised, outside this folder; else empty."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).parent != Path(__file__).parent
    ]
    if not frames:
        return ""
    return f" ({_shown_path(frames[-1].filename)}:{frames[-1].lineno})"


def _shown_path(name: str) -> str:
    path = Path(name)
    try:
        return path.resolve().relative_to(Path.cwd()).as_posix()
    except ValueError:
        parts = path.parts
        return (
            "/".join(parts[parts.index("site-packages") + 1 :])
            if ("site-packages" in parts)
            else path.name
        )
