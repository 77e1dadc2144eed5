"""The wheel, built and installed alone. Slow, so only `make wheel-check` runs it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.wheel

ROOT = Path(__file__).resolve().parents[1]
NOT_SHIPPED = ("tests", "benchmarks", "examples", "docs")

IMPORT_ALL = """
import importlib, pkgutil
import isomorph

for module in pkgutil.walk_packages(isomorph.__path__, "isomorph."):
    if module.name != "isomorph.__main__":
        importlib.import_module(module.name)
        print(module.name)
print(isomorph.__file__)
"""


def tracked_files() -> list[str]:
    """Paths of the files that git tracks or would add, relative to the root."""
    listing = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return [name for name in names.split("\0") if name and (ROOT / name).is_file()]


def information(wheel: Path) -> str:
    """The wheel's folder of metadata."""
    return wheel.name.removesuffix("-py3-none-any.whl") + ".dist-info"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel built from a copy of the tracked files, so that nothing stale is packed."""
    folder = tmp_path_factory.mktemp("wheel")
    source = folder / "source"
    for name in tracked_files():
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, source / name)
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "-w", str(folder)]
    subprocess.run([*pip, str(source)], check=True)
    (built,) = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def clean_python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python with the wheel and, for its dependencies, a view of this environment's packages."""
    folder = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = folder / ("Scripts" if os.name == "nt" else "bin") / "python"
    pip = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    subprocess.run([*pip, str(wheel)], check=True)
    # A .pth line adds the folder without running the .pth files in it, of which one would lead
    # back to this checkout (the editable install).
    (packages,) = folder.glob("lib/python*/site-packages")
    (packages / "dependencies.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    return python


def test_wheel_holds_the_package_and_nothing_else(wheel: Path) -> None:
    shipped = {
        f"isomorph/{name}"
        for name in tracked_files()
        if name.endswith((".py", ".schema.json", ".j2")) and name.split("/")[0] not in NOT_SHIPPED
    }
    assert "isomorph/exporter/graph.py" in shipped
    assert "isomorph/validation/report/report.schema.json" in shipped

    files = {
        name
        for name in zipfile.ZipFile(wheel).namelist()
        if not name.startswith(information(wheel))
    }

    assert files == shipped | {"isomorph/py.typed"}


def test_wheel_carries_licence_and_readme(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        assert "Apache License" in archive.read(f"{information(wheel)}/licenses/LICENSE").decode()
        described = archive.read(f"{information(wheel)}/METADATA").decode()
    assert "License-Expression: Apache-2.0" in described
    assert (ROOT / "README.md").read_text().strip() in described.replace("\r\n", "\n")


def test_every_module_imports_from_the_installed_wheel(clean_python: Path, tmp_path: Path) -> None:
    result = subprocess.run(
        [str(clean_python), "-c", IMPORT_ALL],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    *imported, origin = result.stdout.split()
    assert "isomorph.exporter.graph" in imported
    assert Path(origin).is_relative_to(clean_python.parents[1])


@pytest.mark.parametrize("script", ["isomorph", "export"])
def test_installed_command_shows_its_help(clean_python: Path, tmp_path: Path, script: str) -> None:
    command = [str(clean_python.with_name(script)), "--help"]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr
    assert "Usage" in result.stdout
