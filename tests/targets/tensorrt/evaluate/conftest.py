"""Small networks of a layer or an ONNX node: read as plain data, and evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.targets.tensorrt.evaluate.interpreter import run_network
from isomorph.targets.tensorrt.evaluate.network import Network, read_network
from isomorph.targets.tensorrt.logger import logger_of
from isomorph.targets.tensorrt.parse import parse
from isomorph.targets.tensorrt.products import RTX

Evaluated = Callable[..., Any]
Parsed = Callable[[onnx.ModelProto], Network]

_DTYPES = {
    **{torch.float32: trt.float32, torch.float16: trt.float16, torch.bfloat16: trt.bfloat16},
    **{torch.int32: trt.int32, torch.int64: trt.int64, torch.int8: trt.int8},
    **{torch.uint8: trt.uint8, torch.bool: trt.bool},
}


def read(
    build: Callable[..., Any], inputs: tuple[torch.Tensor, ...], shapes: Any = None
) -> Network:
    """The network that `build(network, *tensors)` makes; it returns the outputs, one or several.

    `shapes` are the declared ones, -1 for a free size; None: those of `inputs`.
    """
    builder = trt.Builder(logger_of(trt))
    network = builder.create_network()
    given = [
        network.add_input(f"x{i}", _DTYPES[value.dtype], shape)
        for i, (value, shape) in enumerate(
            zip(inputs, shapes or [tuple(v.shape) for v in inputs], strict=True)
        )
    ]
    outputs = build(network, *given)
    for output in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        network.mark_output(output)
    return read_network(trt, network, (builder, network))


@pytest.fixture
def evaluated() -> Evaluated:
    """`evaluated(build, *inputs, shapes=None)`: outputs of the network that `build` makes.

    One tensor, or a tuple where `build` returns several.
    """

    def run(build: Callable[..., Any], *inputs: torch.Tensor, shapes: Any = None) -> Any:
        network = read(build, inputs, shapes)
        found = run_network(network, {f"x{i}": value for i, value in enumerate(inputs)})
        results = tuple(found.values())
        return results[0] if len(results) == 1 else results

    return run


@pytest.fixture
def parsed(tmp_path: Path) -> Parsed:
    """`parsed(model)`: the network that TensorRT's parser makes of an ONNX model."""

    def run(model: onnx.ModelProto) -> Network:
        path = tmp_path / "model.onnx"
        onnx.save(model, str(path))
        owner = parse(RTX, path)
        return read_network(owner.module, owner.network, owner)

    return run


def run_model(network: Network, inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Outputs as arrays of a network on arrays."""
    given = {name: torch.from_numpy(value.copy()) for name, value in inputs.items()}
    return {name: value.numpy() for name, value in run_network(network, given).items()}
