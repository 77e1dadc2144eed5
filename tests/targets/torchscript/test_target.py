"""The TorchScript target as a whole: what is written, what is refused, what the file holds."""

from __future__ import annotations

import hashlib
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import ConversionError
from isomorph.exporter.graph import Graph
from isomorph.targets import packages
from isomorph.targets.torchscript.session import TorchScriptSession
from isomorph.targets.torchscript.target import TorchScriptOptions, TorchScriptTarget
from torch import Tensor, nn

TARGET = TorchScriptTarget()


def write(graph: Graph, folder: Path, stem: str = "model") -> Path:
    return TARGET.convert(graph, TorchScriptOptions(), folder, stem).path


def run(path: Path, **inputs: Tensor) -> dict[str, np.ndarray]:
    with TARGET.open(path) as session:
        return session.run({name: value.numpy() for name, value in inputs.items()})


class Block(nn.Module):
    """Convolution, in-place activations, attention and a dropout: the usual parts."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(inplace=True)
        )
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.head = nn.Sequential(nn.Dropout(0.1), nn.Linear(8, 5))

    def forward(self, x: Tensor) -> Tensor:
        tokens = self.stem(x).flatten(2).transpose(1, 2)
        logits: Tensor = self.head(self.layer(tokens).mean(1))
        return logits


X = torch.randn(2, 3, 6, 6, generator=torch.Generator().manual_seed(0))


def block() -> Graph:
    torch.manual_seed(0)
    return isomorph.trace(Block().eval(), args=(X,), dynamic={"x.0": "batch:1..8"})


def test_the_file_computes_the_captured_program_at_every_batch(tmp_path: Path) -> None:
    graph = block()
    path = write(graph, tmp_path)

    for batch in (1, 2, 5):
        x = torch.randn(batch, 3, 6, 6)
        expected = graph.run({"x": x})["output_0"]
        np.testing.assert_allclose(run(path, x=x)["output_0"], expected.numpy(), atol=1e-6)


def test_torch_alone_loads_it_with_the_users_names_and_weights(tmp_path: Path) -> None:
    path = write(block(), tmp_path)

    module = torch.jit.load(str(path))

    assert [a.name for a in module.forward.schema.arguments] == ["self", "x"]
    assert {"stem.0.weight", "layer.self_attn.in_proj_weight"} <= set(module.state_dict())
    assert "stem.1.running_mean" in dict(module.named_buffers())
    assert not module.training
    assert isinstance(module(X), Tensor)  # one output is no tuple


def test_conversion_leaves_the_graph_as_it_was(tmp_path: Path) -> None:
    graph = block()
    before = graph.fingerprint()
    write(graph, tmp_path)
    assert graph.fingerprint() == before


class Border(nn.Module):
    """Whole numbers, a boolean, no dimensions, a passthrough, a duplicate, a mutated input."""

    def forward(self, x: Tensor, count: Tensor, flag: Tensor, state: Tensor) -> dict[str, Tensor]:
        state.add_(1.0)
        y = x.relu()
        return {"whole": x, "y": y, "same": y, "n": count * 2, "f": ~flag, "mean": x.mean()}


def test_every_kind_of_output_comes_back(tmp_path: Path) -> None:
    x, state = torch.randn(2, 3), torch.zeros(3)
    args = (x, torch.tensor(4), torch.tensor(True), state)
    path = write(isomorph.trace(Border(), args=args), tmp_path)

    found = run(path, x=x, count=args[1], flag=args[2], state=torch.ones(3))

    np.testing.assert_array_equal(found["whole"], x.numpy())
    np.testing.assert_array_equal(found["same"], found["y"])
    assert (found["n"].dtype, found["n"].shape, int(found["n"])) == (np.int64, (), 8)
    assert (found["f"].dtype, bool(found["f"])) == (np.bool_, False)
    np.testing.assert_array_equal(found["state_mutated"], np.full(3, 2.0, np.float32))


def test_bfloat16_goes_in_and_comes_out_as_float32(tmp_path: Path) -> None:
    graph = isomorph.trace(nn.Linear(4, 3).bfloat16(), args=(torch.randn(2, 4).bfloat16(),))
    path = write(graph, tmp_path)
    x = torch.randn(2, 4).bfloat16()

    with TARGET.open(path) as session:
        assert session.outputs[0].dtype == "bfloat16"
        found = session.run({"input": x.float().numpy()})["output_0"]

    np.testing.assert_array_equal(found, graph.run({"input": x})["output_0"].float().numpy())


class Resize(nn.Module):
    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        size = (x.shape[2] * 2, x.shape[3] // 2)
        cubic = nn.functional.interpolate(x, size=size, mode="bicubic", antialias=True)
        scaled = nn.functional.interpolate(x, scale_factor=1.5, mode="bilinear")
        steps = torch.arange(x.shape[2]) * (1.0 / x.shape[2])
        return cubic, scaled, steps, x.new_full((x.shape[3],), float("-inf")), x[:, ::2]


def test_sizes_stay_symbolic(tmp_path: Path) -> None:
    module = Resize()
    dynamic = {"x.2": "height:4..32", "x.3": "width:4..32"}
    path = write(isomorph.trace(module, args=(torch.randn(1, 4, 8, 6),), dynamic=dynamic), tmp_path)

    x = torch.randn(1, 4, 13, 10)
    found = run(path, x=x)

    for name, expected in zip(found, module(x), strict=True):
        np.testing.assert_array_equal(found[name], expected.numpy(), err_msg=name)


class Selects(nn.Module):
    """Sizes that depend on values: read by nothing, by arithmetic, after a write in place."""

    def forward(self, x: Tensor) -> tuple[Tensor, ...]:
        chosen = x[x > 0]
        y = x + 1
        y.view(-1).mul_(2.0)
        return (
            x.nonzero(),
            chosen,
            torch.cat([chosen, chosen]).reshape(2, chosen.shape[0]),
            *torch.unique(x.round(), return_inverse=True, return_counts=True),
            y,
        )


def test_sizes_may_depend_on_values(tmp_path: Path) -> None:
    module = Selects()
    graph = isomorph.trace(module, args=(torch.randn(3, 5),))
    assert not TARGET.check(graph)
    path = write(graph, tmp_path)

    for x in (torch.randn(3, 5) * 3, torch.zeros(3, 5), torch.ones(3, 5)):
        for found, expected in zip(run(path, x=x).values(), module(x), strict=True):
            np.testing.assert_array_equal(found, expected.numpy())


class Sizes(nn.Module):
    """Arithmetic on sizes, and operators under second names."""

    def forward(self, x: Tensor) -> Tensor:
        a, b = x.shape
        count = a**2 + max(a, b) + int(a * 1.5) + a // 3 + a % 4 + round(a / 2) + a * b
        y = torch.true_divide(torch.swapaxes(x, 0, 1), 2.0)
        return torch.subtract(x.new_zeros(count, 1), y.sum())


def test_arithmetic_on_sizes_follows_pythons_rules(tmp_path: Path) -> None:
    dynamic = {"x.0": "a:2..20", "x.1": "b:2..20"}
    graph = isomorph.trace(Sizes(), args=(torch.randn(6, 7),), dynamic=dynamic)
    path = write(graph, tmp_path)

    for size in ((6, 7), (5, 9), (13, 3), (7, 2)):
        x = torch.randn(size)
        expected = graph.run({"x": x})["output_0"]
        np.testing.assert_allclose(run(path, x=x)["output_0"], expected.numpy(), rtol=1e-5)


def test_weights_are_stored_once_even_if_tied_or_views_of_more(tmp_path: Path) -> None:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            whole = torch.randn(1000, 100)  # of which the model uses a tenth
            self.a = nn.Parameter(whole[:100])
            self.b = self.a
            self.c = nn.Parameter(whole[:100])

        def forward(self, x: Tensor) -> Tensor:
            return x @ self.a @ self.b @ self.c

    module, x = Tied(), torch.randn(2, 100)
    path = write(isomorph.trace(module, args=(x,)), tmp_path)

    assert 40_000 < path.stat().st_size < 50_000
    np.testing.assert_array_equal(run(path, x=x)["output_0"], module(x).detach().numpy())


def test_file_says_nothing_of_the_machine(tmp_path: Path) -> None:
    with zipfile.ZipFile(write(block(), tmp_path)) as archive:
        content = b"".join(archive.read(name) for name in archive.namelist())

    for secret in (b"site-packages", b"test_target", str(Path.home()).encode(), b"/tmp"):
        assert secret not in content
    assert b"torch_mangle" not in content  # a counter of the process


SCRIPT = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_target import block, write
graph = block()
write(graph, Path(sys.argv[2]), "first")  # a process that has made one before
write(graph, Path(sys.argv[2]), sys.argv[3])
"""


