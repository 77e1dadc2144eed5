"""Every kind of checkpoint that is loaded also exports, with the axes that were asked for."""

import runpy

import isomorph
import pytest
import torch
from isomorph.exporter.signature import Dim
from safetensors.torch import save_file

INPUT = ["2x3x24x24"]


@pytest.fixture(scope="module")
def network(nets):
    loaded = runpy.run_path(str(nets), run_name="small_nets")
    return loaded["awake"](loaded["SmallConvNet"]())


class Inner(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = torch.nn.Conv2d(3, 4, 3)

    def forward(self, x):
        return torch.relu(self.conv(x)).mean((2, 3))


def write_scripted(folder, network):
    torch.jit.script(Inner().eval()).save(folder / "m.pt")
    return {"inputs": INPUT, "dynamic": {"x.0": "batch:1..4"}}


def write_traced(folder, network):
    torch.jit.trace(Inner().eval(), torch.randn(2, 3, 24, 24)).save(folder / "m.pt")
    return {"inputs": INPUT, "dynamic": {"x.0": "batch:1..4"}}


def write_module(folder, network):
    layers = (torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4), torch.nn.Flatten())
    torch.save(torch.nn.Sequential(*layers), folder / "m.pt")
    return {"inputs": INPUT, "dynamic": {"input.0": "batch:1..4"}}


def write_program(folder, network):
    batch = torch.export.Dim("batch", min=1, max=4)
    program = torch.export.export(
        network, (torch.randn(2, 3, 24, 24),), dynamic_shapes={"x": {0: batch}}
    )
    torch.export.save(program, folder / "m.pt2")
    return {}


def write_safetensors(folder, network):
    save_file(network.state_dict(), folder / "m.safetensors")
    return {"model": "NETS", "inputs": INPUT, "dynamic": {"x.0": "batch:1..4"}}


def write_training_state(folder, network):
    weights = {f"module.{name}": value for name, value in network.state_dict().items()}
    torch.save({"epoch": 3, "optimizer": {}, "state_dict": weights}, folder / "m.ckpt")
    return {"model": "NETS", "inputs": INPUT, "dynamic": {"x.0": "batch:1..4"}}


WRITERS = (
    write_scripted,
    write_traced,
    write_module,
    write_program,
    write_safetensors,
    write_training_state,
)


@pytest.mark.parametrize("write", WRITERS, ids=lambda f: f.__name__.removeprefix("write_"))
def test_it_exports_and_passes_with_a_dynamic_batch(write, network, nets, tmp_path):
    request = write(tmp_path, network)
    if "model" in request:
        request["model"] = f"{nets}:SmallConvNet"
    (source,) = tmp_path.iterdir()
    result = isomorph.export(source, output=tmp_path / "out.onnx", **request)
    assert result.verdict == "pass"
    with isomorph.load(tmp_path / "out.onnx") as session:
        (spec,) = session.inputs
        assert isinstance(spec.shape[0], Dim)
        assert all(isinstance(size, int) for size in spec.shape[1:])
