"""Faults put into a written package are judged to fail; the untouched package passes.

The edits use protobuf, numpy and the layout of the weights file alone: nothing here knows how the
evaluator reads them, or how validation works. What is below half's own noise is tried at fp32 only
(docs/precision.md).
"""

from __future__ import annotations

import runpy
import shutil
import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.exporter.capture import capture
from isomorph.exporter.examples import ExampleCall
from isomorph.exporter.precision import lower_precision
from isomorph.exporter.signature import parse_dynamic
from isomorph.progress import Silent
from isomorph.targets.base import Signature
from isomorph.targets.coreml.options import CoreMlOptions
from isomorph.targets.coreml.target import CoreMlTarget
from isomorph.validation.checking import make_reference
from isomorph.validation.lowered import lowered_reference
from isomorph.validation.parity import judge
from torch import nn
from torch.nn import functional

pytest.importorskip("coremltools", reason="needs isomorph[coreml]")

small_nets = runpy.run_path(str(Path(__file__).parents[2] / "models" / "small_nets.py"))


class Branches(nn.Module):
    """Activations with parameters, an axis to choose, and two outputs of one shape."""

    def __init__(self) -> None:
        super().__init__()
        self.low = nn.Conv2d(3, 4, 3, padding=1)
        self.high = nn.Conv2d(3, 4, 3, padding=1)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        low = functional.leaky_relu(self.low(x), 0.3)
        high = functional.elu(self.high(x), 0.7)
        shares = torch.softmax(low * high, 1)
        return {
            "shares": shares,
            "means": functional.avg_pool2d(high, 3, 1, 1, count_include_pad=False),
        }


NETS: dict[str, tuple[Callable[[], nn.Module], tuple[int, ...]]] = {
    "transformer": (small_nets["SmallTransformer"], (2, 10, 16)),
    "convnet": (small_nets["SmallConvNet"], (2, 3, 24, 24)),
    "branches": (Branches, (2, 3, 6, 6)),
}


