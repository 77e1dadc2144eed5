"""`isomorph.toml`, or `[tool.isomorph]` in pyproject.toml: models, formats, inputs, limits.

docs/ci.md lists the keys.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...errors import InputFileError, UsageError
from ..verdict import PEAK_LIMIT, RMS_LIMIT

__all__ = ["Model", "Project", "find_configuration", "read_configuration"]

_OWN, _SHARED = "isomorph.toml", "pyproject.toml"


@dataclass(frozen=True)
class Model:
    """One model to check; paths are absolute. `max_floors` may lower the limits of the rule."""

    name: str
    source: str
    formats: tuple[str, ...] = ("onnx",)
    model: str | None = None
    inputs: tuple[str, ...] = ()
    inputs_file: str | None = None
    dynamic: Mapping[str, str] = field(default_factory=dict)
    data: tuple[str, ...] = ()
    budget: float | None = None
    precision: str = "fp32"
    devices: tuple[str, ...] = ()
    require: str = "evaluated"
    options: Mapping[str, Any] = field(default_factory=dict)
    max_floors: Mapping[str, float] = field(default_factory=dict)
    allow: tuple[str, ...] = ()
    trust: bool = False


@dataclass(frozen=True)
class Project:
    """A configuration that was read."""

    file: Path
    models: tuple[Model, ...]

    def chosen(self, names: Sequence[str]) -> tuple[Model, ...]:
        """The models called so; all without names.

        Raises:
            UsageError: a name is unknown.
        """
        known = {model.name: model for model in self.models}
        if unknown := [name for name in names if name not in known]:
            raise UsageError(
                f"{self.file.name} has no model {', '.join(unknown)}",
                hint=f"it has {', '.join(known)}",
            )
        return tuple(known[name] for name in names) if names else self.models


def find_configuration(start: Path) -> Path:
    """The nearest file at `start` or above it; isomorph.toml goes before pyproject.toml.

    Raises:
        UsageError: there is none.
    """
    for folder in (start, *start.parents):
        if (folder / _OWN).is_file():
            return folder / _OWN
        shared = folder / _SHARED
        if shared.is_file() and "isomorph" in _parse(shared).get("tool", {}):
            return shared
    raise UsageError(
        f"no {_OWN} and no [tool.isomorph] in a {_SHARED} was found here or above",
        hint="describe the models to check as docs/ci.md tells, or name a file with --config",
    )


def read_configuration(file: Path) -> Project:
    """Read and check a configuration.

    Raises:
        UsageError: a key is unknown, missing, or of another type; a file that it names is missing.
        InputFileError: the file cannot be read or is no TOML.
    """
    document = _parse(file)
    found = document.get("tool", {}).get("isomorph") if file.name == _SHARED else document
    if found is None:
        raise UsageError(f"{file} has no [tool.isomorph]", hint="see docs/ci.md")
    if problems := list(_problems(found)):
        raise UsageError(
            f"{file} is not right: {'; '.join(problems)}", hint="docs/ci.md lists the keys"
        )
    common = {key: value for key, value in found.items() if key != "models"}
    models = tuple(_model({**common, **entry}, file.parent) for entry in found["models"])
    names = [model.name for model in models]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise UsageError(f"{file} has two models called {', '.join(twice)}")
    _demand_files(file, models)
    return Project(file, models)


def _parse(file: Path) -> dict[str, Any]:
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib

    try:
        with file.open("rb") as stream:
            return tomllib.load(stream)
    except OSError as error:
        raise InputFileError(f"{file} cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputFileError(f"{file} is no TOML: {error}") from error


def _problems(found: Mapping[str, Any]) -> Iterator[str]:
    """What the schema has to say, one sentence for each place."""
    import jsonschema

    path = Path(__file__).with_name("configuration.schema.json")
    validator = jsonschema.Draft202012Validator(json.loads(path.read_text(encoding="utf-8")))
    for error in sorted(validator.iter_errors(found), key=lambda e: [str(p) for p in e.path]):
        place = "".join(f"[{p}]" if isinstance(p, int) else f".{p}" for p in error.absolute_path)
        yield f"{place.lstrip('.') or 'the file'}: {error.message}"


def _model(entry: Mapping[str, Any], folder: Path) -> Model:
    """Paths are relative to the file."""

    def located(name: str) -> str:
        return str(folder / name)

    limits = entry.get("max_floors", {})
    for key, limit in (("peak", PEAK_LIMIT), ("rms", RMS_LIMIT)):
        if limits.get(key, limit) > limit:
            raise UsageError(
                f"model {entry['name']}: max_floors.{key} = {limits[key]:g} is above the rule's "
                f"{limit:g}",
                hint="it can only be lower: what is farther off than the rule allows is wrong",
            )
    model = entry.get("model")
    if model is not None and ".py:" in model:
        model = located(model)
    return Model(
        name=entry["name"],
        source=located(entry["source"]),
        formats=tuple(entry.get("formats", ("onnx",))),
        model=model,
        inputs=tuple(entry.get("inputs", ())),
        inputs_file=located(entry["inputs_file"]) if "inputs_file" in entry else None,
        dynamic=entry.get("dynamic", {}),
        data=tuple(map(located, entry.get("data", ()))),
        budget=entry.get("budget"),
        precision=entry.get("precision", "fp32"),
        devices=tuple(entry.get("devices", ())),
        require=entry.get("require", "evaluated"),
        options=entry.get("options", {}),
        max_floors=limits,
        allow=tuple(entry.get("allow", ())),
        trust=entry.get("trust", False),
    )


def _demand_files(file: Path, models: Sequence[Model]) -> None:
    for model in models:
        before, marker, _ = (model.model or "").partition(".py:")
        script = f"{before}.py" if marker else None
        named = (model.source, *model.data, *filter(None, (model.inputs_file, script)))
        if missing := [name for name in named if not Path(name).exists()]:
            raise UsageError(
                f"{file}, model {model.name}: {missing[0]} does not exist",
                hint="paths are relative to the configuration's folder",
            )
