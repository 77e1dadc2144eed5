"""What judges stands alone: a folder with these modules and numpy judges as Isomorph does."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import isomorph
import pytest

ROOT = Path(isomorph.__file__).parent
ALONE = (
    *("compare", "verdict", "expected", "judging", "findings", "pooled", "vectors", "detections"),
    *("report/__init__", "report/model"),
)


@pytest.fixture
def folder(tmp_path):
    for name in ALONE:
        path = tmp_path / "rule" / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(ROOT / "validation" / f"{name}.py", path)
    return tmp_path


def test_numpy_and_the_standard_library_suffice(folder):
    script = f"""
import sys
sys.path.insert(0, {str(folder)!r})
import numpy
before = set(sys.modules)
from rule import findings, judging, vectors
brought = {{name.partition(".")[0] for name in set(sys.modules) - before}}
others = brought - {{"rule", "numpy", *sys.stdlib_module_names}}
assert not others, others
"""
    done = subprocess.run(
        [sys.executable, "-I", "-c", script],
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
