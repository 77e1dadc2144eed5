"""A sample of ONNX's own operator tests; benchmarks/tensorrt_onnx_nodes.py runs them all.

One or two for each layer type that the parser makes, and those that have shown a fault.
"""

from __future__ import annotations

import importlib
import warnings
from typing import Any

import numpy as np
import onnx
import pytest
import torch
from isomorph.targets.tensorrt.evaluate.interpreter import run_network

# The module of onnx.backend.test.case.node, and the tests in it.
SAMPLE = {
    "argmax": ["argmax_default_axis_random"],
    "averagepool": ["averagepool_2d_pads_count_include_pad"],
    "batch_normalization": ["batchnorm_epsilon"],
    "cast": ["cast_FLOAT_to_FLOAT16", "cast_FLOAT_to_BFLOAT16"],
    "clip": ["clip_outbounds"],
    "concat": ["concat_3d_axis_negative_1"],
    "conv": ["conv_with_strides_and_asymmetric_padding"],
    "convtranspose": ["convtranspose_pad", "convtranspose_output_shape"],
    "cumsum": ["cumsum_2d_int32"],
    "depthtospace": ["depthtospace_crd_mode_example"],
    "einsum": ["einsum_batch_matmul_bfloat16"],
    "expand": ["expand_dim_unchanged"],
    "eyelike": ["eyelike_populate_off_main_diagonal"],
    "gather": ["gather_negative_indices"],
    "gatherelements": ["gather_elements_negative_indices"],
    "gathernd": ["gathernd_example_int32_batch_dim1"],
    "gemm": ["gemm_all_attributes"],
    "gridsample": ["gridsample_reflection_padding"],
    "groupnormalization": ["group_normalization_epsilon"],
    "gru": ["gru_seq_length"],
    "if_": ["if"],
    "lrn": ["lrn"],
    "lstm": ["lstm_with_peepholes"],
    "mod": ["mod_mixed_sign_int64", "mod_int64_fmod"],
    "pad": ["constant_pad_negative_axes", "wrap_pad"],
    "quantizelinear": ["quantizelinear_e4m3fn"],
    "rangeop": ["range_int32_type_negative_delta"],
    "reducemax": ["reduce_max_default_axes_keepdims_random"],
    "reshape": ["reshape_zero_and_negative_dim"],
    "resize": ["resize_downsample_sizes_linear_pytorch_half_pixel"],
    "reversesequence": ["reversesequence_batch"],
    "rotaryembedding": ["rotary_embedding_3d_input"],
    "scan": ["scan9_sum"],
    "scatterelements": ["scatter_elements_with_axis"],
    "scatternd": ["scatternd"],
    "slice": ["slice_negative_axes", "slice_neg_steps", "slice_start_out_of_bounds"],
    "softmax": ["softmax_axis_0"],
    "tile": ["tile_precomputed"],
    "topk": ["top_k_smallest"],
    "trilu": ["tril_pos"],
    "where": ["where_long_example"],
}

NAMES = [(module, f"test_{name}") for module, names in SAMPLE.items() for name in names]


def case_of(module: str, name: str) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of numpy, about the expected infinities
        importlib.import_module(f"onnx.backend.test.case.node.{module}")
    from onnx.backend.test.case.node import _NodeTestCases

    (found,) = (case for case in _NodeTestCases if case.name == name)
    return found


@pytest.mark.parametrize(("module", "name"), NAMES, ids=[name for _, name in NAMES])
def test_the_evaluator_comes_to_what_onnx_expects(parsed: Any, module: str, name: str) -> None:
    case = case_of(module, name)
    network = parsed(case.model)
    ((inputs, expected),) = case.data_sets
    names = [info.name for info in case.model.graph.input]
    given = {tensor.name: as_tensor(inputs[names.index(tensor.name)]) for tensor in network.inputs}
    found = run_network(network, given)
    for info, value in zip(case.model.graph.output, expected, strict=True):
        want = as_tensor(value)
        assert found[info.name].dtype == want.dtype
        torch.testing.assert_close(
            found[info.name].float(), want.float(), rtol=1e-4, atol=1e-5, equal_nan=True
        )


def as_tensor(value: Any) -> torch.Tensor:
    array = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    array = np.array(array)
    name = str(array.dtype)
    if name in ("bfloat16", "float8_e4m3fn"):
        bits = torch.from_numpy(array.view(f"uint{array.dtype.itemsize * 8}"))
        return bits.view(getattr(torch, name))
    return torch.from_numpy(array)
