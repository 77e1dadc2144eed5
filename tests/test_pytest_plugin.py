"""The pytest plug-in, in a pytest of its own."""

from __future__ import annotations

import json

import pytest

pytest_plugins = ["pytester"]

MODEL = """
import pytest, torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.fc = nn.Linear(6, 3)

    def forward(self, x):
        return torch.tanh(self.fc(x))

@pytest.fixture
def net():
    return Net().eval()
"""

WRONG = """
import onnx
from dataclasses import replace
from isomorph.targets.onnx.target import OnnxTarget

@pytest.fixture
def wrong(monkeypatch):
    convert = OnnxTarget.convert
    def other(self, *args, **kwargs):
        artifact = convert(self, *args, **kwargs)
        model = onnx.load(artifact.path)
        for node in model.graph.node:
            if node.op_type == "Tanh":
                node.op_type = "Sin"
        onnx.save(model, artifact.path)
        return replace(artifact, hashes={})
    monkeypatch.setattr(OnnxTarget, "convert", other)
"""


@pytest.fixture
def run(pytester):
    def run(body, *args, conftest=""):
        pytester.makepyfile(MODEL + conftest + body)
        return pytester.runpytest_subprocess("-p", "no:cacheprovider", "-W", "ignore", *args)

    return run


def test_a_right_artifact_passes_and_its_report_is_attached(run, pytester):
    result = run(
        """
def test_parity(parity, net):
    result = parity(net, formats=["onnx"], args=(torch.randn(2, 6),))
    assert result.verdict == "pass"
""",
        "--junit-xml=junit.xml",
        "--parity-reports=reports",
    )
    result.assert_outcomes(passed=1)
    assert 'name="parity onnx cpu"' in (pytester.path / "junit.xml").read_text()
    names = sorted(p.name for p in (pytester.path / "reports").iterdir())
    assert [name.rpartition("test_parity")[2] for name in names] == [".html", ".report.json"]
    report = json.loads((pytester.path / "reports" / names[1]).read_text())
    assert report["reports"][0]["verdict"] == "pass"


def test_a_wrong_artifact_fails_with_operator_and_line(run):
    result = run(
        """
def test_parity(parity, net, wrong):
    parity(net, args=(torch.randn(2, 6),))
""",
        conftest=WRONG,
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(
        [
            "*onnx fail: first wrong: tanh.default*",
            "*FAIL*cases, executed by onnxruntime*",
            "*tanh.default*",
            "*torch.tanh(self.fc(x))*",
        ]
    )
    result.stdout.no_fnmatch_line("*pytest_plugin.py*")
    result.stdout.no_fnmatch_line("DEBUG *")


def test_a_test_can_ask_for_less_error(run):
    result = run(
        """
def test_tight(parity, net):
    parity(net, format="onnx", args=(torch.randn(2, 6),), max_floors={"peak": 1e-6})

def test_unknown(parity, net):
    with pytest.raises(ValueError, match="peak and rms"):
        parity(net, args=(torch.randn(2, 6),), max_floors={"mean": 1})
"""
    )
    result.assert_outcomes(failed=1, passed=1)
    result.stdout.fnmatch_lines(["*onnx fail:*max_floors*"])


def test_what_is_missing_fails_unless_it_is_to_be_skipped(run):
    result = run(
        """
def test_fails(parity, net):
    parity(net, formats="tensorrt", args=(torch.randn(2, 6),))

def test_skips(parity, net):
    parity(net, formats="tensorrt", args=(torch.randn(2, 6),), missing="skip")
"""
    )
    result.assert_outcomes(failed=1, skipped=1)


def test_what_could_not_be_verified_is_not_green(run):
    result = run(
        """
class Random(nn.Module):
    def forward(self, x):
        return x + torch.rand_like(x)

def test_random(parity):
    parity(Random().eval(), args=(torch.randn(2, 6),))
"""
    )
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*could not be verified*"])


def test_a_checkpoint_and_texts(run, pytester):
    result = run(
        """
def test_file(parity, net, tmp_path):
    torch.save(net.state_dict(), tmp_path / "net.pt")
    parity(tmp_path / "net.pt", model=f"{__file__}:Net", inputs=["x=2x6"])
"""
    )
    result.assert_outcomes(passed=1)


def test_pytest_starts_without_torch(pytester):
    pytester.makepyfile(
        """
def test_light():
    import sys
    assert "torch" not in sys.modules
"""
    )
    result = pytester.runpytest_subprocess("-p", "no:cacheprovider")
    result.assert_outcomes(passed=1)
