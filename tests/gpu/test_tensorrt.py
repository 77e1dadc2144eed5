"""Engines run on the GPU that they were built on, or for: `make test-gpu`.

`ISOMORPH_GPU_REHEARSAL=1` runs what a machine without a GPU can: engines for RTX, whose network
is evaluated instead.
"""

from __future__ import annotations

import os
import runpy
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import isomorph
import numpy as np
import pytest
import torch

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
BATCH = {"x.0": "batch:1..8"}
MODELS = {
    "conv net": ("SmallConvNet", (2, 3, 24, 24)),
    "transformer": ("SmallTransformer", (2, 10, 16)),
}
MODULES = {"tensorrt": "tensorrt", "tensorrt-rtx": "tensorrt_rtx"}


class Positions(torch.nn.Module):
    """Where the input is positive: as many rows as there are such places."""

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.nonzero(x > 0), x * 2


@pytest.fixture(params=MODULES)
def format(request) -> str:
    """A format whose module is installed, on a GPU that it is for."""
    require(request.param)
    return request.param


def require(format: str) -> None:
    if find_spec(MODULES[format]) is None:
        pytest.skip(f"{MODULES[format]} is not installed")
    if REHEARSAL:
        if format == "tensorrt":
            pytest.skip("TensorRT builds on a GPU only")
    elif format == "tensorrt-rtx":
        import tensorrt_rtx

        if sm() not in tensorrt_rtx.ComputeCapability.__members__:
            pytest.skip(f"TensorRT for RTX has no {sm()}")


def sm() -> str:
    """The GPU's compute capability, such as SM86."""
    major, minor = (8, 6) if REHEARSAL else torch.cuda.get_device_capability()
    return f"SM{major}{minor}"


def options(format: str) -> dict[str, str] | None:
    return {"sm": sm()} if format == "tensorrt-rtx" else None


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("model", MODELS)
def test_an_engine_passes(format, model, precision, record, tmp_path):
    name, shape = MODELS[model]
    torch.manual_seed(0)
    module = NETS["awake"](NETS[name]())
    (artifact,) = isomorph.export(
        module,
        format,
        args=(torch.randn(*shape),),
        dynamic=BATCH,
        precision=precision,
        devices=(DEVICE,),
        options=options(format),
        output=f"{tmp_path}/",
    ).artifacts
    record(f"{model}, {precision}", format, artifact.report)
    assert artifact.verdict == "pass", artifact.report.reason
    assert artifact.evidence.kind == ("evaluated" if REHEARSAL else "executed")
    assert artifact.evidence.device == DEVICE
    if not REHEARSAL:
        layers = artifact.evidence.details["layers by precision"]
        assert ("float16" in str(layers)) is (precision == "fp16"), layers
    again = isomorph.validate(artifact.path, module, args=(torch.randn(*shape),), device=DEVICE)
    assert again.verdict == "pass", again.reason


@pytest.mark.skipif(REHEARSAL, reason="engines run on a GPU only")
def test_an_output_whose_size_depends_on_values(record, tmp_path):
    """On TensorRT alone: its product for RTX has no NonZero."""
    require("tensorrt")
    (artifact,) = isomorph.export(
        Positions().eval(),
        "tensorrt",
        args=(torch.randn(2, 8),),
        dynamic=BATCH,
        devices=(DEVICE,),
        output=f"{tmp_path}/",
    ).artifacts
    record("nonzero", "tensorrt", artifact.report)
    assert artifact.verdict == "pass", artifact.report.reason
    with isomorph.load(artifact.path, device=DEVICE) as session:
        for x in (np.ones((4, 8), np.float32), -np.ones((1, 8), np.float32)):
            rows, doubled = session.run({"x": x}).values()
            np.testing.assert_array_equal(rows, np.argwhere(x > 0))
            np.testing.assert_array_equal(doubled, x * 2)


@pytest.mark.skipif(REHEARSAL, reason="kernels are timed on a GPU only")
def test_timings_are_kept_for_the_next_build(tmp_path):
    """The second build may not time anything: TensorRT fails where it would have to."""
    require("tensorrt")
    from isomorph.targets.tensorrt.build import build
    from isomorph.targets.tensorrt.making import write_network
    from isomorph.targets.tensorrt.options import Settings
    from isomorph.targets.tensorrt.parse import parse
    from isomorph.targets.tensorrt.products import TENSORRT

    graph = isomorph.trace(
        NETS["awake"](NETS["SmallConvNet"]()), args=(torch.randn(2, 3, 24, 24),), dynamic=BATCH
    )
    network = write_network(graph, None, None, tmp_path, "net")
    cache = tmp_path / "timings"
    settings = Settings(timing_cache=str(cache))
    build(parse(TENSORRT, network.onnx.path), network.profile, settings)
    assert cache.stat().st_size > 0
    strict = replace(settings, flags=("ERROR_ON_TIMING_CACHE_MISS",))
    build(parse(TENSORRT, network.onnx.path), network.profile, strict)


@pytest.mark.skipif(REHEARSAL, reason="engines run on a GPU only")
def test_nothing_is_left_on_the_gpu_and_runs_are_timed(format, tmp_path):
    from isomorph.targets.tensorrt.driver import Cuda
    from isomorph.targets.tensorrt.logger import logger_of
    from isomorph.targets.tensorrt.products import RTX, TENSORRT
    from isomorph.targets.tensorrt.running import EngineRunner

    (artifact,) = isomorph.export(
        NETS["awake"](NETS["SmallConvNet"]()),
        format,
        args=(torch.randn(2, 3, 24, 24),),
        dynamic=BATCH,
        options=options(format),
        validate=False,
        output=f"{tmp_path}/",
    ).artifacts
    module = (RTX if format == "tensorrt-rtx" else TENSORRT).load()
    engine, x = artifact.path.read_bytes(), np.ones((8, 3, 24, 24), np.float32)
    cuda, free = Cuda(), []
    try:
        # What the libraries load once stays; what a runner makes must not grow with runners.
        for _ in range(4):
            with EngineRunner(module, engine, logger_of(module)) as runner:
                assert 0 < runner.times({"x": x}, 5) < 60
            cuda.use()
            free.append(cuda.memory()[0])
    finally:
        cuda.close()
    assert free[1] - free[-1] < 16 << 20
