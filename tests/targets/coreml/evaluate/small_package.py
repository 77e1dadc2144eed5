"""A small package of a network in which every argument counts, and what tests do with it.

Loaded with `runpy.run_path`, since tests import nothing of each other.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.interpreter import run_function
from isomorph.targets.coreml.evaluate.package import read_package
from isomorph.targets.coreml.quiet import coremltools

MODEL = "Data/com.apple.CoreML/model.mlmodel"
WEIGHTS = "Data/com.apple.CoreML/weights/weight.bin"
FILES = ("Manifest.json", MODEL, WEIGHTS)
RNG = np.random.default_rng(0)
X = torch.from_numpy(RNG.normal(size=(1, 3, 6, 6)).astype(np.float32))


def build(mb: Any, x: Any) -> Any:
    """A small network in which every argument counts."""

    def weight(*shape: int) -> Any:
        return RNG.normal(size=shape).astype(np.float32)

    y = mb.conv(
        x=x, weight=weight(4, 3, 3, 3), bias=weight(4), strides=[1, 1], pad_type="custom",
        pad=[1, 1, 1, 1], dilations=[1, 1], groups=1,
    )  # fmt: skip
    y = mb.gelu(x=y, mode="TANH_APPROXIMATION")
    y = mb.pad(x=y, pad=[0, 0, 0, 0, 1, 0, 0, 1], mode="reflect")
    y = mb.slice_by_index(
        x=y, begin=[0, 0, 1, 1], end=[1, 3, 7, 7], stride=[1, 1, 1, 1],
        begin_mask=[False] * 4, end_mask=[False] * 4, squeeze_mask=[False] * 4,
    )  # fmt: skip
    y = mb.reshape(x=mb.transpose(x=y, perm=[0, 2, 3, 1]), shape=[1, 6, 18])
    y = mb.layer_norm(x=y, axes=[2], gamma=weight(18), beta=weight(18), epsilon=np.float32(0.1))
    z = mb.matmul(x=y, y=mb.reverse(x=y, axes=[1]), transpose_x=False, transpose_y=True)
    z = mb.softmax(x=mb.mul(x=z, y=np.float32(0.2)), axis=-1)
    values, _ = mb.topk(x=z, k=3, axis=2, ascending=False)
    low = mb.greater(x=mb.reduce_max(x=x, axes=[0, 1, 2, 3], keep_dims=False), y=0.0)
    scaled = mb.cond(
        pred=low, _true_fn=lambda: mb.mul(x=z, y=2.0), _false_fn=lambda: mb.identity(x=z)
    )
    linear = mb.linear(x=y, weight=weight(6, 18), bias=weight(6))
    picked = mb.gather(x=mb.add(x=linear, y=scaled), indices=[5, 0, 2], axis=1)
    return mb.concat(values=(picked, mb.leaky_relu(x=picked, alpha=0.3)), axis=2), values


def write(path: Path) -> None:
    """Write the package with coremltools' own exporter of ML Programs."""
    ct = coremltools()
    from coremltools.converters.mil.backend.mil.load import MILProtoExporter
    from coremltools.converters.mil.mil import Builder, Program, types
    from coremltools.converters.mil.mil import Function as MilFunction
    from coremltools.proto import Model_pb2

    weights = path / "Data" / "com.apple.CoreML" / "weights"
    weights.mkdir(parents=True)
    places = {"x": Builder.placeholder(tuple(X.shape), types.fp32)}
    with MilFunction(places, opset_version=ct.target.iOS18) as function:
        function.set_outputs(list(build(Builder, function.inputs["x"])))
    program = Program()
    program.add_function("main", function)
    exporter = MILProtoExporter(program, str(weights), specification_version=9)
    model = Model_pb2.Model(specificationVersion=9, mlProgram=exporter.export())
    (path / MODEL).write_bytes(model.SerializeToString())
    entry = {"path": "com.apple.CoreML/model.mlmodel"}
    manifest = {"itemInfoEntries": {"spec": entry}, "rootModelIdentifier": "spec"}
    (path / "Manifest.json").write_text(json.dumps(manifest), encoding="utf-8")


def outputs(path: Path) -> list[torch.Tensor]:
    package = read_package(path)
    function = package.program.functions[package.default_function]
    return list(run_function(function, {port.name: X for port in function.inputs}).values())


def spec_of(path: Path) -> Any:
    from coremltools.proto import Model_pb2

    spec = Model_pb2.Model()
    spec.ParseFromString((path / MODEL).read_bytes())
    return spec


def store(path: Path, spec: Any) -> None:
    (path / MODEL).write_bytes(spec.SerializeToString())


def block_of(spec: Any) -> Any:
    return spec.mlProgram.functions["main"].block_specializations["CoreML8"]


def outcome(path: Path) -> list[torch.Tensor] | None:
    """What it computes; None where it is refused in one of the two ways that are allowed."""
    try:
        return outputs(path)
    except (InputFileError, UnverifiableError) as error:
        if not error.message or not error.hint:
            raise
        return None


def differs(path: Path, before: list[torch.Tensor]) -> bool:
    after = outcome(path)
    return after is None or any(
        a.shape != b.shape or not torch.equal(a, b) for a, b in zip(before, after, strict=True)
    )
