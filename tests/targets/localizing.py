"""An artifact whose bytes were changed: does `isomorph localize` name what is wrong in it?"""

from __future__ import annotations

import re
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import torch

NETS = Path(__file__).parents[1] / "models" / "localized_nets.py"
INPUTS = {"ConvNet": "x=2x3x8x8", "Attention": "x=2x5x8"}


@dataclass(frozen=True)
class Fault:
    """`edit` changes the artifact at a path so that one operator of `model` is wrong.

    operators: what may be named, one of them. module: its path, None where several operators are
    named together. source: part of its line.
    """

    model: str
    edit: Callable[[Path], object]
    operators: tuple[str, ...]
    module: str | None
    source: str


@dataclass(frozen=True)
class Exported:
    """Artifacts of the nets in one format, by the net's name; a test breaks a copy."""

    format: str
    folder: Path
    options: dict[str, Any] = field(default_factory=dict)
    made: dict[str, Path] = field(default_factory=dict)

    def copy(self, model: str, folder: Path) -> Path:
        """The artifact and everything beside it, in `folder`."""
        if model not in self.made:
            self.made[model] = self._export(model)
        path = self.made[model]
        shutil.copytree(path.parent, folder, dirs_exist_ok=True)
        return folder / path.name

    def source(self, model: str) -> Path:
        """The checkpoint."""
        return self.folder / f"{model}.pt"

    def _export(self, model: str) -> Path:
        torch.save(net_of(model).state_dict(), self.source(model))
        result = isomorph.export(
            self.source(model),
            self.format,
            model=f"{NETS}:{model}",
            inputs=INPUTS[model],
            output=f"{self.folder / model}/",
            options=self.options or None,
        )
        assert result.verdict == "pass", result.failures()
        return Path(str(result.artifacts[0].path))


def net_of(model: str) -> Any:
    return runpy.run_path(str(NETS))[model]().eval()


def demand_named(
    invoke: Any, exported: Exported, fault: Fault, folder: Path, *, alone: bool = True
) -> dict[str, Any]:
    """`fault` is named with its line; the reproduction runs. The localisation, as JSON.

    alone: whether the format's runtime can run one operator by itself.
    """
    path = exported.copy(fault.model, folder)
    fault.edit(path)
    source = exported.source(fault.model)
    model = ("--model", f"{NETS}:{fault.model}")
    done = invoke("localize", path, "--against", source, *model, "-q", "--json")
    assert done.code == 3, done.stdout
    found: dict[str, Any] = done.json["localization"]
    culprit = found["culprit"]
    assert culprit is not None, found
    assert any(o in t for o in fault.operators for t in culprit["targets"]), found["summary"]
    assert fault.module in (None, culprit["module"])
    assert fault.source in culprit["source"]
    file, _, line = culprit["location"].rpartition(":")
    assert file.endswith(NETS.name)
    assert NETS.read_text().splitlines()[int(line) - 1].strip() == culprit["source"]
    assert culprit["artifact_node"]
    assert culprit["before"] < 6 < culprit["after"]
    assert found["stage"] == "file"
    passed = {stage["name"]: stage["passed"] for stage in found["stages"]}
    assert {k for k, good in passed.items() if good is False} == {"file", "runtime"}, found
    assert passed["converted"] is True
    assert found["curve"]
    assert (culprit["alone"] is not None) == (found["reproduction"] is not None) == alone
    if not alone:
        return found
    script = path.with_name(f"{path.name}.repro.py")
    run = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=True)
    right, wrong = map(float, re.findall(r"largest error ([^ ]+),", run.stdout))
    assert right * 10 < wrong, run.stdout
    return found


def change_weight(file: Path, model: str, name: str) -> None:
    """Change one element of a weight where its bytes lie in `file`, in whichever order of axes."""
    weight = net_of(model).state_dict()[name].numpy()
    raw = file.read_bytes()
    orders = (weight, np.moveaxis(weight, 1, -1) if weight.ndim > 1 else weight, weight.T)
    for order in orders:
        held = np.ascontiguousarray(order)
        if raw.count(held.tobytes()) == 1:
            changed = held.copy().reshape(-1)
            changed[5 % changed.size] += 0.3
            file.write_bytes(raw.replace(held.tobytes(), changed.tobytes()))
            return
    raise AssertionError(f"{file} does not hold {name}")
