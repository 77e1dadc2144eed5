"""Operators that a converter gets wrong, where the artifact's values cannot tell."""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import isomorph
import pytest
import torch
from isomorph.targets.openvino import faults
from isomorph.targets.torchscript.target import TorchScriptTarget
from torch import nn

aten = torch.ops.aten


class Scaled(nn.Module):
    """A variance of everything between linear layers."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(6, 8)
        self.out = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.fc(x))
        scale = y.var()
        return self.out(torch.tanh(y / (scale + 1)))


class Plain(nn.Module):
    """Two linear layers and a tanh."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(6, 8)
        self.out = nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.out(torch.tanh(self.fc(x)))


def exported(format: str, model: nn.Module, tmp_path: Path):
    (artifact,) = isomorph.export(
        model.eval(), format, args=(torch.randn(3, 6),), output=f"{tmp_path}/", budget=1
    ).artifacts
    assert artifact.verdict == "fail"
    return artifact


def line_of(text: str) -> str:
    lines = Path(__file__).read_text(encoding="utf-8").splitlines()
    return f"test_converting.py:{next(i for i, line in enumerate(lines, 1) if text in line)}"


def test_a_value_too_wrong_to_be_recognised_is_found_by_converting_its_operator(
    monkeypatch, tmp_path
):
    """OpenVINO's frontend gives the biased variance; what Isomorph does about it is undone."""
    monkeypatch.delitem(faults._REFUSED, aten.var.correction)
    artifact = exported("openvino", Scaled(), tmp_path)
    found = artifact.report.localization
    assert found.stage == "converted"
    assert found.culprit.targets == ("aten.var.correction",)
    assert found.culprit.location.endswith(line_of("scale = y.var()"))
    assert found.culprit.alone > 1000
    assert (found.culprit.artifact_node, found.culprit.before) == ("", None)
    assert ", node" not in found.summary
    script = artifact.path.parent / found.reproduction
    runpy.run_path(str(script))


@pytest.fixture
def wrong(monkeypatch):
    """TorchScript files in which one operator is another."""

    def replace_operator(old, new, *, least: int = 0) -> None:
        convert = TorchScriptTarget.convert

        def other(self, graph, options, folder, stem):
            program = graph.copy_program()
            nodes = [n for n in program.graph_module.graph.nodes if n.op == "call_function"]
            if len(nodes) >= least:
                for node in nodes:
                    if node.target is old:
                        node.target = new
            program.graph_module.recompile()
            return convert(self, replace(graph, program=program), options, folder, stem)

        monkeypatch.setattr(TorchScriptTarget, "convert", other)

    return replace_operator


def test_a_format_that_shows_nothing_inside_is_searched_too(wrong, tmp_path):
    wrong(aten.tanh.default, aten.sin.default)
    found = exported("torchscript", Plain(), tmp_path).report.localization
    assert found.culprit.targets == ("aten.tanh.default",)
    assert found.culprit.location.endswith(line_of("torch.tanh(self.fc(x))"))


def test_what_is_wrong_only_in_company_is_not_named(wrong, tmp_path):
    wrong(aten.tanh.default, aten.sin.default, least=3)
    found = exported("torchscript", Plain(), tmp_path).report.localization
    assert (found.stage, found.culprit) == ("converted", None)
    assert any("converted alone" in note for note in found.notes)
