"""Formats are found by name, and nothing is imported before it is asked for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Protocol

import pytest
from isomorph.errors import MissingRequirementError, UsageError
from isomorph.targets import registry
from isomorph.targets.base import Capability


def test_onnx_is_built_in() -> None:
    assert "onnx" in registry.names()
    assert registry.get("onnx").suffix == ".onnx"


def test_unknown_format_names_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean onnx"):
        registry.get("onxx")


def test_unlike_any_format_lists_them() -> None:
    with pytest.raises(UsageError, match="formats: onnx"):
        registry.get("zzz")


class Install(Protocol):
    def __call__(self, name: str, value: str, package: str = "") -> None: ...


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Install:
    """Adds an entry point, of the package `NAME-package` unless told otherwise."""
    monkeypatch.syspath_prepend(tmp_path)

    def add(name: str, value: str, package: str = "") -> None:
        package = package or f"{name}-package"
        folder = tmp_path / f"{package.replace('-', '_')}-1.0.dist-info"
        folder.mkdir()
        (folder / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
        (folder / "entry_points.txt").write_text(f"[{registry.GROUP}]\n{name} = {value}\n")

    return add


ONNX = "isomorph.targets.onnx.target:OnnxTarget"


def test_entry_point_of_another_package_is_a_format(install: Install) -> None:
    install("mine", ONNX)

    assert registry.names()[-1] == "mine"
    assert registry.get("mine").suffix == ".onnx"


@pytest.mark.parametrize(
    "content", ["import no_such_module", "1 / 0", "raise SystemExit", "Mine ="]
)
def test_package_whose_module_raises_is_named_and_others_work(
    content: str, install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    module = f"module_that_raises_{len(content)}"
    (tmp_path / f"{module}.py").write_text(content)
    install("broken", f"{module}:Target")
    install("works", ONNX)

    with pytest.raises(MissingRequirementError, match="broken of broken-package does not load"):
        registry.get("broken")
    found = registry.capabilities()
    assert not found["broken"].builds
    assert "broken-package" in str(found["broken"].remedy)
    assert found["works"] == found["onnx"]
    assert "broken" not in [target.name for target in registry.loadable()]


@pytest.mark.parametrize(
    ("value", "lacks"),
    [("json:dumps", "files, capability"), ("json:JSONDecoder", "convert, open, name, suffix")],
)
def test_object_that_is_no_target_is_told_what_it_lacks(
    value: str, lacks: str, install: Install
) -> None:
    install("half", value)

    with pytest.raises(MissingRequirementError, match=f"{value} lacks .*{lacks}"):
        registry.get("half")
    assert "lacks" in str(registry.capabilities()["half"].remedy)


def test_capability_that_raises_does_not_hide_the_others(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isomorph.targets.onnx.target import OnnxTarget

    class Odd(OnnxTarget):
        def capability(self) -> Capability:
            raise RuntimeError("no driver")

    monkeypatch.setattr("isomorph.targets.onnx.target.Odd", Odd, raising=False)
    install("odd", "isomorph.targets.onnx.target:Odd")

    found = registry.capabilities()

    assert "no driver" in str(found["odd"].remedy)
    assert found["onnx"].builds


def test_name_of_a_built_in_format_stays_its_own(install: Install) -> None:
    install("onnx", "json:dumps", package="pretender")

    assert registry.get("onnx").suffix == ".onnx"
    assert registry.names().count("onnx") == 1
    remedy = registry.capabilities()["onnx (pretender)"].remedy
    assert remedy == "the name onnx is that of a built-in format: pretender must choose another"


def test_two_packages_with_one_name_are_both_told(install: Install) -> None:
    install("twin", ONNX, package="first-package")
    install("twin", "json:dumps", package="second-package")

    assert registry.get("twin").suffix == ".onnx"
    assert "that of first-package" in str(registry.capabilities()["twin (second-package)"].remedy)


def test_neither_names_nor_capability_import_heavy_libraries() -> None:
    code = (
        "import sys; from isomorph.targets import registry;"
        "[registry.get(name).capability() for name in registry.names()];"
        "print([m for m in ('torch', 'onnx', 'onnxruntime', 'numpy') if m in sys.modules])"
    )

    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)

    assert printed.stdout.strip() == "[]", printed.stderr
