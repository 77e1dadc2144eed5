"""Packages that several tests share: compiling one takes seconds."""

from __future__ import annotations

import runpy
from dataclasses import dataclass
from pathlib import Path

import isomorph
import pytest
import torch
from isomorph.exporter.graph import Graph
from isomorph.targets.aotinductor.target import cpp_compiler
from torch import nn

X = torch.randn(2, 3, 24, 24, generator=torch.Generator().manual_seed(0))


@dataclass(frozen=True)
class Package:
    """A small conv net: its checkpoint, its module, and what `isomorph export` made of it."""

    checkpoint: Path
    module: nn.Module
    path: Path
    arguments: tuple[str, ...]

    def graph(self) -> Graph:
        """The module captured again, as the export did."""
        return isomorph.trace(self.module, args=(X,), dynamic={"x.0": "batch:1..9"})


@pytest.fixture(scope="session")
def package(tmp_path_factory, invoke, nets) -> Package:
    if cpp_compiler() is None:
        pytest.skip("AOTInductor needs a C++ compiler")
    small_nets = runpy.run_path(str(nets))
    folder = tmp_path_factory.mktemp("aotinductor")
    module = small_nets["awake"](small_nets["SmallConvNet"]())
    torch.save(module.state_dict(), folder / "net.pt")
    arguments = ("--model", f"{nets}:SmallConvNet", "-i", "x=2x3x24x24")
    arguments += ("--dynamic", "x.0=batch:1..9", "-q")
    done = invoke("export", folder / "net.pt", "-f", "aotinductor", *arguments)
    assert done.code == 0, done.stderr
    return Package(folder / "net.pt", module, folder / "net.aoti.pt2", arguments)
