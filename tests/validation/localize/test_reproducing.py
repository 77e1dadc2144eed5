"""Reproductions run where Isomorph is not installed, also of what torch alone does not have."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import isomorph
import numpy as np
import onnx
import pytest
import torch
from isomorph.validation.checking import validate
from onnx import numpy_helper
from torch import nn


class Recurrent(nn.Module):
    """An LSTM or GRU whose states begin at zero, and a cast that names float32."""

    def __init__(self, kind: type[nn.RNNBase]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.rnn = kind(5, 6, batch_first=True)
        self.out = nn.Linear(6, 3)

    def forward(self, data: torch.Tensor) -> torch.Tensor:
        y, _ = self.rnn(data.tanh().to(torch.float32))
        return self.out(y)


def without_isomorph(script: Path, folder: Path) -> str:
    """What the script prints where `import isomorph` fails."""
    (folder / "isomorph.py").write_text("raise ImportError('not installed')\n")
    code = (
        f"import runpy, sys; sys.path.insert(0, {str(folder)!r}); runpy.run_path({str(script)!r})"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def change_onnx(path: Path) -> None:
    model = onnx.load(path)
    tensor = max(model.graph.initializer, key=lambda t: np.prod(t.dims))
    values = numpy_helper.to_array(tensor).copy()
    values.reshape(-1)[5] += 0.3
    tensor.CopyFrom(numpy_helper.from_array(values, tensor.name))
    onnx.save(model, path)


def change_openvino(path: Path, weight: torch.Tensor) -> None:
    """Gates are reordered, so a row is looked for."""
    row = weight.detach()[0].numpy()
    raw = path.read_bytes()
    assert raw.count(row.tobytes()) == 1
    path.write_bytes(raw.replace(row.tobytes(), (row + np.float32(0.3)).tobytes()))


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU])
@pytest.mark.parametrize("format", ["onnx", "openvino"])
def test_recurrent_layers_are_reproduced_with_torch_and_numpy_alone(format, kind, tmp_path):
    net = Recurrent(kind).eval()
    args = (torch.randn(2, 4, 5),)
    (made,) = isomorph.export(net, format, args=args, output=f"{tmp_path}/", budget=1).artifacts
    if format == "onnx":
        change_onnx(made.path)
    else:
        change_openvino(made.path.with_suffix(".bin"), net.rnn.weight_hh_l0)
    script = tmp_path / "repro.py"
    report = validate(made.path, net, args=args, reproduction=script)
    assert report.localization.culprit is not None
    printed = without_isomorph(script, tmp_path)
    right, wrong = map(float, re.findall(r"largest error ([^ ]+),", printed))
    assert right < 1e-5 < 1e-3 < wrong, printed
