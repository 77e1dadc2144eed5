"""Small ML Programs of one operator: written by coremltools, read back, and evaluated."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.targets.coreml.evaluate.interpreter import run_function
from isomorph.targets.coreml.evaluate.package import read_package
from isomorph.targets.coreml.evaluate.program import Block as ReadBlock
from isomorph.targets.coreml.evaluate.program import Constant, Function, Name, Operation, Port
from isomorph.targets.coreml.evaluate.types import TensorType
from isomorph.targets.coreml.quiet import coremltools

Evaluated = Callable[..., Any]
Inferred = Callable[..., Any]
Direct = Callable[..., Any]

_DTYPES = {
    **{"float32": "fp32", "float16": "fp16", "bool": "bool"},
    **{n: n for n in ("int8", "uint8", "int16", "uint16", "int32")},
}
_NAMES = {torch.float32: "fp32", torch.float16: "fp16", torch.bool: "bool", torch.int32: "int32"}


@pytest.fixture
def evaluated(tmp_path: Path) -> Evaluated:
    """`evaluated(kind, inputs, *, opset=8, accumulate=torch.float32, **constants)`.

    Writes a package whose function holds the operator `kind`, reads it back, evaluates it, and
    returns its output: a tensor, or a tuple where there are several. `inputs` are NumPy arrays
    given when it runs (a tuple of arrays for a parameter that takes many), of the dtypes that MIL
    has; rank 0 is possible. `constants` stand in the file: numbers, strings, flags, arrays;
    large ones go to the weight file. `opset` is 5 for iOS 15 to 9 for iOS 26.

    No pass of coremltools changes the program on its way.
    """
    count = iter(range(10_000))

    def run(
        kind: str,
        inputs: Mapping[str, Any],
        *,
        opset: int = 8,
        accumulate: torch.dtype = torch.float32,
        **constants: Any,
    ) -> Any:
        path = tmp_path / f"{next(count)}.mlpackage"
        feed = _write(path, kind, inputs, opset, constants)
        function = read_package(path).program.functions["main"]
        assert kind in {operation.kind for operation in function.block.operations}
        results = tuple(run_function(function, feed, accumulate).values())
        return results[0] if len(results) == 1 else results

    return run


@pytest.fixture
def inferred() -> Inferred:
    """`inferred(kind, inputs, *, opset=8, **constants)`: coremltools' own `value_inference`.

    A second opinion, never the source: `inputs` are made constants, and what coremltools computes
    for its constant folding is returned as an array, or a tuple of arrays. None where it computes
    nothing.
    """

    def infer(kind: str, inputs: Mapping[str, Any], *, opset: int = 8, **constants: Any) -> Any:
        with _function({}, opset):
            # Copies, because some of its functions write into what they are given.
            result = _built(kind, deepcopy({**inputs, **constants}))
        results = result if isinstance(result, tuple | list) else (result,)
        values = tuple(_array(var) for var in results)
        return values[0] if len(values) == 1 else values

    return infer


@pytest.fixture
def direct() -> Direct:
    """`direct(kind, inputs, result=TensorType, *, opset=8, accumulate=torch.float32)`.

    Evaluates one operation that is made by hand, for programs that coremltools refuses to build:
    `inputs` are tensors, strings, or tuples of tensors; `result` is the type that it declares.
    """

    def run(
        kind: str,
        inputs: Mapping[str, Any],
        result: TensorType | None = None,
        *,
        opset: int = 8,
        accumulate: torch.dtype = torch.float32,
    ) -> Any:
        declared = result or TensorType(_NAMES[_first(inputs).dtype], None)
        arguments: dict[str, tuple[Name | Constant, ...]] = {
            key: tuple(map(Constant, value)) if isinstance(value, tuple) else (Constant(value),)
            for key, value in inputs.items()
        }
        operation = Operation(kind, "made", arguments, (Port("made", declared),))
        function = Function("main", (), ReadBlock((), (operation,), ("made",)), opset)
        return run_function(function, {}, accumulate)["made"]

    return run


def _first(inputs: Mapping[str, Any]) -> torch.Tensor:
    found = next(iter(inputs.values()))
    tensor: torch.Tensor = found[0] if isinstance(found, tuple) else found
    return tensor


def _targets() -> dict[int, Any]:
    target = coremltools().target
    return {5: target.iOS15, 6: target.iOS16, 7: target.iOS17, 8: target.iOS18, 9: target.iOS26}


@contextmanager
def _function(inputs: Mapping[str, Any], opset: int) -> Iterator[Any]:
    """A MIL function being built, with a placeholder of each input's type."""
    coremltools()
    from coremltools.converters.mil.mil import Builder
    from coremltools.converters.mil.mil import Function as MilFunction
    from coremltools.converters.mil.mil.types.type_mapping import string_to_builtin

    places = {
        name: Builder.placeholder(
            array.shape, string_to_builtin(_DTYPES[str(array.dtype)]), allow_rank0_input=True
        )
        for name, array in inputs.items()
    }
    with MilFunction(places, opset_version=_targets()[opset]) as function:
        yield function


def _built(kind: str, arguments: Mapping[str, Any]) -> Any:
    from coremltools.converters.mil.mil import Builder

    return getattr(Builder, kind)(**arguments)


def _array(var: Any) -> Any:
    return None if var.val is None else np.asarray(var.val)


def _write(
    path: Path, kind: str, inputs: Mapping[str, Any], opset: int, constants: Mapping[str, Any]
) -> dict[str, torch.Tensor]:
    """Write the package at `path`; what to feed it, by input name."""
    coremltools()
    from coremltools.converters.mil.backend.mil.load import MILProtoExporter
    from coremltools.converters.mil.mil import Program
    from coremltools.proto import Model_pb2

    grouped = {
        key: [(f"{key}_{i}", np.asarray(item)) for i, item in enumerate(value)]
        if isinstance(value, tuple)
        else [(f"{key}_in", np.asarray(value))]
        for key, value in inputs.items()
    }
    arrays = dict(pair for pairs in grouped.values() for pair in pairs)
    with _function(arrays, opset) as function:
        given = {
            key: [function.inputs[name] for name, _ in pairs]
            if isinstance(inputs[key], tuple)
            else function.inputs[pairs[0][0]]
            for key, pairs in grouped.items()
        }
        result = _built(kind, {**given, **constants})
        function.set_outputs(list(result) if isinstance(result, tuple | list) else [result])
    program = Program()
    program.add_function("main", function)
    weights = path / "Data" / "com.apple.CoreML" / "weights"
    weights.mkdir(parents=True)
    exporter = MILProtoExporter(program, str(weights), specification_version=opset + 1)
    model = Model_pb2.Model(specificationVersion=opset + 1, mlProgram=exporter.export())
    (weights.parent / "model.mlmodel").write_bytes(model.SerializeToString())
    entry = {"path": "com.apple.CoreML/model.mlmodel"}
    manifest = {"itemInfoEntries": {"spec": entry}, "rootModelIdentifier": "spec"}
    (path / "Manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
    return {name: torch.from_numpy(_wide(array)) for name, array in arrays.items()}


def _wide(array: Any) -> Any:
    """uint16 as the evaluator holds it."""
    return np.array(array, dtype=np.int32) if array.dtype == np.uint16 else np.array(array)
