"""A package on disk is what its signature says, or is refused; other tools' packages open too."""

from __future__ import annotations

import shutil
from dataclasses import replace

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, MissingRequirementError, UsageError
from isomorph.exporter.precision import lower_precision
from isomorph.exporter.signature import Dim
from isomorph.targets.base import Signature
from isomorph.targets.coreml.quiet import coremltools
from isomorph.targets.coreml.target import CoreMlTarget


@pytest.fixture(scope="module")
def package(tmp_path_factory):
    """A package that coremltools wrote on its own, as users have them."""
    import warnings

    ct = coremltools()
    program = torch.export.export(torch.nn.Linear(3, 2), (torch.ones(4, 3),))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ct.convert(program.run_decompositions({}), skip_model_load=True)
    path = tmp_path_factory.mktemp("other") / "other.mlpackage"
    model.save(str(path))
    return path


def test_a_package_of_another_tool_is_evaluated_as_it_is(package):
    with CoreMlTarget().open(package) as session:
        assert [(spec.name, spec.dtype, spec.shape) for spec in session.inputs] == [
            ("input", "float32", (4, 3))
        ]
        assert session.readings == ("float32 sums", "float16 sums")  # coremltools' default
        (found,) = session.run({"input": np.ones((4, 3), np.float32)}).values()
    assert found.shape == (4, 2)


def test_the_evidence_says_what_was_evaluated(write):
    written = write(torch.nn.Linear(3, 2), torch.randn(2, 3))
    with written.open() as session:
        evidence = session.evidence
        assert session.readings == ()
    assert (evidence.kind, evidence.runtime) == ("evaluated", "isomorph evaluator")
    assert evidence.details == {"opset": "CoreML7", "operators": 1, "precision": "float32"}


def test_halves_are_read_in_two_ways_and_stay_halves(captured, write):
    model = torch.nn.Sequential(torch.nn.Linear(64, 8), torch.nn.Softmax(-1))
    graph = lower_precision(captured(model, torch.randn(2, 64)), "fp16")
    written = write(graph)
    value = {"input": torch.randn(2, 64)}
    with written.open() as session:
        assert session.readings == ("float32 sums", "float16 sums")
        given = {"input": value["input"].numpy()}
        wide, narrow = (session.run(given, reading) for reading in session.readings)
    (name,) = wide
    assert wide[name].dtype == np.float32  # the model's own
    np.testing.assert_allclose(wide[name], graph.run(value)[name].numpy(), atol=2e-3)
    assert not np.array_equal(wide[name], narrow[name])


@pytest.mark.parametrize(
    "change",
    [
        lambda spec: replace(spec, name="other"),
        lambda spec: replace(spec, dtype="int32"),
        lambda spec: replace(spec, shape=(4, 4)),
        lambda spec: replace(spec, shape=(4,)),
        lambda spec: replace(spec, shape=(Dim("batch", 1, 4), 3)),
    ],
)
def test_a_signature_that_is_not_the_files_is_an_input_file_error(write, change):
    written = write(torch.nn.Linear(3, 2), torch.ones(4, 3))
    inputs, outputs, path = written.graph.inputs, written.graph.outputs, written.artifact.path
    CoreMlTarget().open(path, signature=Signature(inputs, outputs)).close()
    for signature in (
        Signature(tuple(map(change, inputs)), outputs),
        Signature((), outputs),
        Signature(inputs, (replace(outputs[0], name="other"),)),
    ):
        with pytest.raises(InputFileError, match=r"\.mlpackage has"):
            CoreMlTarget().open(path, signature=signature)


@pytest.mark.parametrize("name", ["model.mlmodel", "weights/weight.bin"])
@pytest.mark.parametrize("share", [0, 0.5, 0.99])
def test_a_truncated_file_is_an_input_file_error(write, tmp_path, name, share):
    written = write(torch.nn.Linear(30, 20), torch.randn(2, 30))
    copy = tmp_path / "copy.mlpackage"
    shutil.copytree(written.artifact.path, copy)
    file = copy / "Data" / "com.apple.CoreML" / name
    content = file.read_bytes()
    file.write_bytes(content[: int(len(content) * share)])
    with pytest.raises(InputFileError):
        CoreMlTarget().open(copy).run({"input": np.ones((2, 30), np.float32)})


def test_a_package_alone_knows_the_models_dtypes_and_dims(write):
    model = torch.nn.Embedding(9, 2)
    written = write(model, torch.tensor([[1, 2]]), input_0="batch:1..4")
    with CoreMlTarget().open(written.artifact.path) as session:
        assert (session.inputs, session.outputs) == (written.graph.inputs, written.graph.outputs)


@pytest.mark.parametrize("text", ["", "{}", '{"inputs": 1, "outputs": []}', "[" * 100_000])
def test_a_signature_in_it_that_is_none_is_an_input_file_error(write, text):
    from isomorph.targets.coreml.description import SIGNATURE
    from isomorph.targets.coreml.storage import write_spec

    written = write(torch.nn.Linear(3, 2), torch.randn(2, 3))
    spec = written.spec()
    spec.description.metadata.userDefined[SIGNATURE] = text
    write_spec(spec, written.artifact.path)
    with pytest.raises(InputFileError, match="signature that cannot be read"):
        CoreMlTarget().open(written.artifact.path)


def test_a_closed_session_says_so(write):
    session = write(torch.nn.Linear(3, 2), torch.randn(2, 3)).open()
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.run({"input": np.ones((2, 3), np.float32)})


def test_devices_of_a_mac_are_missing_here_and_told_with_a_command(write):
    written = write(torch.nn.Linear(3, 2), torch.randn(2, 3))
    with pytest.raises(MissingRequirementError, match="ne device exists on macOS") as caught:
        CoreMlTarget().open(written.artifact.path, "ne")
    assert "isomorph validate" in (caught.value.hint or "")
    with pytest.raises(UsageError, match="does not know the device tpu"):
        CoreMlTarget().open(written.artifact.path, "tpu")
    capability = CoreMlTarget().capability()
    assert capability.devices == ("cpu",)
    assert set(capability.device_remedies) == {"gpu", "ne", "all"}


def test_a_package_of_a_range_stands_for_one_size_in_it_and_for_no_other(tmp_path):
    model = torch.nn.Linear(4, 3)
    path = tmp_path / "model.mlpackage"
    isomorph.export(
        model, "coreml", args=(torch.ones(2, 4),), dynamic={"input.0": "batch:1..8"}, output=path
    )
    path.with_name("model.mlpackage.manifest.json").unlink()
    inputs = ["input=3x4"]
    assert isomorph.validate(path, against=model, inputs=inputs).verdict == "pass"
    with pytest.raises(InputFileError, match=r"\[9, 4\]"):
        isomorph.validate(path, against=model, inputs=["input=9x4"])