class Package:
    """A package on disk: its specification, and the bytes of its weights."""

    def __init__(self, folder: Path) -> None:
        from coremltools.proto import Model_pb2

        self._model = folder / "Data" / "com.apple.CoreML" / "model.mlmodel"
        self._weights = self._model.parent / "weights" / "weight.bin"
        self.spec = Model_pb2.Model.FromString(self._model.read_bytes())
        self._bytes = bytearray(self._weights.read_bytes()) if self._weights.exists() else None
        function = self.spec.mlProgram.functions["main"]
        self.block = function.block_specializations[function.opset]
        self._constants = {
            item.outputs[0].name: item.attributes["val"]
            for item in self.block.operations
            if item.type == "const"
        }

    def save(self) -> None:
        self._model.write_bytes(self.spec.SerializeToString())
        if self._bytes is not None:
            self._weights.write_bytes(self._bytes)

    def operations(self, *kinds: str) -> Iterator[Any]:
        return (item for item in self.block.operations if item.type in kinds)

    def constant(self, operation: Any, argument: str) -> Any:
        """The value of a constant argument: a TensorValue, or an array that writes through."""
        value = self._constants[operation.inputs[argument].arguments[0].name]
        if value.WhichOneof("value") == "immediateValue":
            return value.immediateValue.tensor
        sentinel, kind, size, start, _ = struct.unpack_from(
            "<IIQQQ", self._bytes, value.blobFileValue.offset
        )
        assert sentinel == 0xDEADBEEF
        shape = [dim.constant.size for dim in value.type.tensorType.dimensions]
        dtype = np.dtype({1: "<f2", 2: "<f4"}[kind])
        return np.frombuffer(self._bytes, dtype, size // dtype.itemsize, start).reshape(shape)

    def weights(self) -> Iterator[np.ndarray]:
        for item in self.operations("linear", "conv"):
            value = self.constant(item, "weight")
            if isinstance(value, np.ndarray):
                yield value


def scale_number(package: Package, kind: str, argument: str, factor: float) -> None:
    """A float32 or float16 constant times `factor`."""
    tensor = package.constant(next(package.operations(kind)), argument)
    if tensor.floats.values:
        tensor.floats.values[0] *= factor
    else:
        tensor.bytes.values = (
            np.frombuffer(tensor.bytes.values, "<f2") * np.float16(factor)
        ).tobytes()


def put(package: Package, kind: str, argument: str, field: str, value: Any) -> None:
    tensor = package.constant(next(package.operations(kind)), argument)
    getattr(tensor, field).values[:] = [value]


def triple_epsilon(package: Package) -> None:
    scale_number(package, "layer_norm", "epsilon", 3)


def tanh_for_erf(package: Package) -> None:
    put(package, "gelu", "mode", "strings", "TANH_APPROXIMATION")


def half_weight(package: Package) -> None:
    weight = next(package.weights())
    weight[...] = weight.astype(np.float16)


def eight_bit_weights(package: Package) -> None:
    for weight in package.weights():
        scale = np.abs(weight.astype(np.float32)).max() / 127
        weight[...] = np.round(weight / scale) * scale


def one_changed_weight(package: Package) -> None:
    weight = next(package.weights())
    weight.reshape(-1)[0] += 0.5


def transposed_weight(package: Package) -> None:
    weight = next(w for w in package.weights() if w.ndim == 2 and w.shape[0] == w.shape[1])
    weight[...] = weight.T.copy()


def turned_kernel(package: Package) -> None:
    weight = next(w for w in package.weights() if w.ndim == 4)
    weight[...] = np.flip(weight, (2, 3)).copy()


def replicated_border(package: Package) -> None:
    put(package, "pad", "mode", "strings", "replicate")


def shifted_border(package: Package) -> None:
    pads = package.constant(next(package.operations("pad")), "pad").ints.values
    pads[-2:] = [2, 0]


def other_softmax_axis(package: Package) -> None:
    put(package, "softmax", "axis", "ints", 2)


def default_alpha(package: Package) -> None:
    scale_number(package, "elu", "alpha", 1 / 0.7)


def dropped_slope(package: Package) -> None:
    scale_number(package, "leaky_relu", "alpha", 0)


def counted_padding(package: Package) -> None:
    put(package, "avg_pool", "exclude_padding_from_average", "bools", False)


def swapped_outputs(package: Package) -> None:
    """The names of two outputs exchanged, in whatever makes them."""
    first, second = package.block.outputs
    other = {first: second, second: first}
    for item in package.block.operations:
        for output in item.outputs:
            output.name = other.get(output.name, output.name)


def half_sum(package: Package) -> None:
    """A value on its way is rounded to float16."""
    operations = package.block.operations
    at, item = next((i, o) for i, o in enumerate(operations) if o.type in ("relu", "add"))
    whole, value = item.inputs["x"].arguments[0].name, item.outputs[0].type
    tail = list(operations[at:])
    del operations[at:]
    for name, source, dtype, text in (
        ("fault_half", whole, 10, "fp16"),
        ("fault_whole", "fault_half", 11, "fp32"),
    ):
        kind = operations.add(type="const")
        kind.outputs.add(name=f"{name}_dtype").type.tensorType.dataType = 2
        kind.attributes["val"].type.tensorType.dataType = 2
        kind.attributes["val"].immediateValue.tensor.strings.values.append(text)
        cast = operations.add(type="cast")
        cast.inputs["x"].arguments.add(name=source)
        cast.inputs["dtype"].arguments.add(name=f"{name}_dtype")
        made = cast.outputs.add(name=name)
        made.type.CopyFrom(value)
        made.type.tensorType.dataType = dtype
    operations.extend(tail)
    operations[at + 4].inputs["x"].arguments[0].name = "fault_whole"


def skipped_layer(package: Package) -> None:
    item = next(package.operations("gelu", "leaky_relu"))
    for argument in ("mode", "alpha"):
        item.inputs.pop(argument, None)
    item.type = "relu"


# What is seen at fp32, and whether half's noise leaves it in sight.
FAULTS: dict[tuple[str, Callable[[Package], None]], bool] = {
    ("transformer", triple_epsilon): False,
    ("transformer", tanh_for_erf): False,
    ("transformer", half_weight): False,
    ("transformer", eight_bit_weights): True,
    ("transformer", one_changed_weight): True,
    ("transformer", transposed_weight): True,
    ("transformer", other_softmax_axis): True,
    ("transformer", skipped_layer): True,
    ("transformer", half_sum): False,
    ("convnet", tanh_for_erf): False,
    ("convnet", half_weight): False,
    ("convnet", eight_bit_weights): True,
    ("convnet", one_changed_weight): True,
    ("convnet", transposed_weight): True,
    ("convnet", turned_kernel): True,
    ("convnet", replicated_border): True,
    ("convnet", shifted_border): True,
    ("convnet", half_sum): False,
    ("branches", half_weight): False,
    ("branches", turned_kernel): True,
    ("branches", other_softmax_axis): True,
    ("branches", default_alpha): True,
    ("branches", dropped_slope): True,
    ("branches", skipped_layer): True,
    ("branches", counted_padding): True,
    ("branches", swapped_outputs): True,
}
TRIALS = [
    pytest.param((net, precision), fault, id=f"{net}-{precision}-{fault.__name__}")
    for (net, fault), seen_in_half in FAULTS.items()
    for precision in ("fp32", "fp16")
    if precision == "fp32" or seen_in_half
]
UNTOUCHED = [
    pytest.param((net, precision), id=f"{net}-{precision}")
    for net in NETS
    for precision in ("fp32", "fp16")
]


@dataclass(frozen=True)
class Trial:
    module: nn.Module
    graph: Any
    reference: Any
    package: Path

    def verdict(self, package: Path) -> tuple[str, str]:
        signature = Signature(self.graph.inputs, self.graph.outputs)
        with CoreMlTarget().open(package, signature=signature) as session:
            report = judge(self.graph, self.reference, session)
        return report.verdict, report.reason


@pytest.fixture(scope="module")
def trial_of(tmp_path_factory) -> Callable[[tuple[str, str]], Trial]:
    """The trial of a net in a precision, made once; a net's truth serves both."""
    made: dict[tuple[str, str], Trial] = {}

    def trial(key: tuple[str, str]) -> Trial:
        if key not in made:
            build, shape = NETS[key[0]]
            module = small_nets["awake"](build())
            example = ExampleCall((torch.randn(shape),), {}, True)
            captured = capture(module, example, dynamic=[parse_dynamic("x.0=batch:1..9")])
            truth = make_reference(captured, module, [], Silent())
            for precision in ("fp32", "fp16"):
                graph = lower_precision(captured.graph, precision)
                halved = precision != "fp32"
                reference = lowered_reference(truth, graph, Silent()) if halved else truth
                folder = tmp_path_factory.mktemp(key[0])
                path = CoreMlTarget().convert(graph, CoreMlOptions(), folder, "net").path
                made[key[0], precision] = Trial(module, graph, reference, path)
        return made[key]

    return trial


@pytest.mark.parametrize("key", UNTOUCHED)
def test_an_untouched_package_passes(trial_of, key):
    trial = trial_of(key)
    verdict, reason = trial.verdict(trial.package)
    assert verdict == "pass", reason


@pytest.mark.parametrize(("key", "fault"), TRIALS)
def test_a_fault_in_the_package_is_caught(trial_of, key, fault, tmp_path):
    trial = trial_of(key)
    broken = Path(shutil.copytree(trial.package, tmp_path / "net.mlpackage"))
    package = Package(broken)
    fault(package)
    package.save()
    verdict, reason = trial.verdict(broken)
    print(reason)
    assert verdict == "fail", reason


def test_validate_judges_the_bytes_that_are_there(trial_of, tmp_path):
    """The whole way: a package beside its model, before and after a fault."""
    trial = trial_of(("convnet", "fp32"))
    broken = Path(shutil.copytree(trial.package, tmp_path / "net.mlpackage"))
    given = {"args": (torch.randn(2, 3, 24, 24),), "dynamic": {"x.0": "batch:1..9"}}
    assert isomorph.validate(broken, trial.module, **given).verdict == "pass"
    package = Package(broken)
    replicated_border(package)
    package.save()
    assert isomorph.validate(broken, trial.module, **given).verdict == "fail"
