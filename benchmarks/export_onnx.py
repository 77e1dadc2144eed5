"""Isomorph against a bare script: whole-process wall time and peak anonymous memory.

    python benchmarks/export_onnx.py [--models resnet50,vit_b_16,stack] [--repeat 3]

Both sides run in one go, alternating, on the same checkpoint file. The bare
script is what people write: build the model, torch.load, load_state_dict,
torch.onnx.export(dynamo=True), save; then the same with one ONNX Runtime
comparison; then with TensorRT for RTX's parser and builder. The table gives
medians and the ratio Isomorph / script; weights are random. Needs torchvision,
tensorrt-rtx and about 8 GB of disk.
"""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from measure import Measured, measure

HERE = Path(__file__).resolve().parent

MODELS = {
    "resnet50": ("torchvision:resnet50", "1x3x224x224"),
    "vit_b_16": ("torchvision:vit_b_16", "1x3x224x224"),
    "stack": (f"{HERE / 'stack.py'}:Stack", "1x8192"),
}

_BUILD = {
    "resnet50": "from torchvision.models import resnet50 as Net",
    "vit_b_16": "from torchvision.models import vit_b_16 as Net",
    "stack": f"import sys; sys.path.insert(0, {str(HERE)!r}); from stack import Stack as Net",
}

_MAKE = """
import torch
{build}
torch.manual_seed(0)
torch.save(Net().state_dict(), {path!r})
"""

_SCRIPT = """
import torch
{build}
model = Net()
model.load_state_dict(torch.load({path!r}))
model.eval()
x = torch.randn({shape})
program = torch.onnx.export(model, (x,), dynamo=True)
program.save("script.onnx")
"""

_COMPARE = """
import numpy, onnxruntime
with torch.no_grad():
    wanted = model(x).numpy()
session = onnxruntime.InferenceSession("script.onnx")
(got,) = session.run(None, {session.get_inputs()[0].name: x.numpy()})
numpy.testing.assert_allclose(got, wanted, rtol=1e-3, atol=1e-3)
"""

_ENGINE = """
import tensorrt_rtx as trt
logger = trt.Logger(trt.Logger.ERROR)
builder = trt.Builder(logger)
network = builder.create_network()
parser = trt.OnnxParser(network, logger)
assert parser.parse_from_file("script.onnx")
config = builder.create_builder_config()
config.num_compute_capabilities = 1
config.set_compute_capability(trt.ComputeCapability.SM86, 0)
with open("script.engine", "wb") as file:
    file.write(builder.build_serialized_network(network, config))
"""
_RTX = ("-f", "tensorrt-rtx", "--set", "sm=86", "-o", "ours.rtx.engine")

# Isomorph's flags, and what the script does after it wrote the ONNX file.
_DUELS = {
    "export --no-validate / script": (("-o", "ours.onnx", "--no-validate"), ""),
    "export / script + one comparison": (("-o", "ours.onnx"), _COMPARE),
    "-f tensorrt-rtx --no-validate / script": ((*_RTX, "--no-validate"), _ENGINE),
}


def duel(name: str, folder: Path, repeat: int) -> dict[str, dict[str, float]]:
    """Medians of both sides for both duels on one model."""
    spec, shape = MODELS[name]
    checkpoint = folder / f"{name}.pt"
    made = measure(
        [sys.executable, "-c", _MAKE.format(build=_BUILD[name], path=str(checkpoint))], folder
    )
    _check(made, "making the checkpoint")
    results: dict[str, dict[str, float]] = {}
    for title, (flags, then) in _DUELS.items():
        script = _SCRIPT.format(
            build=_BUILD[name], path=str(checkpoint), shape=shape.replace("x", ", ")
        )
        script += then
        ours = [
            *(sys.executable, "-m", "isomorph", "export", str(checkpoint)),
            *("--model", spec, "-i", shape, "--json", *flags),
        ]
        sides: dict[str, list[Measured]] = {"script": [], "isomorph": []}
        for _ in range(repeat):
            for side, command in (
                ("script", [sys.executable, "-c", script]),
                ("isomorph", ours),
            ):
                found = measure(command, folder, warm=[checkpoint])
                _check(found, f"{title}: {side}")
                sides[side].append(found)
                for path in (*folder.glob("script.*"), *folder.glob("ours.*")):
                    path.unlink()
        results[title] = _summary(sides)
    checkpoint.unlink()
    return results


def _check(found: Measured, what: str) -> None:
    if found.code != 0:
        raise SystemExit(f"{what} failed with {found.code}:\n{found.output}")


def _summary(sides: dict[str, list[Measured]]) -> dict[str, float]:
    time = {k: statistics.median(m.seconds for m in v) for k, v in sides.items()}
    memory = {k: statistics.median(m.peak_anonymous for m in v) for k, v in sides.items()}
    return {
        "script_s": time["script"],
        "isomorph_s": time["isomorph"],
        "time_ratio": time["isomorph"] / time["script"],
        "script_MB": memory["script"] / 1e6,
        "isomorph_MB": memory["isomorph"] / 1e6,
        "memory_ratio": memory["isomorph"] / memory["script"],
    }


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--models", default=",".join(MODELS))
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--folder", type=Path, help="where to work (default: a temporary folder)")
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args(argv)
    folder = Path(tempfile.mkdtemp(dir=arguments.folder))
    try:
        found = {m: duel(m, folder, arguments.repeat) for m in arguments.models.split(",")}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if arguments.json:
        print(json.dumps(found, indent=2))
        return
    print(f"{'model':10s} {'comparison':38s} {'script':>16s} {'isomorph':>16s}   time  memory")
    for model, duels in found.items():
        for title, r in duels.items():
            print(
                f"{model:10s} {title:38s} {r['script_s']:6.1f} s {r['script_MB']:5.0f} MB "
                f"{r['isomorph_s']:6.1f} s {r['isomorph_MB']:5.0f} MB "
                f"{r['time_ratio']:5.2f}x {r['memory_ratio']:6.2f}x"
            )


if __name__ == "__main__":
    main()
