"""Checkpoints that other people trained export and pass, with dynamic batch and image size."""

import pytest


@pytest.mark.parametrize("name", ["pnet", "rnet", "onet", "mobilenetv2"])
def test_a_real_checkpoint_exports_and_passes(name, real_checkpoints, invoke, tmp_path):
    real = real_checkpoints[name]
    dynamic = [part for text in real.dynamic for part in ("--dynamic", text)]
    done = invoke(
        *("export", real.weights, "--model", real.model, "-i", real.input, *dynamic),
        *("-o", tmp_path / f"{name}.onnx", "--json", "--require", "executed"),
    )
    assert done.code == 0, done.stderr
    (artifact,) = done.json["artifacts"]
    assert artifact["verdict"] == "pass"
    assert all(output["verdict"] == "pass" for output in artifact["outputs"])
