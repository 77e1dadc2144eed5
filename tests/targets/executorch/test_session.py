"""Opening `.pte` files: what runs, what is refused, what the evidence says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UsageError
from isomorph.targets.base import Signature
from isomorph.targets.executorch.pte import read_pte
from isomorph.targets.executorch.target import ExecuTorchTarget
from torch import Tensor, nn


class Many(nn.Module):
    """Outputs of several kinds: a float, an index, a bool, 0-d, the input itself, one twice."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> dict[str, Any]:
        y = self.layer(x)
        return {"y": y, "top": y.argmax(-1), "up": y > 0, "mean": y.mean(), "x": x, "pair": (y, y)}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> tuple[Many, Any]:
    from isomorph import trace
    from isomorph.targets.executorch.target import ExecuTorchOptions

    torch.manual_seed(0)
    module = Many().eval()
    graph = trace(module, args=(torch.randn(2, 4),), dynamic={"x.0": "batch:1..9"})
    folder = tmp_path_factory.mktemp("many")
    return module, ExecuTorchTarget().convert(graph, ExecuTorchOptions(), folder, "many")


def rows(count: int) -> np.ndarray:
    return np.random.default_rng(count).standard_normal((count, 4), np.float32)


def test_the_file_alone_tells_names_dtypes_and_dims(many):
    with ExecuTorchTarget().open(many[1].path) as session:
        assert session.inputs == many[1].inputs
        assert session.outputs == many[1].outputs
        assert [spec.name for spec in session.outputs] == [
            *("y", "top", "up", "mean", "x_out", "pair_0", "pair_1"),
        ]


def test_sizes_between_the_bounds_run_in_any_order(many):
    module, artifact = many
    with ExecuTorchTarget().open(artifact.path) as session:
        for count in (9, 1, 9, 2, 5):
            x = rows(count)
            found = session.run({"x": x})
            with torch.no_grad():
                expected = module(torch.from_numpy(x))
            np.testing.assert_allclose(found["y"], expected["y"].numpy(), rtol=1e-5, atol=1e-6)
            np.testing.assert_array_equal(found["pair_1"], found["y"])
            np.testing.assert_array_equal(found["top"], expected["top"].numpy())
            np.testing.assert_array_equal(found["up"], expected["up"].numpy())
            np.testing.assert_array_equal(found["x_out"], x)
            assert found["mean"].shape == ()
            assert found["top"].dtype == np.int64


def test_a_later_run_changes_neither_inputs_nor_earlier_results(many):
    with ExecuTorchTarget().open(many[1].path) as session:
        x = rows(3)
        kept = x.copy()
        first = session.run({"x": x})
        copies = {name: value.copy() for name, value in first.items()}
        session.run({"x": rows(7)})
    np.testing.assert_array_equal(x, kept)
    for name, value in first.items():
        np.testing.assert_array_equal(value, copies[name])


def test_more_than_the_bound_is_refused_before_the_runtime_sees_it(many, capfd):
    with (
        ExecuTorchTarget().open(many[1].path) as session,
        pytest.raises(UsageError, match="made for"),
    ):
        session.run({"x": rows(10)})
    assert capfd.readouterr() == ("", "")


def test_evidence_is_read_back_from_the_file(many):
    with ExecuTorchTarget().open(many[1].path) as session:
        evidence = session.evidence
    assert evidence.kind == "executed"
    assert evidence.details["backend"] == "XnnpackBackend"
    assert evidence.details["delegated_operators"] > 0
    assert evidence.details["delegate_dtypes"] == ["float32"]
    assert "aten::argmax.out" in evidence.details["portable_kernels"]


def test_closed_session_and_unknown_device_are_usage_errors(many):
    session = ExecuTorchTarget().open(many[1].path)
    session.close()
    with pytest.raises(UsageError, match="closed"):
        session.run({"x": rows(2)})
    with pytest.raises(UsageError, match="choose cpu"):
        ExecuTorchTarget().open(many[1].path, "cuda")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda spec: replace(spec, dtype="float64"), "is float32, not float64"),
        (lambda spec: replace(spec, shape=(*spec.shape, 3)), "has room for"),
        (lambda spec: replace(spec, shape=(spec.shape[0], 5)), "has room for"),
        (lambda spec: replace(spec, name="other"), "not other"),
    ],
)
def test_file_of_another_model_is_refused(many, change, message):
    artifact = many[1]
    inputs = tuple(map(change, artifact.inputs))
    with pytest.raises(InputFileError, match=message):
        ExecuTorchTarget().open(artifact.path, "cpu", Signature(inputs, artifact.outputs))


def test_another_number_of_outputs_is_refused(many):
    artifact = many[1]
    with pytest.raises(InputFileError, match="7 outputs, not 1"):
        ExecuTorchTarget().open(
            artifact.path, "cpu", Signature(artifact.inputs, artifact.outputs[:1])
        )


@pytest.mark.parametrize("share", [0.0, 0.001, 0.1, 0.3, 0.6, 0.9, 0.999])
def test_truncated_file_is_refused(many, share, tmp_path):
    whole = many[1].path.read_bytes()
    cut = tmp_path / "cut.pte"
    cut.write_bytes(whole[: int(share * len(whole))])
    with pytest.raises(InputFileError):
        ExecuTorchTarget().open(cut)


@pytest.mark.parametrize("content", [b"garbage", b"\0" * 4096, b"\x18\0\0\0ET12" + b"\xff" * 500])
def test_garbage_is_refused(content, tmp_path):
    path = tmp_path / "garbage.pte"
    path.write_bytes(content)
    with pytest.raises(InputFileError):
        ExecuTorchTarget().open(path)


def test_a_name_that_is_no_text_is_refused_before_the_runtime_aborts(many, tmp_path):
    content = many[1].path.read_bytes()
    path = tmp_path / "damaged.pte"
    path.write_bytes(content.replace(b"aten::argmax", b"aten::ar\x95max"))
    with pytest.raises(InputFileError, match="no text"):
        ExecuTorchTarget().open(path)


def test_missing_file_and_directory_are_refused(tmp_path):
    for path in (tmp_path, tmp_path / "absent.pte"):
        with pytest.raises(InputFileError):
            ExecuTorchTarget().open(path)


def test_a_file_without_names_is_numbered(tmp_path):
    from executorch.exir import to_edge_transform_and_lower

    program = torch.export.export(nn.Linear(4, 2).eval(), (torch.randn(1, 4),))
    path = tmp_path / "foreign.pte"
    path.write_bytes(to_edge_transform_and_lower(program).to_executorch().buffer)
    assert read_pte(path).signature is None
    with ExecuTorchTarget().open(path) as session:
        assert [spec.name for spec in (*session.inputs, *session.outputs)] == [
            *("input_0", "output_0")
        ]
        assert session.run({"input_0": rows(1)})["output_0"].shape == (1, 2)
        assert session.evidence.details["backend"] == "portable"
