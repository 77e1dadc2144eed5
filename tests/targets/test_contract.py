"""A target that breaks its word is named, disturbs no other format, and takes nobody's files."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import IsomorphError
from isomorph.targets import registry
from isomorph.targets.base import Capability
from isomorph.targets.torchscript.target import TorchScriptTarget

ELSEWHERE: list[Path] = []


class Good(TorchScriptTarget):
    name = "good"


class Exits(TorchScriptTarget):
    name, suffix = "exits", ".exits"

    def convert(self, graph, options, directory, stem):
        raise SystemExit(3)


class ReturnsNothing(TorchScriptTarget):
    name, suffix = "nothing", ".nothing"

    def convert(self, graph, options, directory, stem):
        return None


class Outside(TorchScriptTarget):
    name, suffix = "outside", ".outside"

    def convert(self, graph, options, directory, stem):
        artifact = super().convert(graph, options, directory, stem)
        return replace(artifact, path=ELSEWHERE[0], files=(ELSEWHERE[0],))


class NotWritten(TorchScriptTarget):
    name, suffix = "unwritten", ".unwritten"

    def files(self, stem):
        return (f"{stem}.unwritten", f"{stem}.more")

    def convert(self, graph, options, directory, stem):
        artifact = super().convert(graph, options, directory, stem)
        return replace(artifact, files=(artifact.path, directory / f"{stem}.more"))


class Lists(TorchScriptTarget):
    """Its session returns lists."""

    name, suffix = "lists", ".lists"

    def files(self, stem):
        return (f"{stem}.lists",)

    def open(self, artifact, device="cpu", signature=None):
        session = super().open(artifact, device, signature)
        run = session.run
        session.run = lambda inputs: {k: np.asarray(v).tolist() for k, v in run(inputs).items()}
        return session


class NoCapability(TorchScriptTarget):
    name, suffix = "incapable", ".incapable"

    def capability(self) -> Capability:
        os.write(1, b"noise\n")
        print("more noise")
        raise ValueError("odd")


TARGETS = {t.name: t for t in (Good, Exits, ReturnsNothing, Outside, NotWritten, Lists)}


@pytest.fixture(autouse=True)
def targets(monkeypatch):
    everything = {**TARGETS, "incapable": NoCapability}
    monkeypatch.setattr(registry, "get", lambda name: everything[name]())
    monkeypatch.setattr(registry, "names", lambda: tuple(everything))


def export(formats, folder):
    return isomorph.export(
        torch.nn.Linear(4, 3), formats, args=(torch.randn(2, 4),), output=f"{folder}/"
    )


@pytest.mark.parametrize("name", ["exits", "nothing", "outside", "unwritten", "incapable"])
def test_it_is_a_bug_of_that_target_and_the_others_go_on(name, tmp_path):
    ELSEWHERE[:] = [tmp_path / "somebody's file"]
    ELSEWHERE[0].write_text("precious")
    broken, good = export([name, "good"], tmp_path / "out").artifacts
    assert good.verdict == "pass"
    assert broken.error is not None
    assert broken.error.exit_code == 1
    assert f"the target {name}" in broken.error.message
    assert ELSEWHERE[0].read_text() == "precious"
    assert {p.name.split(".")[1] for p in (tmp_path / "out").iterdir()} == {"ts"}
    Path(broken.error.hint.split(" is in ")[1].split(";")[0]).unlink()


def test_alone_it_is_told_as_that_targets_bug_too(tmp_path):
    with pytest.raises(IsomorphError, match="the target nothing") as raised:
        export("nothing", tmp_path)
    assert isinstance(raised.value.__cause__, TypeError)
    Path(raised.value.hint.split(" is in ")[1].split(";")[0]).unlink()


def test_a_session_that_returns_no_arrays_fails(tmp_path):
    (artifact,) = export("lists", tmp_path).artifacts
    assert artifact.verdict == "fail"
    assert "returns list" in artifact.report.reason


def test_what_a_target_prints_stays_out_of_the_list_as_json(invoke, capfd):
    done = invoke("targets", "--json")
    assert done.code == 0
    assert len(json.loads(done.stdout)["targets"]) == len(TARGETS) + 1
    assert "noise" not in done.stdout + "".join(capfd.readouterr())


def test_formats_that_failed_are_not_billed_for_the_others(tmp_path):
    good, broken = export(["good", "nothing"], tmp_path).artifacts
    assert good.seconds["parity"] > 0
    assert "parity" not in broken.seconds
    Path(broken.error.hint.split(" is in ")[1].split(";")[0]).unlink()
