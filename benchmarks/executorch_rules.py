"""What the rewrites of targets/executorch/rules.py bring in exactness and cost in speed.

    python benchmarks/executorch_rules.py [--repeat 20]

Each module is lowered twice for each backend: by executorch alone, as its own guide does it, and by
Isomorph. The first table gives the RMS error against float64 as a multiple of eager torch's own,
the second the time of a run on one thread, median, and the ratio ours / stock. Needs torchvision.
"""

from __future__ import annotations

import argparse
import logging
import statistics
import tempfile
import time
import warnings
from pathlib import Path
from typing import Any

import isomorph
import torch
from isomorph.exporter.flattening import flat_program
from isomorph.targets.executorch.native_log import native_log
from isomorph.targets.executorch.target import ExecuTorchOptions, ExecuTorchTarget
from torch import nn
from torch.nn import functional

ALIKE = {
    "gelu(tanh)": lambda x: functional.gelu(x, approximate="tanh"),
    "group norm, around 3": lambda x: functional.group_norm(x + 3, 8),
    "instance norm, around 3": lambda x: functional.instance_norm(x + 3),
    "layer norm of 32, around 3": lambda x: functional.layer_norm(x + 3, (32,)),
    "layer norm of 32, around 30": lambda x: functional.layer_norm(x + 30, (32,)),
    "layer norm of 32, around 0": lambda x: functional.layer_norm(x, (32,)),
    "layer norm of 1024, around 0": lambda x: functional.layer_norm(x.flatten(2), (1024,)),
    "mean of everything": lambda x: (x + 1).mean(),
    "mean of the last axis": lambda x: (x + 1).mean(-1),
    "mean of the last two axes": lambda x: (x + 1).mean((2, 3)),
    "adaptive average pooling to 1": lambda x: functional.adaptive_avg_pool2d(x + 1, 1),
    "sum of the first axis": lambda x: (x + 1).reshape(4096, 64).sum(0),
    "sum of the last two axes": lambda x: (x + 1).sum((2, 3)),
    "variance of the last two axes": lambda x: x.var((2, 3)),
    "softmax of the last axis": lambda x: functional.softmax(x * 3, -1),
    "softmax of axis 1": lambda x: functional.softmax(x * 3, 1),
}


class Of(nn.Module):
    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: torch.Tensor) -> Any:
        return self.function(x)


def transformer() -> tuple[nn.Module, torch.Tensor]:
    layer = nn.TransformerEncoderLayer(256, 4, 1024, batch_first=True, activation="gelu")
    return nn.TransformerEncoder(layer, 4, enable_nested_tensor=False), torch.randn(1, 128, 256)


def mobilenet() -> tuple[nn.Module, torch.Tensor]:
    from torchvision.models import mobilenet_v2

    return mobilenet_v2(), torch.randn(1, 3, 224, 224)


def stock(graph: Any, backend: str, path: Path) -> Path:
    """The file that executorch's guide makes."""
    from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
    from executorch.exir import to_edge_transform_and_lower

    partitioner = [XnnpackPartitioner()] if backend == "xnnpack" else None
    edge = to_edge_transform_and_lower(flat_program(graph), partitioner=partitioner)
    path.write_bytes(edge.to_executorch().buffer)
    return path


def loaded(path: Path) -> Any:
    from executorch.runtime import Runtime

    with native_log():
        program = Runtime.get().load_program(path)
        return program, program.load_method("forward")


def sides(module: nn.Module, x: torch.Tensor, backend: str, folder: Path) -> tuple[Any, Any]:
    """The loaded programs, stock and ours."""
    graph = isomorph.trace(module.eval(), args=(x,))
    ours = ExecuTorchTarget().convert(graph, ExecuTorchOptions(backend), folder, "ours").path
    return loaded(stock(graph, backend, folder / "stock.pte")), loaded(ours)


def rms(found: torch.Tensor, truth: torch.Tensor) -> float:
    return float((found.double() - truth).square().mean().sqrt())


def exactness(folder: Path) -> None:
    print(f"{'error / eager':32}" + "".join(f"{b:>20}" for b in ("xnnpack", "portable")))
    x = torch.randn(4, 64, 32, 32, generator=torch.Generator().manual_seed(0))
    for name, function in ALIKE.items():
        truth = function(x.double())
        eager = rms(function(x), truth)
        cells = []
        for backend in ("xnnpack", "portable"):
            pair = sides(Of(function), x, backend, folder)
            errors = [rms(method.execute([x])[0], truth) / eager for _, method in pair]
            cells.append(f"{errors[0]:10.1f} > {errors[1]:5.1f}")
        print(f"{name:32}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


def speed(folder: Path, repeat: int) -> None:
    print(f"\n{'ms a run':32}{'stock':>10}{'ours':>10}{'ratio':>8}")
    for name, make in (("mobilenet_v2", mobilenet), ("transformer encoder", transformer)):
        module, x = make()
        pair = sides(module, x, "xnnpack", folder)
        times: list[list[float]] = [[], []]
        for _ in range(repeat):
            for (_, method), kept in zip(pair, times, strict=True):
                start = time.perf_counter()
                method.execute([x])
                kept.append(time.perf_counter() - start)
        stocks, ours = (1000 * statistics.median(kept) for kept in times)
        print(f"{name:32}{stocks:10.2f}{ours:10.2f}{ours / stocks:8.2f}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repeat", type=int, default=20)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.disable(logging.WARNING)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder, torch.no_grad():
        speed(Path(folder), arguments.repeat)
        exactness(Path(folder))


if __name__ == "__main__":
    main()
