"""What runs on a CUDA GPU computes what the CPU computes: `make test-gpu`.

Captures here, and judges with the same rule as everything else: the truth is the
float64 reference made on the CPU. `ISOMORPH_GPU_REHEARSAL=1` runs all of it on the
CPU, to see that the script works before a GPU is borrowed.
"""

from __future__ import annotations

import os
import runpy
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import MissingRequirementError
from isomorph.exporter.source import Request, open_source
from isomorph.progress import Silent
from isomorph.targets import registry
from isomorph.targets.base import Evidence
from isomorph.validation.checking import make_reference, validate_on
from isomorph.validation.parity import judge

REHEARSAL = os.environ.get("ISOMORPH_GPU_REHEARSAL") == "1"
DEVICE = "cpu" if REHEARSAL else "cuda"

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not (REHEARSAL or torch.cuda.is_available()),
        reason="no CUDA device: torch.cuda.is_available() is False",
    ),
]

NETS = runpy.run_path(str(Path(__file__).parents[1] / "models" / "small_nets.py"))


class Recurrent(torch.nn.Module):
    """An LSTM over [batch, time, 8]."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = torch.nn.LSTM(8, 16, num_layers=2, batch_first=True)
        self.head = torch.nn.Linear(16, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.lstm(x)[0])


MODELS = {
    "conv net": (NETS["SmallConvNet"], (2, 3, 24, 24), {"x.0": "batch:1..8"}),
    "transformer": (NETS["SmallTransformer"], (2, 10, 16), {"x.0": "batch:1..8"}),
    "LSTM": (Recurrent, (2, 6, 8), {"x.0": "batch:1..8", "x.1": "time:1..16"}),
}


@pytest.fixture(scope="module", params=MODELS)
def model(request) -> tuple[str, torch.nn.Module, tuple[int, ...], dict[str, str]]:
    build, shape, dynamic = MODELS[request.param]
    torch.manual_seed(0)
    return request.param, NETS["awake"](build()), shape, dynamic


@contextmanager
def tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32, torch.backends.cudnn.allow_tf32 = before


class EagerSession:
    """The user's module on the device, as if it were an artifact."""

    def __init__(self, graph: Any, module: torch.nn.Module) -> None:
        self.inputs, self.outputs = graph.inputs, graph.outputs
        self.evidence = Evidence("executed", "torch", torch.__version__, DEVICE)
        self._graph = graph
        self._module = module

    def run(self, inputs: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        given = {name: torch.from_numpy(value).to(DEVICE) for name, value in inputs.items()}
        found = self._graph.call.call(self._module, given)
        return {name: value.cpu().numpy() for name, value in found.items()}


@pytest.fixture(scope="module")
def eager(model):
    """Judges the module itself on the device, TF32 on or off, against the truth."""
    _, module, shape, dynamic = model
    request = Request(None, (torch.randn(*shape),), None, None, dynamic, False, ())
    source = open_source(module, request, Silent())
    reference = make_reference(source.capture, module, [], Silent())
    graph = source.capture.graph

    def judged(allow: bool):
        try:
            with tf32(allow):
                return judge(graph, reference, EagerSession(graph, module.to(DEVICE)))
        finally:
            module.cpu()

    return judged


def test_eager_on_the_gpu_is_within_the_floor_without_tf32(model, eager, record):
    report = eager(False)
    record(model[0], "eager, TF32 off", report)
    assert report.verdict == "pass", report.reason


def test_tf32_is_seen(model, eager, record):
    report = eager(True)
    record(model[0], "eager, TF32 on", report)
    if not REHEARSAL and model[0] != "LSTM":
        assert report.verdict == "fail", "TF32 is a fault of three decimal digits"


@pytest.mark.parametrize("format", ["torchscript", "aotinductor", "onnx"])
def test_a_format_on_the_gpu_passes(model, format, record, tmp_path):
    name, module, shape, dynamic = model
    if format not in registry.names():
        pytest.skip(f"there is no format {format}")
    options = {"device": DEVICE} if format == "aotinductor" else None
    try:
        result = isomorph.export(
            module,
            format,
            args=(torch.randn(*shape),),
            dynamic=dynamic,
            devices=(DEVICE,),
            options=options,
            output=f"{tmp_path}/",
        )
    except MissingRequirementError as lacking:
        record(name, format, None, lacking.message)
        pytest.skip(lacking.message)
    (artifact,) = result.artifacts
    record(name, format, artifact.report)
    assert artifact.evidence.device.startswith(DEVICE)
    assert artifact.verdict == "pass", artifact.report.reason


def test_one_command_checks_the_cpu_and_the_gpu(model, record, tmp_path):
    """TorchScript files run on both; each has the floor of eager there."""
    name, module, shape, dynamic = model
    (artifact,) = isomorph.export(
        module, "torchscript", args=(torch.randn(*shape),), dynamic=dynamic, output=f"{tmp_path}/"
    ).artifacts
    reports = validate_on(
        tuple(dict.fromkeys(("cpu", DEVICE))),
        artifact.path,
        module,
        args=(torch.randn(*shape),),
        dynamic=dynamic,
        require="executed",
    )
    for report in reports:
        record(name, f"torchscript on {report.evidence.device}, both at once", report)
        assert report.verdict == "pass", report.reason
    assert reports[0].eager_difference == ()
    if not REHEARSAL:
        (difference,) = reports[1].eager_difference
        assert difference.max_abs is not None
