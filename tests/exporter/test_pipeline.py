"""Several formats in one export: one capture, every outcome reported, the right one decides."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import isomorph
import pytest
import torch
from isomorph.errors import ConversionError, MissingRequirementError, ParityError, UsageError
from isomorph.exporter import pipeline
from isomorph.targets import registry
from isomorph.targets.base import Capability
from isomorph.targets.onnx.target import OnnxTarget


@dataclass(frozen=True)
class NoOptions:
    pass


class RefusingTarget(OnnxTarget):
    """Cannot express any model."""

    name = "refusing"
    suffix = ".refused"
    options_type = NoOptions

    def convert(self, graph, options, directory, stem):
        raise ConversionError("no operator is known to this format")


class WrongTarget(OnnxTarget):
    """Writes ONNX and computes something else."""

    name = "wrong"
    suffix = ".wrong.onnx"

    def files(self, stem):
        return (f"{stem}.wrong.onnx",)

    def convert(self, graph, options, directory, stem):
        artifact = super().convert(graph, options, directory, stem)
        return replace(artifact, format=self.name)

    def open(self, artifact, device="cpu", signature=None, *, optimized=True):
        session = super().open(artifact, device, signature, optimized=optimized)
        run = session.run
        session.run = lambda inputs: {k: v + 1 for k, v in run(inputs).items()}
        return session


class AbsentTarget(OnnxTarget):
    name = "absent"

    def capability(self):
        return Capability(False, None, False, False, (), "pip install absent")


class NarrowTarget(OnnxTarget):
    name = "narrow"
    suffix = ".narrow"
    precisions = ("fp32", "fp16")


class BrokenTarget(OnnxTarget):
    """Has a bug."""

    name = "broken"
    suffix = ".broken"

    def convert(self, graph, options, directory, stem):
        return 1 // 0


_ALL = (OnnxTarget, RefusingTarget, WrongTarget, AbsentTarget, NarrowTarget, BrokenTarget)
TARGETS = {t.name: t for t in _ALL}


@pytest.fixture(autouse=True)
def targets(monkeypatch):
    monkeypatch.setattr(registry, "get", lambda name: TARGETS[name]())
    monkeypatch.setattr(registry, "names", lambda: tuple(TARGETS))


@pytest.fixture
def model() -> torch.nn.Module:
    return torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Tanh())


def export(model, formats, folder: Path, **more):
    return isomorph.export(model, formats, args=(torch.randn(2, 4),), output=folder, **more)


def test_every_format_is_reported_and_one_failure_does_not_stop_the_others(model, tmp_path):
    result = export(model, ["refusing", "wrong", "onnx"], tmp_path)
    refused, wrong, good = result.artifacts
    assert isinstance(refused.error, ConversionError)
    assert wrong.verdict == "fail"
    assert wrong.path.parent.name.endswith(".rejected")
    assert good.verdict == "pass"
    assert good.path.exists()
    assert result.verdict == "fail"


def test_parity_decides_over_conversion(model, tmp_path):
    result = export(model, ["refusing", "wrong", "onnx"], tmp_path)
    assert [error.exit_code for error in result.failures()] == [3, 4]
    with pytest.raises(ParityError):
        result.raise_for_verdict()


def test_with_one_format_its_error_is_raised_and_nothing_is_left(model, tmp_path):
    with pytest.raises(ConversionError):
        export(model, "refusing", tmp_path / "new" / "model.refused")
    assert list(tmp_path.iterdir()) == []


def test_the_model_is_captured_once_for_all_formats(model, tmp_path, monkeypatch):
    captures = []
    opened = pipeline.open_source

    def counting(*arguments, **keywords):
        captures.append(1)
        return opened(*arguments, **keywords)

    monkeypatch.setattr(pipeline, "open_source", counting)
    export(model, ["onnx", "wrong"], tmp_path)
    assert len(captures) == 1


def test_a_format_whose_package_is_absent_is_told_before_any_work(model, tmp_path):
    with pytest.raises(MissingRequirementError, match="absent") as raised:
        export(model, "absent", tmp_path)
    assert "pip install absent" in (raised.value.hint or "")
    assert list(tmp_path.iterdir()) == []


def test_a_format_whose_package_is_absent_does_not_stop_the_others(model, tmp_path):
    good, absent = export(model, ["onnx", "absent"], tmp_path).artifacts
    assert good.verdict == "pass"
    assert isinstance(absent.error, MissingRequirementError)


def test_where_no_format_can_be_made_nothing_is_loaded(tmp_path):
    result = export(tmp_path / "no such file.pt", ["absent", "narrow"], tmp_path, precision="bf16")
    assert [error.exit_code for error in result.failures()] == [2, 6]


def test_a_precision_that_a_format_does_not_hold_is_its_usage_error(model, tmp_path):
    with pytest.raises(UsageError, match="narrow does not hold bf16") as raised:
        export(model, "narrow", tmp_path, precision="bf16")
    assert "fp32 or fp16" in (raised.value.hint or "")


def test_a_bug_in_one_format_is_reported_and_does_not_stop_the_others(model, tmp_path):
    broken, good = export(model, ["broken", "onnx"], tmp_path).artifacts
    assert good.verdict == "pass"
    assert broken.error is not None
    assert broken.error.exit_code == 1
    saved = Path(broken.error.hint.split(" is in ")[1].split(";")[0])
    assert "ZeroDivisionError" in saved.read_text()
    saved.unlink()


def test_a_model_that_the_capture_changed_is_compared_once_for_all_formats(tmp_path, monkeypatch):
    from isomorph.validation import checking

    made = []
    make = checking.make_reference
    monkeypatch.setattr(checking, "make_reference", lambda *a: made.append(1) or make(*a))

    class Branches(torch.nn.Module):
        count = 0

        def forward(self, x):
            self.count += 1
            return x + self.count

    result = export(Branches(), ["onnx", "wrong"], tmp_path)
    assert {type(a.error) for a in result.artifacts} == {ConversionError}
    assert len(made) <= 1


def test_options_go_to_their_format(model, tmp_path):
    options = {"onnx": {"opset": 19}, "wrong": {"opset": 20}}
    result = export(model, ["onnx", "wrong"], tmp_path, options=options)
    import onnx

    assert onnx.load(result.artifacts[0].path).opset_import[0].version == 19


@pytest.mark.parametrize("one", [True, False])
def test_a_single_sample_needs_no_list(model, one, tmp_path):
    sample = {"input": torch.randn(2, 4)}
    result = export(model, "onnx", tmp_path, data=sample if one else [sample])
    assert "data-0" in [case.name for case in result.artifacts[0].report.cases]


@pytest.mark.parametrize("formats", [[], ["onnx", "onnx"]])
def test_no_format_or_one_twice_is_a_usage_error(model, formats, tmp_path):
    with pytest.raises(UsageError):
        export(model, formats, tmp_path)


def test_the_callers_module_is_left_as_it_was(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.BatchNorm1d(3))
    model[0].eval()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    export(model, "onnx", tmp_path)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert [part.training for part in model.modules()] == [True, False, True]


def test_several_formats_go_into_a_folder(model, tmp_path):
    with pytest.raises(UsageError, match="several formats go into a folder"):
        export(model, ["onnx", "wrong"], tmp_path / "model.onnx")
