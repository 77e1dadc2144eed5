"""The ExecuTorch target as a whole: capability, check, dims, both backends, reproducible files."""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch
from isomorph.errors import ConversionError, MissingRequirementError, UsageError
from isomorph.targets.executorch import target as module
from isomorph.targets.executorch.pte import read_pte
from isomorph.targets.executorch.target import ExecuTorchOptions, ExecuTorchTarget
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        )
        self.head = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 5))

    def forward(self, x: Tensor) -> Tensor:
        logits: Tensor = self.head(self.stem(x).mean((2, 3)))
        return logits


@pytest.fixture
def block() -> Block:
    torch.manual_seed(0)
    return Block().eval()


X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


@pytest.mark.parametrize("backend", ["xnnpack", "portable"])
def test_each_backend_computes_the_same_and_says_who_did(backend, block, write):
    written = write(block, X, backend=backend)
    assert written.error(X) < 1e-6
    file = read_pte(written.path)
    assert (file.delegated > 0) == (backend == "xnnpack")
    assert ("aten::convolution.out" in file.kernels) == (backend == "portable")
    assert ("XnnpackBackend" in written.artifact.notes[0]) == (backend == "xnnpack")


def test_inputs_that_vary_are_dynamic_in_the_file(block, write):
    written = write(block, X, dynamic={"x.0": "batch:1..7"})
    (border,) = read_pte(written.path).inputs
    assert border.dynamic
    assert border.sizes == (7, 3, 6, 6)
    assert not read_pte(write(block, X).path).inputs[0].dynamic


@pytest.mark.parametrize("most", [3, 15, 16, 64, 1000])
def test_the_bound_in_the_file_is_the_dims(most, block, write):
    written = write(
        block, X[:1], dynamic={"x.0": f"batch:1..{most}", "x.3": f"width:2..{2 * most}"}
    )
    assert read_pte(written.path).inputs[0].sizes == (most, 3, 6, 2 * most)


def test_dim_without_an_upper_bound_is_refused_with_the_choices(block, write):
    with pytest.raises(ConversionError, match=r"batch of x has none") as caught:
        write(block, X, dynamic={"x.0": "batch"})
    assert "--dynamic x.0=batch:1..MAX" in str(caught.value)


class Inner(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.lgamma(x)


class Outer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = Inner()

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.inner(x) + 1
        return y


def test_operator_without_a_kernel_is_named_with_module_and_line(write):
    graph = isomorph.trace(Outer().eval(), args=(torch.rand(3),))
    (found,) = ExecuTorchTarget().check(graph)
    assert "lgamma" in found.operator
    assert found.module == "inner"
    assert "test_target.py:" in found.location
    with pytest.raises(ConversionError, match=r"lgamma.*inner.*test_target\.py:"):
        write(Outer(), torch.rand(3))


def test_convolution_of_volumes_is_refused_because_the_kernel_takes_none(write):
    with pytest.raises(ConversionError, match=r"convolution.*1-d and 2-d convolutions only"):
        write(nn.Conv3d(2, 3, 2), torch.randn(1, 2, 4, 4, 4))


def test_check_of_an_ordinary_network_finds_nothing(block):
    assert ExecuTorchTarget().check(isomorph.trace(block, args=(X,))) == []


def test_recurrent_layer_with_a_dynamic_time_axis_is_refused_with_the_choices(write):
    class Recurrent(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.cells = nn.LSTM(4, 3, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            y: Tensor = self.cells(x)[0]
            return y

    x = torch.randn(2, 3, 4)
    with pytest.raises(ConversionError, match=r"lstm.*cells.*steps varies") as caught:
        write(Recurrent(), x, dynamic={"x.1": "time:1..9"})
    assert "leave the time axis out of --dynamic" in str(caught.value)
    assert write(Recurrent(), x, dynamic={"x.0": "batch:1..9"}).error(x) < 1e-6


class Selects(nn.Module):
    def forward(self, x):
        return x.nonzero()


class Distinct(nn.Module):
    def forward(self, x):
        return torch.unique(x)


@pytest.mark.parametrize(("net", "name"), [(Selects, "nonzero"), (Distinct, "unique")])
def test_a_size_that_depends_on_values_is_refused_by_name(net, name, write):
    with pytest.raises(ConversionError, match=f"{name}.*test_target.py.*depends on values"):
        write(net(), torch.randn(3, 4))


def test_complex_border_is_refused(write):
    class Complex(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.fft.fft(x)

    with pytest.raises(ConversionError, match="real tensors only"):
        write(Complex(), torch.randn(4))


def test_file_says_nothing_of_the_machine(block, write):
    content = write(block, X).path.read_bytes()
    for secret in (b"site-packages", b"test_target", str(Path.home()).encode()):
        assert secret not in content


SCRIPT = """
import sys, torch, isomorph
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_target import Block, X
from isomorph.targets.executorch.target import ExecuTorchOptions, ExecuTorchTarget
torch.manual_seed(0)
graph = isomorph.trace(Block().eval(), args=(X,), dynamic={"x.0": "batch:1..8"})
for backend in ("xnnpack", "portable"):
    ExecuTorchTarget().convert(graph, ExecuTorchOptions(backend), Path(sys.argv[2]), backend)
"""


def test_two_processes_write_the_same_bytes(tmp_path):
    digests = []
    for seed in ("1", "2"):
        folder = tmp_path / seed
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(folder)],
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "", "OMP_NUM_THREADS": "1"},
            capture_output=True,
        )
        digests.append(
            [hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.iterdir())]
        )
    assert len(digests[0]) == 2
    assert digests[0] == digests[1]


