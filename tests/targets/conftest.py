"""The target that docs/writing-a-target.md builds, as an installed project."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import pytest

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PAGE = Path(__file__).resolve().parents[2] / "docs" / "writing-a-target.md"


@pytest.fixture(scope="session")
def replay_project(tmp_path_factory) -> Path:
    """The files of the page, installed as `pip install -e .` would: by a folder of metadata."""
    folder = tmp_path_factory.mktemp("replay")
    for name, content in re.findall(
        r"^```\w+ file=(\S+)\n(.*?)^```", PAGE.read_text(), re.M | re.S
    ):
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(content)
    metadata = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    ((group, points),) = metadata["entry-points"].items()
    installed = folder / "isomorph_replay-1.0.dist-info"
    installed.mkdir()
    (installed / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {metadata['name']}\nVersion: {metadata['version']}\n"
    )
    lines = [f"{name} = {value}" for name, value in points.items()]
    (installed / "entry_points.txt").write_text("\n".join([f"[{group}]", *lines, ""]))
    return folder
