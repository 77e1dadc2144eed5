"""Load a TorchScript archive or a torch.export archive, after reading what it would do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import nn

from .sniffing import FileKind

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["load_exported_program", "load_torchscript"]


def load_torchscript(source: Path, *, trust: bool) -> nn.Module:
    return torch.jit.load(str(source), map_location="cpu")


def load_exported_program(source: Path, found: FileKind, *, trust: bool) -> ExportedProgram:
    return torch.export.load(source)