def test_unknown_backend_is_a_usage_error():
    backend: Any = "qnn"
    with pytest.raises(UsageError, match="xnnpack or portable"):
        ExecuTorchOptions(backend=backend)


def test_without_the_package_capability_and_convert_say_how_to_get_it(block, write, monkeypatch):
    assert ExecuTorchTarget().capability().installed
    monkeypatch.setattr(module, "_MODULES", ("no_such_package",))
    capability = ExecuTorchTarget().capability()
    assert not any((capability.installed, capability.builds, capability.runs))
    assert capability.remedy == 'pip install "isomorph[executorch]"'
    with pytest.raises(MissingRequirementError, match=r"isomorph\[executorch\]"):
        write(block, X)


class Of(nn.Module):
    """A function as a module."""

    def __init__(self, function: Any) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.function(x)
        return y


INEXACT = {
    "mean": ("portable", lambda x: x.mean()),
    "sum of the first axis": ("portable", lambda x: x.sum(0)),
    "group norm": ("portable", lambda x: functional.group_norm(x[:, :, None], 2)),
    "instance norm": ("portable", lambda x: functional.instance_norm(x[None])),
    "layer norm": ("portable", lambda x: functional.layer_norm(x, (64,))),
    "softmax": ("portable", lambda x: functional.softmax(x * 3, -1)),
    "tanh GELU": ("xnnpack", lambda x: functional.gelu(x - 10, approximate="tanh")),
}


@pytest.mark.parametrize("name", sorted(INEXACT))
def test_what_the_kernels_get_wrong_is_put_right(name, write):
    backend, function = INEXACT[name]
    x = torch.randn(256, 64, generator=torch.Generator().manual_seed(1)) + 10
    assert write(Of(function), x, backend=backend).error(x) < 1e-6


@pytest.mark.parametrize("function", [lambda x: x**x, lambda x: 2**x, lambda x: x**2.5])
def test_powers_have_kernels(function, write):
    x = torch.rand(5) + 1
    assert write(Of(function), x).error(x) < 1e-6


def test_remainder_of_integers_has_the_divisors_sign(write):
    x = torch.tensor([-7, -6, -1, 0, 1, 6, 7])
    written = write(Of(lambda x: x % 3), x)
    with ExecuTorchTarget().open(written.path) as session:
        (found,) = session.run({"x": x.numpy()}).values()
    assert found.tolist() == (x % 3).tolist()


def test_example_in_another_memory_layout_does_not_fix_it(write):
    x = torch.randn(2, 5, 13, 7).to(memory_format=torch.channels_last)
    written = write(Of(lambda x: torch.cat([functional.pad(x, (1, 1)), x[..., :9]], -1)), x)
    assert written.error(x.contiguous()) < 1e-6


def test_weights_in_another_memory_layout_are_taken(write):
    layer = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    x = torch.randn(2, 3, 6, 6)
    assert write(layer, x).error(x) < 1e-6


@pytest.fixture
def failing_lowering(monkeypatch):
    """XNNPACK's lowering fails on parts with a multiplication: by its name, or without one."""
    from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend

    lower = XnnpackBackend.preprocess

    def arrange(message):
        def preprocess(edge_program, compile_specs):
            names = [n.name for n in edge_program.graph.nodes if n.op == "call_function"]
            if "aten_mul_tensor" in names or message == "always":
                raise RuntimeError(message)
            return lower(edge_program, compile_specs)

        monkeypatch.setattr(XnnpackBackend, "preprocess", staticmethod(preprocess))

    return arrange


@pytest.mark.parametrize(
    ("message", "left", "note"),
    [
        ("Output node 'aten_mul_tensor' is already there", 2, "them: aten_mul_tensor$"),
        ("no reason", 0, "aten_add_tensor, aten_mul_tensor, aten_sqrt_default"),
        ("always", 0, "aten_add_tensor, aten_mul_tensor, aten_sqrt_default"),
    ],
)
def test_what_xnnpack_fails_to_lower_is_left_to_portable_kernels(
    message, left, note, write, failing_lowering
):
    failing_lowering(message)
    x = torch.rand(5) + 1
    written = write(Of(lambda x: ((x + 2) * x).sqrt()), x)
    assert read_pte(written.path).delegated == left
    assert re.search(note, written.artifact.notes[1])
    assert written.error(x) < 1e-6


def test_program_that_xnnpack_cannot_take_is_portable_and_says_so(write, monkeypatch):
    def fail(*_):
        raise RuntimeError("cannot be divided")

    monkeypatch.setattr("isomorph.targets.executorch.delegation.delegated", fail)
    written = write(Of(torch.abs), X)
    assert read_pte(written.path).delegates == ()
    assert written.artifact.notes[1].endswith("cannot be divided")
