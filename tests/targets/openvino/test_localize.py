"""Broken operators of OpenVINO models are named, with the fault in the .xml and in the .bin."""

from __future__ import annotations

from pathlib import Path

import pytest
from isomorph.tests.targets.localizing import Exported, Fault, change_weight, demand_named


def edit_text(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def edit_norm(path: Path) -> None:
    edit_text(path, 'eps="9.9999997473787516e-06"', 'eps="0.05"')


def edit_gelu(path: Path) -> None:
    edit_text(path, 'approximation_mode="ERF"', 'approximation_mode="TANH"')


def edit_weight(path: Path) -> None:
    change_weight(path.with_suffix(".bin"), "Attention", "blocks.1.out.weight")


FAULTS = (
    Fault("ConvNet", edit_norm, ("layer_norm",), "norm", "self.norm(y)"),
    Fault("ConvNet", edit_gelu, ("gelu",), "act", "self.act(y)"),
    Fault("Attention", edit_weight, ("linear",), "blocks.1.out", "self.out(y)"),
)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Exported:
    return Exported("openvino", tmp_path_factory.mktemp("openvino"))


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.edit.__name__)
def test_the_broken_operator_is_named(invoke, exported, fault, tmp_path) -> None:
    demand_named(invoke, exported, fault, tmp_path)