def test_two_processes_write_the_same_bytes(tmp_path: Path) -> None:
    digests = set()
    for seed, stem in (("1", "model"), ("2", "another")):
        folder = tmp_path / seed
        folder.mkdir()
        subprocess.run(
            [sys.executable, "-c", SCRIPT, str(Path(__file__).parent), str(folder), stem],
            check=True,
            env={"PYTHONHASHSEED": seed, "PATH": "", "OMP_NUM_THREADS": "1"},
        )
        digests |= {hashlib.sha256(p.read_bytes()).hexdigest() for p in folder.iterdir()}

    assert len(digests) == 1


class Choice(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = torch.cond(x.sum() > 0, lambda v: v + 1, lambda v: v - 1, (x,))
        return found


def test_operator_that_takes_functions_is_refused_by_name_and_line(tmp_path: Path) -> None:
    graph = isomorph.trace(Choice(), args=(torch.randn(3),))

    (found,) = TARGET.check(graph)
    assert found.operator == "cond"
    assert "test_target.py:" in found.location
    with pytest.raises(ConversionError, match="cond"):
        write(graph, tmp_path)


def test_operator_of_a_library_that_a_reader_lacks_is_refused() -> None:
    @torch.library.custom_op("isomorph_test::twice", mutates_args=())
    def twice(x: Tensor) -> Tensor:
        return x * 2

    @twice.register_fake
    def _(x: Tensor) -> Tensor:
        return torch.empty_like(x)

    class Uses(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.ops.isomorph_test.twice(x)  # type: ignore[no-any-return]

    (found,) = TARGET.check(isomorph.trace(Uses(), args=(torch.randn(3),)))

    assert found.operator == "isomorph_test::twice"
    assert "isomorph_test" in found.reason


def test_overload_that_torchscript_would_mistake_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from isomorph.targets.torchscript import source

    arguments = source._arguments

    def without_dim(node: Any, *rest: Any) -> Any:
        yield next(arguments(node, *rest))

    graph = isomorph.trace(_Sum(), args=(torch.randn(3, 4),))
    monkeypatch.setattr(source, "_arguments", without_dim)  # aten::sum instead of sum.dim_IntList

    with pytest.raises(ConversionError, match=r"aten::sum\.dim_IntList.*another overload"):
        write(graph, tmp_path)


class _Sum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return x.sum(1)


def test_grad_mode_and_disabled_autocast_inside_forward_are_opened_up(tmp_path: Path) -> None:
    class Guarded(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            with torch.no_grad():
                y = x * 2
            with torch.autocast("cpu", enabled=False):
                return y + x

    x = torch.randn(3)
    path = write(isomorph.trace(Guarded(), args=(x,)), tmp_path)

    np.testing.assert_array_equal(run(path, x=x)["output_0"], (x * 2 + x).numpy())


def test_deprecation_is_told(tmp_path: Path) -> None:
    artifact = TARGET.convert(block(), TorchScriptOptions(), tmp_path, "model")

    assert any("deprecated" in note for note in artifact.notes)
    assert TARGET.capability().note == "deprecated upstream"


def test_capability_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    there = TARGET.capability()
    assert (there.builds, there.runs, there.remedy) == (True, True, None)

    monkeypatch.setattr(packages, "find_spec", lambda name: None)

    gone = TARGET.capability()
    assert (gone.builds, gone.runs, gone.devices) == (False, False, ())
    assert gone.remedy


def test_names_lie_in_the_file(tmp_path: Path) -> None:
    path = write(block(), tmp_path)

    with zipfile.ZipFile(path) as archive:
        names = json.loads(archive.read("model/extra/isomorph.json"))

    assert names["inputs"][0]["name"] == "x"
    assert names["inputs"][0]["shape"][0] == {"dim": "batch", "min": 1, "max": 8}
    with TorchScriptSession(path) as session:
        assert session.inputs[0].dims[0].max == 8
