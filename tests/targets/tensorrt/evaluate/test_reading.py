"""Networks read as plain data: weights of every dtype, loops, what getters say."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import numpy as np
import onnx
import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import ConversionError, UnverifiableError
from isomorph.targets.tensorrt.evaluate import weights as weights_module
from isomorph.targets.tensorrt.evaluate.interpreter import run_network
from isomorph.targets.tensorrt.evaluate.network import read_network
from isomorph.targets.tensorrt.logger import collected_errors, logger_of
from onnx import TensorProto, helper

Evaluated = Callable[..., Any]


def constant(bits: np.ndarray[Any, Any], dtype: int, size: int | None = None) -> onnx.ModelProto:
    """A model that returns one constant of raw `bits`."""
    shape = [bits.size if size is None else size]
    tensor = helper.make_tensor("c", dtype, shape, bits.tobytes(), raw=True)
    output = helper.make_tensor_value_info("y", dtype, shape)
    node = helper.make_node("Identity", ["c"], ["y"])
    graph = helper.make_graph([node], "g", [], [output], [tensor])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_bfloat16_weights_are_those_of_the_file_bit_by_bit(parsed: Any) -> None:
    """Every bit pattern, NaNs with payloads included."""
    bits = np.arange(2**16, dtype=np.uint16)
    network = parsed(constant(bits, TensorProto.BFLOAT16))
    (found,) = run_network(network, {}).values()
    assert found.dtype == torch.bfloat16
    assert np.array_equal(found.view(torch.uint16).numpy(), bits)


@pytest.mark.parametrize("dtype", [TensorProto.BFLOAT16, TensorProto.FLOAT16])
def test_outputs_are_no_views_of_weights(parsed: Any, dtype: int) -> None:
    """Their memory goes with the network."""
    network = parsed(constant(np.arange(4, dtype=np.uint16), dtype))
    held = next(layer for layer in network.layers if layer.kind == "CONSTANT").attributes["weights"]
    address = getattr(held, "bits", held).ctypes.data
    (found,) = run_network(network, {}).values()
    assert found.data_ptr() != address


def test_fp8_weights_are_those_that_were_given() -> None:
    bits = np.arange(2**8, dtype=np.uint8)
    builder = trt.Builder(logger_of(trt))
    network = builder.create_network()
    weights = trt.Weights(trt.fp8, bits.ctypes.data, bits.size)
    network.add_constant((16, 16), weights)
    (layer,) = read_network(trt, network, (builder, network, bits)).layers
    found = layer.attributes["weights"]
    assert found.dtype == "float8_e4m3fn"
    assert np.array_equal(found.bits, bits)


def test_bfloat16_kernels_and_biases(parsed: Any) -> None:
    rng = np.random.default_rng(0)
    values = {
        name: torch.from_numpy(rng.standard_normal(shape, np.float32)).to(torch.bfloat16)
        for name, shape in (("x", (1, 2, 5, 5)), ("w", (3, 2, 3, 3)), ("b", (3,)))
    }
    held = [
        helper.make_tensor(
            name,
            TensorProto.BFLOAT16,
            values[name].shape,
            values[name].view(torch.int16).numpy().tobytes(),
            raw=True,
        )
        for name in ("w", "b")
    ]
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"])],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.BFLOAT16, [1, 2, 5, 5])],
        [helper.make_tensor_value_info("y", TensorProto.BFLOAT16, [1, 3, 3, 3])],
        held,
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
    network = parsed(model)
    assert [layer.kind for layer in network.layers] == ["CONVOLUTION"]
    x, w, b = (value.float() for value in values.values())
    expected = torch.nn.functional.conv2d(x, w, b).to(torch.bfloat16)
    assert torch.equal(run_network(network, {"x": values["x"]})["y"], expected)


def test_a_probe_shows_whether_the_bindings_are_laid_out_as_expected(monkeypatch: Any) -> None:
    known = weights_module._layout_is_known.__wrapped__
    assert known(trt)
    monkeypatch.setattr(weights_module, "_record", lambda weights: weights_module._Weights())
    assert not known(trt)


@pytest.mark.parametrize("known", [True, False])
def test_weights_are_refused_where_the_bindings_are_laid_out_otherwise(
    parsed: Any, monkeypatch: Any, known: bool
) -> None:
    """Where the probe shows that, and where only these weights contradict their record."""
    monkeypatch.setattr(weights_module, "_layout_is_known", lambda module: known)
    if known:
        monkeypatch.setattr(weights_module, "_record", lambda weights: weights_module._Weights())
    network = parsed(constant(np.arange(4, dtype=np.uint16), TensorProto.BFLOAT16))
    with pytest.raises(UnverifiableError, match="dtype that cannot be read"):
        run_network(network, {})


def test_int4_weights_are_refused(parsed: Any) -> None:
    network = parsed(constant(np.arange(2, dtype=np.uint8), TensorProto.INT4, size=4))
    with pytest.raises(UnverifiableError, match="dtype that cannot be read"):
        run_network(network, {})


def test_what_getters_complain_of_reaches_nobody(caplog: Any) -> None:
    """Properties that inputs stand in for, which the library's getters warn about."""
    builder = trt.Builder(logger_of(trt))
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (-1, 3))
    sizes = network.add_shape(x).get_output(0)
    slice_ = network.add_slice(x, (0, 0), (1, 1), (1, 1))
    slice_.set_input(2, sizes)
    shuffle = network.add_shuffle(x)
    shuffle.set_input(1, sizes)
    fill = network.add_fill((1, 1), trt.FillOperation.LINSPACE, trt.int32)
    fill.set_input(0, sizes)
    resize = network.add_resize(x)
    resize.set_input(1, sizes)
    one = network.add_constant((), np.array([1], np.int32)).get_output(0)
    top = network.add_topk(x, trt.TopKOperation.MAX, 1, 2)
    top.set_input(1, one)
    with caplog.at_level(logging.INFO), collected_errors() as errors:
        found = read_network(trt, network, (builder, network))
    assert not caplog.records
    assert not errors
    kinds = {layer.kind: layer for layer in found.layers}
    assert kinds["SLICE"].attributes["shape"] is None
    assert kinds["SHUFFLE"].attributes["reshape_dims"] is None


def test_loops_of_one_name_are_told_apart(evaluated: Evaluated) -> None:
    def doubled(net: Any, x: Any, n: Any) -> Any:
        turns = net.add_loop()
        turns.name = "the same"
        turns.add_trip_limit(n, trt.TripLimit.COUNT)
        value = turns.add_recurrence(x)
        held = value.get_output(0)
        value.set_input(
            1, net.add_elementwise(held, held, trt.ElementWiseOperation.SUM).get_output(0)
        )
        return turns.add_loop_output(held, trt.LoopOutput.LAST_VALUE).get_output(0)

    def build(net: Any, x: Any, n: Any, m: Any) -> Any:
        return doubled(net, doubled(net, x, n), m)

    counts = (torch.tensor(count, dtype=torch.int32) for count in (2, 3))
    assert evaluated(build, torch.tensor([1.0]), *counts).tolist() == [32.0]


def test_a_network_that_is_not_valid_is_told_so() -> None:
    builder = trt.Builder(logger_of(trt))
    network = builder.create_network()
    x = network.add_input("x", trt.float32, (2, 3))
    network.add_elementwise(
        x, network.add_input("y", trt.float32, (4, 5)), trt.ElementWiseOperation.SUM
    )
    with pytest.raises(ConversionError, match="not valid"):
        read_network(trt, network, (builder, network))
