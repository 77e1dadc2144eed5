"""Two ways to each format for benchmarks/operators.py: the converter's own, and Isomorph's.

A way takes a module with `tensors`, its example, and a path; it writes there and returns what
computes the file on other tensors.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

DOCS = Path(__file__).resolve().parents[1] / "docs"

Run = Callable[[tuple[torch.Tensor, ...]], list[np.ndarray]]


@dataclass(frozen=True)
class Way:
    """`label` names the stock way; `page` is the one that holds the table."""

    label: str
    suffix: str
    page: Path
    stock: Callable[[Any, Path], Run]
    ours: Callable[[Any, Path], Run]


def _ours(name: str, options: dict[str, Any]) -> Callable[[Any, Path], Run]:
    def way(module: Any, path: Path) -> Run:
        import isomorph
        from isomorph.targets import registry
        from isomorph.targets.base import Signature
        from isomorph.targets.options import build_options

        target = registry.get(name)
        graph = isomorph.trace(module, args=module.tensors)
        chosen = build_options(target.options_type, options)
        stem = path.name.removesuffix(target.suffix)
        artifact = target.convert(graph, chosen, path.parent, stem)
        session = target.open(artifact.path, "cpu", Signature(artifact.inputs, artifact.outputs))

        def run(tensors: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
            names = [spec.name for spec in session.inputs]
            feed = {key: t.numpy() for key, t in zip(names, tensors, strict=True)}
            return list(session.run(feed).values())

        return run

    return way


def _coremltools(module: Any, path: Path) -> Run:
    """Plain coremltools, as its documentation says, but for float32."""
    import coremltools as ct
    from isomorph.targets.coreml.evaluate.interpreter import run_function
    from isomorph.targets.coreml.evaluate.package import read_package
    from isomorph.targets.coreml.evaluate.types import STORAGE

    program = torch.export.export(module, module.tensors).run_decompositions({})
    model = ct.convert(
        program,
        minimum_deployment_target=ct.target.iOS18,
        compute_precision=ct.precision.FLOAT32,
        skip_model_load=True,
    )
    model.save(str(path))
    package = read_package(path)
    function = package.program.functions["main"]

    def run(tensors: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
        feed = {
            port.name: tensor.to(STORAGE[port.type.dtype]).reshape(port.type.shape)
            for port, tensor in zip(function.inputs, tensors, strict=True)
        }
        return [value.numpy() for value in run_function(function, feed).values()]

    return run


def _torch_onnx_and_rtx(module: Any, path: Path) -> Run:
    """torch.onnx.export, TensorRT for RTX's parser and builder, as their documentation says."""
    from isomorph.targets.tensorrt.build import build
    from isomorph.targets.tensorrt.evaluate.interpreter import run_network
    from isomorph.targets.tensorrt.evaluate.network import read_network
    from isomorph.targets.tensorrt.options import Settings
    from isomorph.targets.tensorrt.parse import parse
    from isomorph.targets.tensorrt.products import RTX

    onnx = path.with_suffix(".onnx")
    torch.onnx.export(module, module.tensors, dynamo=True, verbose=False).save(str(onnx))
    parsed = parse(RTX, onnx)
    path.write_bytes(build(parsed, {}, Settings(compute_capabilities=("SM86",))))
    network = read_network(parsed.module, parsed.network, parsed)

    def run(tensors: tuple[torch.Tensor, ...]) -> list[np.ndarray]:
        names = [tensor.name for tensor in network.inputs]
        found = run_network(network, dict(zip(names, tensors, strict=False)))
        return [value.numpy() for value in found.values()]

    return run


WAYS = {
    "coreml": Way(
        "stock coremltools",
        ".mlpackage",
        DOCS / "coreml.md",
        _coremltools,
        _ours("coreml", {}),
    ),
    "tensorrt-rtx": Way(
        "torch.onnx.export and TensorRT for RTX",
        ".rtx.engine",
        DOCS / "tensorrt.md",
        _torch_onnx_and_rtx,
        _ours("tensorrt-rtx", {"sm": "86"}),
    ),
}
