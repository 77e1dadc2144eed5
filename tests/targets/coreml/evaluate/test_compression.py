"""Compressed weights and affine quantization, from the examples of the documentation on."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.interpreter import run_function
from isomorph.targets.coreml.evaluate.program import Block, Constant, Function, Operation, Port
from isomorph.targets.coreml.evaluate.types import TensorType
from isomorph.targets.coreml.quiet import coremltools

RNG = np.random.default_rng(11)


def narrow(values: Any, dtype: str) -> Any:
    """An array that coremltools takes for one of a sub-byte dtype."""
    coremltools()
    from coremltools.converters.mil.mil import types

    return np.array(values).astype(types.nptype_from_builtin(getattr(types, dtype)))


def computed(kind: str, outputs: dict[str, str], opset: int = 8, **inputs: Any) -> Any:
    """One operation made by hand; `outputs` maps names to dtypes."""
    ports = tuple(Port(name, TensorType(dtype, None)) for name, dtype in outputs.items())
    given = {
        key: (Constant(value if isinstance(value, str) else torch.as_tensor(value)),)
        for key, value in inputs.items()
    }
    block = Block((), (Operation(kind, "made", given, ports),), tuple(outputs))
    return list(run_function(Function("main", (), block, opset), {}).values())


@pytest.mark.parametrize("opset", [6, 8])
def test_constexpr_cast(evaluated: Any, opset: int) -> None:
    source = RNG.normal(size=20).astype(np.float16)
    found = evaluated("constexpr_cast", {}, source_val=source, output_dtype="fp32", opset=opset)
    assert np.array_equal(found.numpy(), source.astype(np.float32))


@pytest.mark.parametrize("scale", [np.float32(0.3), RNG.uniform(0.1, 1, 3).astype(np.float16)])
@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
@pytest.mark.parametrize("axis", [1, -2])
def test_constexpr_affine_dequantize(evaluated: Any, scale: Any, dtype: Any, axis: int) -> None:
    data = RNG.integers(0, 127, (2, 3, 4)).astype(dtype)
    zero = np.array([1, 100, 7], dtype)
    found = evaluated(
        "constexpr_affine_dequantize", {}, opset=6,
        quantized_data=data, zero_point=zero, scale=scale, axis=axis,
    )  # fmt: skip
    wide = scale.astype(np.float32).reshape((-1, 1) if scale.ndim else ())
    expected = wide * (data.astype(np.float32) - zero.astype(np.float32)[:, None])
    assert np.array_equal(found.numpy(), expected.astype(scale.dtype))


@pytest.mark.parametrize(("palettes", "width"), [(2, 1), (4, 2), (16, 4), (64, 6), (256, 8)])
def test_constexpr_lut_to_dense_of_packed_bits(evaluated: Any, palettes: int, width: int) -> None:
    lut, shape = RNG.normal(size=palettes).astype(np.float32), (3, 5)
    indices = RNG.integers(0, palettes, 15)
    bits = "".join(format(i, f"0{width}b")[::-1] for i in indices)
    packed = [int(bits[i : i + 8].ljust(8, "0")[::-1], 2) for i in range(0, len(bits), 8)]
    found = evaluated(
        "constexpr_lut_to_dense", {}, opset=6,
        indices=np.array(packed, np.uint8), lut=lut, shape=np.array(shape, np.uint32),
    )  # fmt: skip
    assert np.array_equal(found.numpy(), lut[indices].reshape(shape))


def test_the_documented_packing_of_two_bits() -> None:
    lut = torch.tensor([10.0, 11.0, 12.0, 13.0])
    packed = torch.tensor([0b01_10_11_00, 0b11], dtype=torch.uint8)
    (found,) = computed(
        "constexpr_lut_to_dense", {"y": "fp32"}, 6, indices=packed, lut=lut, shape=[5]
    )
    assert found.tolist() == [10, 13, 12, 11, 13]


def test_the_documented_packing_of_a_mask() -> None:
    mask = torch.tensor([0b01100], dtype=torch.uint8)
    given = {"mask": mask, "nonzero_data": [5.0, 6.0], "shape": [5]}
    (found,) = computed("constexpr_sparse_to_dense", {"y": "fp32"}, 6, **given)
    assert found.tolist() == [0, 0, 5, 6, 0]


def test_the_documented_groups_of_lookup_tables(evaluated: Any) -> None:
    found = evaluated(
        "constexpr_lut_to_dense", {},
        indices=narrow([2, 3, 3, 0, 1, 0, 3, 0, 2, 1, 0, 3], "uint2").reshape(6, 2),
        lut=np.array([1, 5, 9, 13, 2, 10, 18, 26], np.float16).reshape(2, 1, 4, 1),
    )  # fmt: skip
    assert found.dtype == torch.float16
    assert found.tolist() == [[9, 13], [13, 1], [5, 1], [26, 2], [18, 10], [2, 26]]


@pytest.mark.parametrize(
    ("axis", "expected"),
    [
        (1, [[[0, 0], [1, 1], [2, 2], [10, 0], [11, 1], [12, 2]],
             [[10, 10], [11, 11], [12, 12], [0, 0], [1, 1], [2, 2]]]),
        (2, [[[0, 1, 2, 0, 1, 2], [10, 11, 12, 0, 1, 2]],
             [[10, 11, 12, 10, 11, 12], [0, 1, 2, 0, 1, 2]]]),
    ],
)  # fmt: skip
def test_the_documented_vectors_of_a_lookup_table(evaluated: Any, axis: int, expected: Any) -> None:
    found = evaluated(
        "constexpr_lut_to_dense", {}, vector_axis=axis,
        indices=narrow([0, 0, 1, 0, 1, 1, 0, 0], "uint1").reshape(2, 2, 2),
        lut=np.array([0, 1, 2, 10, 11, 12], np.int8).reshape(1, 1, 1, 2, 3),
    )  # fmt: skip
    assert found.tolist() == expected


@pytest.mark.parametrize("dtype", ["uint1", "uint2", "uint3", "uint4", "uint6"])
@pytest.mark.parametrize("shape", [(3, 3), (4, 16)])
def test_narrow_indices_of_every_width(evaluated: Any, dtype: str, shape: tuple[int, int]) -> None:
    count = 2 ** int(dtype[4:])
    indices = RNG.integers(0, count, shape)
    lut = RNG.normal(size=(1, 1, count, 1)).astype(np.float32)
    found = evaluated("constexpr_lut_to_dense", {}, indices=narrow(indices, dtype), lut=lut)
    assert np.array_equal(found.numpy(), lut.reshape(-1)[indices])


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.int8])
@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 7)])
def test_constexpr_sparse_to_dense(evaluated: Any, dtype: Any, shape: tuple[int, ...]) -> None:
    mask = RNG.integers(0, 2, shape)
    data = RNG.integers(1, 100, int(mask.sum())).astype(dtype)
    expected = np.zeros(shape, dtype)
    expected[mask == 1] = data
    found = evaluated(
        "constexpr_sparse_to_dense", {}, nonzero_data=data, mask=narrow(mask, "uint1")
    )
    assert np.array_equal(found.numpy(), expected)
    old = evaluated(
        "constexpr_sparse_to_dense", {}, nonzero_data=data, opset=6,
        mask=np.packbits(mask.reshape(-1), bitorder="little"), shape=np.array(shape, np.uint32),
    )  # fmt: skip
    assert np.array_equal(old.numpy(), expected)


MASK = [[1, 1, 0, 0, 0, 0], [1, 1, 0, 0, 0, 1], [0, 1, 1, 0, 1, 0], [0, 0, 0, 1, 0, 0]]
SPARSE = [0, 1, 1, 0, 1, 1, 0, 0, 1]


def test_the_documented_sparse_scalars(evaluated: Any) -> None:
    mask, data = evaluated(
        "constexpr_lut_to_sparse", {},
        indices_mask=narrow(MASK, "uint1"), indices_nonzero_data=narrow(SPARSE, "uint1"),
        lut=np.array([2, 3], np.float16).reshape(1, 1, 2, 1),
    )  # fmt: skip
    assert mask.tolist() == MASK
    assert data.tolist() == [2, 3, 3, 2, 3, 3, 2, 2, 3]


def test_the_documented_sparse_vectors(evaluated: Any) -> None:
    mask, data = evaluated(
        "constexpr_lut_to_sparse", {}, vector_axis=0,
        indices_mask=narrow(MASK, "uint1"), indices_nonzero_data=narrow(SPARSE, "uint1"),
        lut=np.array([2, 2, 3, 3], np.float16).reshape(1, 1, 2, 2),
    )  # fmt: skip
    assert mask.tolist() == [row for row in MASK for _ in range(2)]
    rows = [[2, 3], [3, 2, 3], [3, 2, 2], [3]]
    assert data.tolist() == [value for row in rows for _ in range(2) for value in row]


@pytest.mark.parametrize("dtype", ["int4", "uint4", "int8", "uint8"])
@pytest.mark.parametrize("blocks", [(1, 1), (4, 1), (1, 3), (2, 3), (4, 6)])
@pytest.mark.parametrize("shifted", [False, True])
def test_constexpr_blockwise_shift_scale(
    evaluated: Any, dtype: str, blocks: tuple[int, int], shifted: bool
) -> None:
    least, most = {"int4": (-8, 8), "uint4": (0, 16), "int8": (-128, 128), "uint8": (0, 256)}[dtype]
    data = RNG.integers(least, most, (4, 6))
    offset = RNG.integers(least, most, blocks)
    scale = RNG.uniform(0.1, 1, blocks).astype(np.float16)
    given = {"offset": narrow(offset, dtype)} if shifted else {}
    found = evaluated(
        "constexpr_blockwise_shift_scale", {}, data=narrow(data, dtype), scale=scale, **given
    )
    expected = np.empty((4, 6), np.float16)
    for i, j in np.ndindex(4, 6):
        at = i // (4 // blocks[0]), j // (6 // blocks[1])
        shift = int(offset[at]) if shifted else 0
        expected[i, j] = np.float32(scale[at]) * np.float32(int(data[i, j]) - shift)
    assert np.array_equal(found.numpy(), expected)


def test_the_documented_sparse_shift_and_scale(evaluated: Any) -> None:
    bits = [[1, 1, 0, 0], [1, 1, 1, 0], [0, 0, 1, 1], [1, 1, 0, 0]]
    mask, data = evaluated(
        "constexpr_sparse_blockwise_shift_scale", {},
        data_mask=narrow(bits, "uint1"),
        nonzero_data=np.array([10, 11, 3, 4, 5, 6, 7, 8, 9], np.int8),
        scale=np.array([[0.1, 0.2, 0.3, 0.4]], np.float32),
        offset=np.array([[1, 2, 3, 4]], np.int8),
    )  # fmt: skip
    assert mask.tolist() == bits
    assert np.allclose(data.numpy(), [0.9, 1.8, 0.2, 0.4, 0.6, 0.9, 1.2, 0.7, 1.4])


def test_constexprs_take_what_others_give(evaluated: Any, tmp_path: Any) -> None:
    """A sparse lookup table: the two outputs of one go into the next."""
    mask, data = computed(
        "constexpr_lut_to_sparse", {"m": "uint1", "d": "fp16"},
        indices_mask=torch.tensor(MASK, dtype=torch.uint8),
        indices_nonzero_data=torch.tensor(SPARSE, dtype=torch.uint8),
        lut=torch.tensor([2.0, 3.0]).half().reshape(1, 1, 2, 1),
    )  # fmt: skip
    (dense,) = computed("constexpr_sparse_to_dense", {"y": "fp16"}, mask=mask, nonzero_data=data)
    assert dense[0].tolist() == [2, 3, 0, 0, 0, 0]


@pytest.mark.parametrize("dtype", ["int8", "uint8"])
@pytest.mark.parametrize("precision", [np.float32, np.float16])
@pytest.mark.parametrize("vector", [False, True])
def test_quantize_and_back(evaluated: Any, dtype: str, precision: Any, vector: bool) -> None:
    x = RNG.normal(0, 40, (2, 3, 4)).astype(precision)
    scale = (np.array([0.3, 0.11, 0.7]) if vector else np.array(0.37)).astype(precision)
    zero = (np.array([3, 20, 100]) if vector else np.array(5)).astype(dtype)
    axis = {"axis": 1} if vector else {}
    wide_scale = scale.astype(np.float32).reshape((-1, 1) if vector else ())
    wide_zero = zero.astype(np.float32).reshape((-1, 1) if vector else ())
    found = evaluated(
        "quantize", {"input": x}, scale=scale, zero_point=zero, output_dtype=dtype, **axis
    )
    limits = np.iinfo(dtype)
    expected = np.round(x.astype(np.float32) / wide_scale) + wide_zero
    assert np.array_equal(found.numpy(), expected.clip(limits.min, limits.max).astype(dtype))
    back = evaluated("dequantize", {"input": found.numpy()}, scale=scale, zero_point=zero, **axis)
    wide = wide_scale * (found.numpy().astype(np.float32) - wide_zero)
    assert np.array_equal(back.numpy(), wide.astype(precision))


def quantized(x: list[float], zero: int = 0, dtype: str = "int8") -> list[int]:
    zero_point = torch.tensor(zero, dtype=torch.int8 if dtype == "int8" else torch.uint8)
    given: Any = {"input": x, "scale": 1.0, "zero_point": zero_point, "output_dtype": dtype}
    found: list[int] = computed("quantize", {"y": dtype}, 7, **given)[0].tolist()
    return found


def test_quantize_saturates() -> None:
    inf = float("inf")
    assert quantized([1e9, -1e9, inf, -inf], 3) == [127, -128, 127, -128]
    assert quantized([1e9, -1e9, -1], 0, "uint8") == [255, 0, 0]


@pytest.mark.parametrize("half", [0.5, 1.5, 2.5, -0.5, -1.5])
def test_halves_are_refused_since_their_rounding_is_not_documented(half: float) -> None:
    even, away = round(half), int(abs(half) + 0.5) * (1 if half > 0 else -1)
    if even == away:  # both ways of rounding it agree
        assert quantized([half]) == [even]
        return
    with pytest.raises(UnverifiableError, match="half"):
        quantized([half])


def test_a_half_beyond_the_range_saturates_either_way() -> None:
    assert quantized([1000.5]) == [127]
    with pytest.raises(UnverifiableError, match="NaN"):
        quantized([float("nan")])


ONE_OF_TWO = torch.tensor([1, 0], dtype=torch.uint8)


@pytest.mark.parametrize(
    ("kind", "inputs"),
    [
        ("quantize", {"input": [1.0], "scale": 0.0, "output_dtype": "int8"}),
        ("quantize", {"input": [1.0, 2.0], "scale": [1.0, 2.0], "output_dtype": "int8"}),
        ("quantize", {"input": [1.0], "scale": 1.0, "zero_point": 1, "output_dtype": "int8"}),
        ("dequantize", {"input": torch.tensor([1, 2]).byte(), "scale": [1.0, 2.0, 3.0], "axis": 0}),
        ("dequantize", {"input": ONE_OF_TWO[:1], "scale": [1.0, 2.0], "axis": 0}),
        ("dequantize", {"input": [1.0], "scale": 1.0}),
        ("constexpr_cast", {"source_val": [1.0], "output_dtype": "fp32"}),
        ("constexpr_sparse_to_dense", {"mask": ONE_OF_TWO, "nonzero_data": [1.0, 2.0]}),
        # torch would write one value to both places.
        ("constexpr_sparse_to_dense", {"mask": ONE_OF_TWO + 1, "nonzero_data": [1.0]}),
        # Beyond its own table there is another.
        ("constexpr_lut_to_dense", {"indices": 2 * ONE_OF_TWO, "lut": torch.zeros(2, 2, 1)}),
        ("constexpr_lut_to_dense", {"indices": ONE_OF_TWO, "lut": torch.zeros(1, 2, 2)}),
        ("constexpr_lut_to_dense", {"indices": ONE_OF_TWO, "lut": torch.zeros(3, 2, 1)}),
        ("constexpr_blockwise_shift_scale", {"data": ONE_OF_TWO, "scale": torch.zeros(3)}),
    ],
)  # fmt: skip
def test_contradictions_are_damage(kind: str, inputs: dict[str, Any]) -> None:
    outputs = {"y": "int8" if kind == "quantize" else "fp32"}
    with pytest.raises(InputFileError):
        computed(kind, outputs, **inputs)


def test_an_unknown_dtype_is_refused() -> None:
    with pytest.raises(UnverifiableError, match="int4"):
        computed("quantize", {"y": "int8"}, input=[1.0], scale=1.0, output_dtype="int4")


@pytest.mark.parametrize(
    ("kind", "constants"),
    [
        ("constexpr_blockwise_shift_scale",
         {"data": narrow(RNG.integers(-8, 8, (4, 6)), "int4"),
          "scale": RNG.uniform(1, 2, (2, 3)).astype(np.float32)}),
        ("constexpr_lut_to_dense",
         {"indices": narrow(RNG.integers(0, 4, (4, 6)), "uint2"),
          "lut": RNG.normal(size=(2, 3, 4, 1)).astype(np.float32)}),
        ("constexpr_lut_to_dense",
         {"indices": narrow(RNG.integers(0, 4, (4, 6)), "uint2"), "vector_axis": 0,
          "lut": RNG.normal(size=(2, 1, 4, 2)).astype(np.float32)}),
    ],
)  # fmt: skip
def test_coremltools_decompresses_to_the_same(
    evaluated: Any, kind: str, constants: dict[str, Any]
) -> None:
    coremltools()
    from coremltools.converters.mil.mil import Builder
    from coremltools.converters.mil.mil import Function as MilFunction

    with MilFunction({}, opset_version=coremltools().target.iOS18):
        second = getattr(Builder, kind)(**constants).op.materialized_val_inference()
    found = evaluated(kind, {}, **constants)
    assert np.allclose(found.numpy(), second, rtol=1e-6)
