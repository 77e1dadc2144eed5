"""Values inside a `.pte` file, and which node of the graph each is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from isomorph.errors import ConversionError, UsageError
from isomorph.targets.executorch.target import ExecuTorchOptions, ExecuTorchTarget
from isomorph.tests.targets.localizing import Exported, Fault, change_weight, demand_named
from isomorph.tests.targets.watching import case, small_graph, truth_of, wrong_values


def convert(folder: Path, backend: str) -> tuple[Path, Path]:
    scratch = folder / "scratch"
    scratch.mkdir()
    options = ExecuTorchOptions(backend)
    return ExecuTorchTarget().convert(small_graph(), options, folder, "net").path, scratch


@pytest.mark.parametrize(("backend", "least"), [("xnnpack", 3), ("portable", 7)])
def test_values_are_nodes(tmp_path: Path, backend, least) -> None:
    path, scratch = convert(tmp_path, backend)
    trail = ExecuTorchTarget().trail(small_graph(), ExecuTorchOptions(backend), path, scratch)
    assert len(trail.values) >= least
    with ExecuTorchTarget().open(path) as session:
        plain = session.run(case())
        watched = session.run_watching(case(), list(trail.values))
        np.testing.assert_array_equal(watched["output_0"], plain["output_0"])
        assert wrong_values(session, trail, case()) == []
        truth = truth_of(trail, case())
        last = trail.graph.output_nodes[0]
        assert last in trail.values.values()
        np.testing.assert_allclose(watched["output_0"], truth[last], atol=1e-5)


def test_constants_that_a_delegate_takes_are_no_values(tmp_path: Path) -> None:
    path, _ = convert(tmp_path, "xnnpack")
    with ExecuTorchTarget().open(path) as session:
        names = [value.name for value in session.values()]
        found = session.run_watching(case(), names)
        assert all(found[name].ndim for name in names)
        assert next(value.inputs for value in session.values()) == ("x",)


def test_what_is_not_there_is_told(tmp_path: Path) -> None:
    path, _ = convert(tmp_path, "portable")
    with ExecuTorchTarget().open(path) as session:
        with pytest.raises(UsageError, match="computes no nothing"):
            session.run_watching(case(), ["nothing"])
        with pytest.raises(NotImplementedError):
            session.replay(case(), [session.values()[0].name])


def test_a_log_that_cannot_be_read_is_told(tmp_path: Path, monkeypatch) -> None:
    from isomorph.targets.executorch import watching

    path, _ = convert(tmp_path, "portable")
    monkeypatch.setattr(watching, "DTYPES", {})
    with ExecuTorchTarget().open(path) as session:
        names = [session.values()[0].name]
        with pytest.raises(ConversionError, match="scalar type 6"):
            session.run_watching(case(), names)


def edit_kernel(path: Path) -> None:
    change_weight(path, "ConvNet", "norm.weight")


def edit_delegated(path: Path) -> None:
    change_weight(path, "ConvNet", "fc.weight")


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported("executorch", tmp_path_factory.mktemp("executorch"))


def test_a_kernel_with_a_broken_weight_is_named(invoke, exported, tmp_path) -> None:
    fault = Fault("ConvNet", edit_kernel, ("layer_norm",), "norm", "self.norm(y)")
    found = demand_named(invoke, exported, fault, tmp_path, alone=False)
    assert found["culprit"]["artifact_operator"] == "aten::native_layer_norm.out"
    assert found["culprit"]["artifact_node"].startswith("instruction ")


def test_a_delegated_part_with_a_broken_weight_is_named_as_one(invoke, exported, tmp_path) -> None:
    fault = Fault("ConvNet", edit_delegated, ("linear",), None, "")
    found = demand_named(invoke, exported, fault, tmp_path, alone=False)
    assert found["culprit"]["artifact_operator"] == "XnnpackBackend"
    assert len(found["culprit"]["targets"]) < 6
