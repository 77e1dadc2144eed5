"""Formats are found by name, and nothing is imported before it is asked for."""

from __future__ import annotations

import subprocess
import sys
from importlib.metadata import EntryPoint

import pytest
from isomorph.errors import MissingRequirementError, UsageError
from isomorph.targets import registry


def test_onnx_is_built_in() -> None:
    assert "onnx" in registry.names()
    assert registry.get("onnx").suffix == ".onnx"


def test_unknown_format_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean onnx"):
        registry.get("onxx")


def test_unlike_any_format_lists_them() -> None:
    with pytest.raises(UsageError, match="formats: onnx"):
        registry.get("zzz")


def test_entry_point_of_another_package_is_a_format(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("mine", "isomorph.targets.onnx.target:OnnxTarget", registry.GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)

    assert registry.names()[-1] == "mine"
    assert registry.get("mine").name == "onnx"


def test_entry_point_that_does_not_load_says_whose_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [EntryPoint("broken", "no_such_module:Target", registry.GROUP)]
    monkeypatch.setattr(registry, "entry_points", lambda group: points)

    with pytest.raises(MissingRequirementError, match="no_such_module"):
        registry.get("broken")


def test_neither_names_nor_capability_import_heavy_libraries() -> None:
    code = (
        "import sys; from isomorph.targets import registry;"
        "[registry.get(name).capability() for name in registry.names()];"
        "print([m for m in ('torch', 'onnx', 'onnxruntime', 'numpy') if m in sys.modules])"
    )

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert printed.stdout.strip() == "[]", printed.stderr
