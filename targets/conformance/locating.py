"""The target that a test class names, found in this process and in others."""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import sys
from collections.abc import Mapping
from typing import Any

from ...errors import UsageError
from .. import registry
from ..base import Target

__all__ = ["found", "locate", "resolve"]


def resolve(declared: Any) -> Target:
    """The target behind a format's name, a class or an object."""
    if isinstance(declared, str):
        return registry.get(declared)
    found: Target = declared() if isinstance(declared, type) else declared
    return found


def locate(declared: Any) -> dict[str, str]:
    """How another process finds the target.

    Raises:
        UsageError: it cannot, because the class is local to a function.
    """
    if isinstance(declared, str):
        return {"name": declared}
    kind = declared if isinstance(declared, type) else type(declared)
    if "<locals>" in kind.__qualname__ or inspect.getsourcefile(kind) is None:
        raise UsageError(
            f"{kind.__qualname__} is made inside a function, and some checks run in another "
            f"process",
            hint="define it at the top of a module, or give its registered name",
        )
    return {
        "module": kind.__module__,
        "file": str(inspect.getsourcefile(kind)),
        "attribute": kind.__qualname__,
    }


def found(location: Mapping[str, str]) -> Target:
    """The target that `locate` told of; a class is called without arguments."""
    if "name" in location:
        return registry.get(location["name"])
    name = location["module"]
    try:
        module = importlib.import_module(name)
    except ImportError:
        spec = importlib.util.spec_from_file_location(name, location["file"])
        if spec is None or spec.loader is None:
            raise
        module = importlib.util.module_from_spec(spec)
        sys.modules[name] = module
        spec.loader.exec_module(module)
    value: Any = module
    for part in location["attribute"].split("."):
        value = getattr(value, part)
    target: Target = value()
    return target
