"""Small networks of a layer or an ONNX node: read as plain data, and evaluated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import ConversionError, UnverifiableError
from isomorph.targets.tensorrt.evaluate.interpreter import run_network
from isomorph.targets.tensorrt.evaluate.network import Network, read_network
from isomorph.targets.tensorrt.logger import logger_of
from isomorph.targets.tensorrt.parse import parse
from isomorph.targets.tensorrt.products import RTX
from onnx import helper, numpy_helper

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


@pytest.fixture
def seen() -> Callable[..., bool]:
    """`seen(build, inputs, kind, attribute=value)`: whether a changed attribute shows.

    It shows when the output changes or the evaluation is refused. The unchanged network must
    evaluate.
    """

    def run(
        build: Callable[..., Any], inputs: tuple[torch.Tensor, ...], kind: str, /, **changes: Any
    ) -> bool:
        network = read(build, inputs)
        feed = {f"x{i}": value for i, value in enumerate(inputs)}
        (layer,) = (layer for layer in network.layers if layer.kind == kind)
        assert set(changes) <= set(layer.attributes)
        assert not any(np.array_equal(layer.attributes[n], value) for n, value in changes.items())
        other = replace(layer, attributes={**layer.attributes, **changes})
        layers = tuple(other if each is layer else each for each in network.layers)
        before = run_network(network, feed)
        try:
            after = run_network(replace(network, layers=layers), feed)
        except (ConversionError, UnverifiableError):
            return True
        return any(not torch.equal(before[name], after[name]) for name in before)

    return run


@pytest.fixture
def against_onnxruntime(parsed: Parsed) -> Callable[..., None]:
    """`against_onnxruntime(node, inputs, constants={}, opset=20)`: both agree.

    `node` is an ONNX operator whose inputs are named in `inputs` and `constants`.
    """

    def run(
        node: onnx.NodeProto,
        inputs: Mapping[str, np.ndarray[Any, Any]],
        constants: Mapping[str, np.ndarray[Any, Any]] | None = None,
        opset: int = 20,
        rtol: float = 1e-5,
    ) -> None:
        graph = helper.make_graph(
            [node],
            "g",
            [_info(name, value) for name, value in inputs.items()],
            [helper.make_empty_tensor_value_info(name) for name in node.output],
            [numpy_helper.from_array(value, name) for name, value in (constants or {}).items()],
        )
        model = helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=9
        )
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"]
        )
        wanted = session.run(None, dict(inputs))
        del model.graph.output[:]
        model.graph.output.extend(map(_info, node.output, wanted))
        found = run_model(parsed(model), inputs)
        for name, want in zip(node.output, wanted, strict=True):
            np.testing.assert_allclose(found[name], want, rtol=rtol, atol=1e-6, strict=True)

    return run


def _info(name: str, value: np.ndarray[Any, Any]) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(
        name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
    )


def run_model(network: Network, inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, Any]:
    """Outputs as arrays of a network on arrays."""
    given = {name: torch.from_numpy(value.copy()) for name, value in inputs.items()}
    return {name: value.numpy() for name, value in run_network(network, given).items()}
