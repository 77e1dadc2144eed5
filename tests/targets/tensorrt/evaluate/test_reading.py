"""Networks read as plain data: weights of every dtype, attributes, what getters say."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from isomorph.errors import UnverifiableError
from isomorph.targets.tensorrt.evaluate import weights as weights_module
from isomorph.targets.tensorrt.evaluate.interpreter import run_network
from onnx import TensorProto, helper


def constant(bits: np.ndarray, onnx_dtype: int):
    """A model that returns one constant of raw `bits`."""
    tensor = helper.make_tensor("c", onnx_dtype, bits.shape, bits.tobytes(), raw=True)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["c"], ["y"])],
        "g",
        [],
        [helper.make_tensor_value_info("y", onnx_dtype, bits.shape)],
        [tensor],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)], ir_version=10)


def test_bfloat16_weights_are_those_of_the_file_bit_by_bit(parsed):
    """Every bit pattern, NaNs with payloads included."""
    bits = np.arange(2**16, dtype=np.uint16)
    network = parsed(constant(bits, TensorProto.BFLOAT16))
    (found,) = run_network(network, {}).values()
    assert found.dtype == torch.bfloat16
    assert np.array_equal(found.view(torch.uint16).numpy(), bits)


def test_weights_are_refused_where_the_bindings_are_laid_out_otherwise(parsed, monkeypatch):
    monkeypatch.setattr(weights_module, "_record", lambda weights: weights_module._Weights())
    weights_module._layout_is_known.cache_clear()
    try:
        network = parsed(constant(np.arange(4, dtype=np.uint16), TensorProto.BFLOAT16))
        with pytest.raises(UnverifiableError, match="dtype that cannot be read"):
            run_network(network, {})
    finally:
        weights_module._layout_is_known.cache_clear()
