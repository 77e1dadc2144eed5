"""What is asked of Apple's runtime on a Mac. There is none here: a stand-in answers for it."""

from __future__ import annotations

import platform
import sys
from typing import ClassVar

import numpy as np
import pytest
import torch
from isomorph.errors import ConversionError
from isomorph.targets.coreml import apple
from isomorph.targets.coreml.quiet import coremltools
from isomorph.targets.coreml.target import CoreMlTarget


class Model:
    """Stands for `ct.models.MLModel`: records what it is asked, and doubles each input."""

    asked: ClassVar[list] = []
    broken = ""

    def __init__(self, path, compute_units, **options):
        if self.broken == "load":
            raise RuntimeError("Error reading protobuf spec.\nmore")
        Model.asked.append((path, compute_units.name, options))
        self._spec = coremltools().utils.load_spec(path)

    def get_spec(self):
        return self._spec

    def make_state(self):
        raise AssertionError("the package has no state")

    def predict(self, arrays):
        if self.broken == "predict":
            raise RuntimeError("Failed to evaluate")
        (array,) = arrays.values()
        assert array.dtype == np.int32
        return {feature.name: array * 2 for feature in self._spec.description.output}


@pytest.fixture
def mac(monkeypatch):
    monkeypatch.setattr(sys, "platform", "darwin")
    monkeypatch.setattr(platform, "mac_ver", lambda: ("15.1", ("", "", ""), "arm64"))
    monkeypatch.setattr(apple, "importable", lambda module: True)
    monkeypatch.setattr(coremltools().models, "MLModel", Model)
    monkeypatch.setattr(Model, "asked", [])


@pytest.fixture
def doubled(write):
    return write(lambda x: x * 2, torch.arange(4))


@pytest.mark.parametrize(
    ("device", "units"),
    [("cpu", "CPU_ONLY"), ("gpu", "CPU_AND_GPU"), ("ne", "CPU_AND_NE"), ("all", "ALL")],
)
def test_a_device_is_the_compute_units_that_have_it(doubled, request, device, units):
    request.getfixturevalue("mac")
    with CoreMlTarget().open(doubled.artifact.path, device) as session:
        found = session.run({"args_0": np.arange(4)})
        evidence = session.evidence
    assert Model.asked == [(str(doubled.artifact.path), units, {})]
    assert (evidence.kind, evidence.version) == ("executed", "macOS 15.1")
    assert (evidence.device, evidence.details["compute_units"]) == (device, units)
    np.testing.assert_array_equal(*found.values(), np.arange(4) * 2)


def test_a_mac_offers_every_device(mac):
    assert CoreMlTarget().capability().devices == ("cpu", "gpu", "ne", "all")
    assert CoreMlTarget().capability().device_remedies == {}


def test_the_models_dtypes_come_back(doubled, request):
    request.getfixturevalue("mac")
    with doubled.open() as session:
        (found,) = session.run({"args_0": np.arange(4)}).values()
    assert found.dtype == np.int64


@pytest.mark.parametrize(("broken", "told"), [("load", "does not load"), ("predict", "failed")])
def test_its_failures_are_conversion_errors(doubled, request, monkeypatch, broken, told):
    request.getfixturevalue("mac")
    monkeypatch.setattr(Model, "broken", broken)
    with pytest.raises(ConversionError, match=told), doubled.open() as session:
        session.run({"args_0": np.arange(4)})
