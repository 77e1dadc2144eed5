"""The package that users install: complete, importable, shadowing nobody's modules."""

from __future__ import annotations

import importlib
import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
NOT_SHIPPED = {"tests", "benchmarks", "examples", "docs", "build", "dist"}


def package_folders() -> list[str]:
    """Dotted names of all folders with an `__init__.py`, as they stand in the tree."""
    names = ["isomorph"]
    for init in ROOT.glob("*/**/__init__.py"):
        parts = init.parent.relative_to(ROOT).parts
        if parts[0] not in NOT_SHIPPED and not parts[0].startswith(".") and "venv" not in parts[0]:
            names.append(".".join(("isomorph", *parts)))
    return sorted(names)


def modules() -> list[str]:
    """Dotted names of all modules; `__main__` is left out, since importing it would run it."""
    names = []
    for package in package_folders():
        folder = ROOT.joinpath(*package.split(".")[1:])
        names.append(package)
        names += [
            f"{package}.{file.stem}"
            for file in folder.glob("*.py")
            if file.stem not in ("__init__", "__main__")
        ]
    return sorted(names)


def requirements() -> dict[str, list[Requirement]]:
    """Direct dependencies on this Python by extra; the base ones under "base"."""
    groups = {"base": PROJECT["project"]["dependencies"]}
    groups |= PROJECT["project"]["optional-dependencies"]
    return {
        extra: [
            line for line in map(Requirement, lines) if not line.marker or line.marker.evaluate()
        ]
        for extra, lines in groups.items()
    }


def pins() -> dict[str, str]:
    """Versions that constraints.txt sets for this Python, by normalised name."""
    versions = {}
    for line in (ROOT / "constraints.txt").read_text().splitlines():
        if line and not line.startswith("#"):
            requirement = Requirement(line)
            (specifier,) = requirement.specifier
            assert specifier.operator == "==", line
            if requirement.marker is None or requirement.marker.evaluate():
                name = normalised(requirement.name)
                assert name not in versions, f"{name} is pinned twice"
                versions[name] = specifier.version
    return versions


def normalised(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def test_pyproject_lists_every_package() -> None:
    assert sorted(PROJECT["tool"]["setuptools"]["packages"]) == package_folders()


@pytest.mark.parametrize("name", modules())
def test_module_imports(name: str) -> None:
    importlib.import_module(name)


def test_no_top_level_name_shadows_a_dependency() -> None:
    # With the repository root on sys.path, as `python -m` puts it, each of these is importable.
    ours = {path.stem for path in ROOT.glob("*.py")} - {"__init__", "__main__"}
    ours |= {name.split(".")[1] for name in package_folders() if "." in name}
    theirs = {
        name
        for name, distributions in metadata.packages_distributions().items()
        if set(distributions) != {"isomorph"}
    }
    assert ours & (theirs | set(sys.stdlib_module_names)) == set()


@pytest.mark.parametrize("script", ["isomorph", "export"])
def test_console_script_is_declared_and_loads(script: str) -> None:
    (entry,) = metadata.entry_points(group="console_scripts", name=script)
    assert callable(entry.load())


def test_version_is_told_by_python_dash_m(tmp_path: Path) -> None:
    result = subprocess.run(
        [sys.executable, "-m", "isomorph", "--version"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert PROJECT["project"]["version"] in result.stdout


@pytest.mark.parametrize("extra", ["base", "onnx", "test", "lint"])
def test_constraints_pin_every_direct_dependency_within_its_range(extra: str) -> None:
    versions = pins()
    for requirement in requirements()[extra]:
        version = versions.get(normalised(requirement.name))
        assert version is not None, f"{requirement.name} is not pinned"
        assert requirement.specifier.contains(version), f"{requirement} against {version}"


@pytest.mark.skipif(os.environ.get("CI") != "true", reason="only CI promises these versions")
def test_ci_runs_with_the_versions_that_constraints_state() -> None:
    versions = pins()
    # Not all of sys.path: setuptools appends the folder of what it carries within itself.
    own = [sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]
    installed = {
        name: distribution.version
        for distribution in metadata.distributions(path=own)
        if (name := normalised(distribution.name)) in versions
    }
    assert installed == {name: versions[name] for name in installed}
