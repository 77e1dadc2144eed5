"""What libraries print while targets work goes to a log; what the user is told does not."""

import os
import sys
from pathlib import Path

import isomorph
import pytest
import torch
from isomorph.chatter import library_log, muffled
from isomorph.errors import DestinationError
from isomorph.targets import registry
from isomorph.targets.onnx.target import OnnxTarget


def chat() -> None:
    print("from Python")
    print("a warning", file=sys.stderr)
    os.write(1, b"from native code\n")
    os.write(2, b"from native code's stderr\n")


def test_both_streams_go_to_the_log_native_code_included(tmp_path, capfd):
    log = tmp_path / "log.txt"
    with library_log(str(log), show=False), muffled():
        chat()
    caught = log.read_text()
    for text in ("from Python", "a warning", "from native code\n", "native code's stderr"):
        assert text in caught
    assert capfd.readouterr() == ("", "")


def test_outside_the_muffled_part_everything_is_seen(tmp_path, capfd):
    with library_log(str(tmp_path / "log.txt"), show=False):
        with muffled():
            pass
        chat()
    out, err = capfd.readouterr()
    assert "from Python" in out
    assert "from native code" in out
    assert "a warning" in err
    assert (tmp_path / "log.txt").read_text() == ""


def test_without_a_log_nothing_is_caught(capfd):
    with muffled():
        chat()
    assert "from native code" in capfd.readouterr().out


def test_show_prints_this_runs_part_of_the_log_at_the_end(tmp_path, capfd):
    log = tmp_path / "log.txt"
    log.write_text("an earlier run\n")
    with library_log(str(log), show=True), muffled():
        chat()
    err = capfd.readouterr().err
    assert "from native code" in err
    assert "an earlier run" not in err
    assert "an earlier run" in log.read_text()


def test_streams_come_back_after_an_error(tmp_path, capfd):
    with library_log(None, show=False), pytest.raises(ValueError, match="odd"), muffled():
        raise ValueError("odd")
    chat()
    assert "from Python" in capfd.readouterr().out


def test_a_log_that_cannot_be_written_is_a_destination_error(tmp_path):
    with pytest.raises(DestinationError), library_log(str(tmp_path / "no" / "log"), show=False):
        pass


class Chatty(OnnxTarget):
    def convert(self, graph, options, directory: Path, stem: str):
        chat()
        return super().convert(graph, options, directory, stem)


def test_an_export_keeps_what_its_targets_print(invoke, good, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(registry, "get", lambda name: Chatty())
    done = invoke(*good, "-o", tmp_path / "net.onnx", "--log", tmp_path / "log.txt")
    assert done.code == 0, done.stderr
    assert "from native code" in (tmp_path / "log.txt").read_text()
    assert "from native code" not in "".join(capfd.readouterr()) + done.stdout + done.stderr


def test_the_api_leaves_the_streams_of_its_caller_alone(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(registry, "get", lambda name: Chatty())
    model = torch.nn.Linear(3, 2)
    isomorph.export(model, "onnx", args=(torch.randn(2, 3),), output=tmp_path / "net.onnx")
    assert "from native code" in capfd.readouterr().out
