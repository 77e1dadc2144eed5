"""What the TensorRT target writes, with a builder that writes a few bytes."""

from __future__ import annotations

import isomorph
import pytest
from isomorph.errors import UsageError
from isomorph.targets.tensorrt import making, opening, target
from isomorph.targets.tensorrt.options import TensorRtOptions
from isomorph.targets.tensorrt.target import TensorRtTarget


@pytest.mark.parametrize(
    ("device", "told"),
    [("cpu", "run on a GPU only"), ("cuda:1", "first GPU, not on cuda:1"), ("tpu", "device tpu")],
)
def test_devices_that_it_does_not_run_on_are_usage_errors(tmp_path, device, told):
    with pytest.raises(UsageError, match=told):
        TensorRtTarget().open(tmp_path / "net.engine", device)


@pytest.mark.parametrize("stripped", [False, True])
def test_only_a_stripped_engine_has_its_network_beside_it(linear, tmp_path, monkeypatch, stripped):
    monkeypatch.setattr(target, "require", lambda *_: None)
    monkeypatch.setattr(opening, "demand_gpu", lambda _: None)
    built = []

    def make_engine(product, network, settings, path):
        built.append(network.onnx.path.read_bytes())
        path.write_bytes(b"ftrt")

    monkeypatch.setattr(making, "make_engine", make_engine)
    graph = isomorph.trace(linear, inputs=["x=2x8"])
    made = TensorRtTarget()
    artifact = made.convert(graph, TensorRtOptions(strip_plan=stripped), tmp_path, "net")
    written = sorted(path.name for path in tmp_path.iterdir())
    assert written == ["net.engine", *(["net.engine.onnx"] if stripped else [])]
    assert sorted(path.name for path in artifact.files) == written
    assert set(written) <= set(made.files("net"))
    if stripped:
        assert (tmp_path / "net.engine.onnx").read_bytes() == built[0]
