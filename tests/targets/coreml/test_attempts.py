"""What coremltools leaves out or fails on is rewritten, and the package computes what was meant."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from isomorph.errors import ConversionError
from isomorph.exporter import decompositions
from isomorph.targets.base import Signature
from isomorph.targets.coreml import attempts
from isomorph.targets.coreml.prepare import prepared
from isomorph.targets.coreml.rules import RULES
from isomorph.targets.coreml.target import CoreMlOptions, CoreMlTarget
from isomorph.targets.coreml.watching import ArgumentsLeftOut
from torch import Tensor, nn


class Calls(nn.Module):
    """A function as a module."""

    def __init__(self, function: Callable[[Tensor], Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Any:
        return self.function(x)


def computed(function: Callable[[Tensor], Tensor], x: Tensor, folder: Path) -> Tensor:
    """What the written package gives for `x`."""
    target = CoreMlTarget()
    graph = isomorph.trace(Calls(function), args=(x,))
    artifact = target.convert(graph, CoreMlOptions(), folder, "model")
    with target.open(
        artifact.path, signature=Signature(artifact.inputs, artifact.outputs)
    ) as session:
        return torch.from_numpy(session.run({"x": x.numpy()})["output_0"])


X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))

LEFT_OUT: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu_tanh": lambda x: F.gelu(x * 3, approximate="tanh"),
    "after_a_node_called_tanh": lambda x: F.gelu(torch.tanh(x) + x, approximate="tanh"),
    "after_a_node_called_floor": lambda x: torch.div(
        torch.floor(x) + x, 0.3, rounding_mode="floor"
    ),
    "after_a_node_called_trunc": lambda x: torch.div(
        torch.trunc(x) + x, 0.3, rounding_mode="trunc"
    ),
    "summed_in_another_dtype": lambda x: torch.sum(x > 0, 0, dtype=torch.float32) / 3,
    "alpha": lambda x: torch.add(x, x.sin(), alpha=3) - torch.sub(x, x.cos(), alpha=0.5),
}


@pytest.mark.parametrize("name", LEFT_OUT)
def test_keyword_arguments_are_honoured(name: str, tmp_path: Path) -> None:
    function = LEFT_OUT[name]
    torch.testing.assert_close(computed(function, X, tmp_path), function(X))


def test_what_a_translation_fails_on_is_decomposed(tmp_path: Path) -> None:
    def function(x: Tensor) -> Tensor:
        return torch.logcumsumexp(x, 0) + torch.special.entr(x.abs()).sum()

    torch.testing.assert_close(computed(function, X, tmp_path), function(X))


@pytest.mark.parametrize("size", [1, 4, 16])
def test_what_is_tried_again_takes_every_size(write: Any, size: int) -> None:
    written = write(LEFT_OUT["gelu_tanh"], X[:, :4].repeat(2, 1)[:4], args_0_0="batch:1..16")
    written.demand_right(torch.randn(size, 4), tolerance=1e-5)


def test_a_decomposition_that_asks_for_a_size_is_not_taken(
    write: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def for_four_alone(x: Tensor, approximate: str = "none") -> Tensor:
        return x if x.shape[0] == 4 else x * 2

    table = {torch.ops.aten.gelu.default: for_four_alone}
    monkeypatch.setattr(decompositions, "_table", lambda: table)
    monkeypatch.delitem(RULES, torch.ops.aten.gelu.default)  # which would come first
    with pytest.raises(ConversionError, match="coremltools leaves approximate out"):
        write(LEFT_OUT["gelu_tanh"], torch.ones(4, 4), args_0_0="batch:1..16")
    # Where the size is fixed it may be asked for.
    write(LEFT_OUT["gelu_tanh"], torch.ones(4, 4))


def test_what_a_translation_learns_of_a_size_the_next_attempt_does_not_read(captured: Any) -> None:
    graph = captured(LEFT_OUT["gelu_tanh"], torch.ones(4, 4), args_0_0="batch:1..16")
    program = prepared(graph)
    seen = []

    def convert() -> str:
        first = next(node for node in program.graph.nodes if node.op == "placeholder")
        batch = first.meta["val"].shape[0]
        seen.append(str(batch))
        assert batch == 4  # which fixes it
        assert str(batch) == "4"
        if len(seen) == 1:
            (node,) = (n for n in program.graph.nodes if n.target is torch.ops.aten.gelu.default)
            raise ArgumentsLeftOut({node.name: {"approximate"}})
        return "converted"

    assert attempts.converted(program, convert) == "converted"
    assert seen[0] == seen[1] != "4"


def test_what_cannot_be_rewritten_is_named_with_the_argument_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(attempts, "rewritten", lambda _program, nodes: list(nodes))
    with pytest.raises(ConversionError, match="coremltools leaves approximate out") as caught:
        computed(LEFT_OUT["gelu_tanh"], X, tmp_path)
    assert "aten::gelu" in caught.value.message
    assert "test_attempts.py" in caught.value.message


def test_coremltools_is_itself_again_afterwards(tmp_path: Path) -> None:
    from coremltools.converters.mil.frontend.torch import converter
    from coremltools.converters.mil.frontend.torch.internal_graph import InternalTorchIRNode

    before = converter.convert_nodes, InternalTorchIRNode.__dict__["from_exir_node"]
    computed(LEFT_OUT["gelu_tanh"], X, tmp_path)
    assert (converter.convert_nodes, InternalTorchIRNode.__dict__["from_exir_node"]) == before
