"""Conversion: failures name the user's operator, precision is the graph's, nothing is said."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from isomorph.errors import ConversionError
from isomorph.exporter.precision import lower_precision
from isomorph.targets.coreml.failures import conversion_errors
from isomorph.targets.coreml.registry import takes
from isomorph.targets.coreml.target import CoreMlTarget

BLOCK = torch.nn.Sequential(
    torch.nn.Conv2d(3, 8, 3),
    torch.nn.BatchNorm2d(8),
    torch.nn.GELU(),
    torch.nn.Flatten(),
    torch.nn.Linear(8 * 36, 4),
    torch.nn.LayerNorm(4),
)
IMAGE = torch.randn(2, 3, 8, 8)


def dtypes(written) -> set[int]:
    """MIL's dtypes (10 float16, 11 float32) of what is computed and of the constants."""
    function = written.spec().mlProgram.functions["main"]
    block = function.block_specializations[function.opset]
    return {
        port.type.tensorType.dataType
        for operation in block.operations
        for port in operation.outputs
        if port.type.tensorType.dataType in (10, 11)
    }


def test_float32_stays_float32(write):
    written = write(BLOCK, IMAGE, input_0="batch:1..4")
    assert dtypes(written) == {11}
    written.demand_right(IMAGE, tolerance=1e-5)


def test_float16_stays_float16_inside(captured, write):
    written = write(lower_precision(captured(BLOCK, IMAGE), "fp16"))
    function = written.spec().mlProgram.functions["main"]
    wide = [
        operation
        for operation in function.block_specializations[function.opset].operations
        if operation.type not in ("cast", "const")
        and any(port.type.tensorType.dataType == 11 for port in operation.outputs)
    ]
    # exporter/precision.py leaves the statistics of norms in float32, and so does the package.
    assert [operation.type for operation in wide] == ["batch_norm", "layer_norm"]
    assert 10 in dtypes(written)


class Factors(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Sequential(torch.nn.ReLU(), Inner())

    def forward(self, x):
        return self.inner(x)


class Inner(torch.nn.Module):
    def forward(self, x):
        return torch.linalg.ldl_factor(x).LD


def test_an_operator_that_nothing_expresses_is_named_before_conversion(captured, write):
    graph = captured(Factors(), torch.rand(3, 3))
    (found,) = CoreMlTarget().check(graph)
    assert found.operator == "aten::linalg_ldl_factor_ex"
    assert found.module == "inner.1"
    assert found.location.startswith("tests/targets/coreml/test_convert.py:")
    with pytest.raises(ConversionError, match=r"linalg_ldl_factor_ex.*inner\.1"):
        write(graph)


class SixAxes(torch.nn.Module):
    def forward(self, x):
        return (x.reshape(2, 2, 2, 2, 2, 2).cumsum(2) + 1).reshape(8, 8)


def test_too_many_axes_on_the_way_are_named_with_their_line(write):
    with pytest.raises(ConversionError, match="rank <= 5") as caught:
        write(SixAxes(), torch.rand(64))
    assert "aten::reshape (tests/targets/coreml/test_convert.py:" in caught.value.message


def test_whatever_coremltools_raises_is_a_conversion_error():
    with (
        pytest.raises(ConversionError, match=r"conversion failed: .no such thing"),
        conversion_errors(),
    ):
        raise KeyError("no such thing")
    with pytest.raises(OSError, match="disk"), conversion_errors():
        raise OSError("disk")


def test_taken_operators_are_those_of_the_installed_registry(captured):
    graph = captured(lambda x: torch.special.i0(torch.relu(x)), torch.rand(3))
    calls = [node for node in graph.program.graph.nodes if node.op == "call_function"]
    assert [takes(node) for node in calls] == [True, False]


def test_the_graph_is_not_changed(captured, write):
    graph = captured(BLOCK, IMAGE)
    before = graph.fingerprint()
    write(graph)
    assert graph.fingerprint() == before


IMPORT = """
import sys, threading, warnings
shown = warnings.showwarning
from isomorph.targets.coreml.quiet import coremltools
ct = coremltools()
print(ct.__version__)
import logging
assert logging.root.manager.disable == 0 and warnings.showwarning is shown
"""


def test_importing_coremltools_is_silent_and_leaves_logging_as_it_was():
    done = subprocess.run([sys.executable, "-c", IMPORT], capture_output=True, text=True)
    assert (done.stdout.strip()[:2], done.stderr, done.returncode) == ("9.", "", 0)


class Writes(torch.nn.Module):
    """Writes into parts of a tensor, and holds what coremltools writes wrongly besides."""

    def forward(self, x):
        y = x.clone()
        y[:, 0] += 1
        y[:, 1:2] = 7
        return torch.nn.functional.gelu(y, approximate="tanh")


def test_writes_into_parts_of_a_tensor_are_made_functional(write):
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))
    write(Writes(), x).demand_right(x)
    write(Writes(), x, x_0="batch:2..6").demand_right(torch.cat([x, x])[:5])
