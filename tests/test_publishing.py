"""Files appear all or nothing, and an old artifact survives whatever happens."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
from isomorph.errors import DestinationError
from isomorph.publishing import Staging, destination_errors


def stage(staging: Staging, **contents: str) -> list[Path]:
    files = []
    for name, text in contents.items():
        path = staging.directory / name.replace("_", ".")
        path.write_text(text)
        files.append(path)
    return files


def visible(folder: Path) -> dict[str, str]:
    return {p.name: p.read_text() for p in sorted(folder.iterdir()) if p.is_file()}


def test_committed_files_stand_beside_the_destination(tmp_path):
    with Staging(tmp_path / "m.onnx") as staging:
        staging.commit(stage(staging, m_onnx="new", m_json="manifest"))
    assert visible(tmp_path) == {"m.onnx": "new", "m.json": "manifest"}
    assert len(list(tmp_path.iterdir())) == 2


def test_nothing_is_left_when_nothing_is_committed(tmp_path):
    (tmp_path / "m.onnx").write_text("old")
    with pytest.raises(RuntimeError), Staging(tmp_path / "m.onnx") as staging:
        stage(staging, m_onnx="half")
        raise RuntimeError
    assert list(tmp_path.iterdir()) == [tmp_path / "m.onnx"]
    assert visible(tmp_path) == {"m.onnx": "old"}


def test_folders_made_for_a_failed_export_go_again(tmp_path):
    with pytest.raises(RuntimeError), Staging(tmp_path / "a" / "b" / "m.onnx"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []


def test_files_of_the_old_artifact_that_the_new_one_lacks_are_removed(tmp_path):
    (tmp_path / "m.onnx.data").write_text("old weights")
    with Staging(tmp_path / "m.onnx") as staging:
        staging.commit(stage(staging, m_onnx="new"), [tmp_path / "m.onnx.data"])
    assert visible(tmp_path) == {"m.onnx": "new"}


@pytest.mark.parametrize("failing_move", range(5))
def test_a_failure_at_any_move_of_the_commit_restores_the_old_files(
    tmp_path, monkeypatch, failing_move
):
    """Three old files move aside, then two new ones move in: five moves, each of which may fail."""
    for name in ("m.onnx", "m.json", "m.onnx.data"):
        (tmp_path / name).write_text("old")
    moves = iter(range(99))
    replace = Path.replace

    def failing(self, target):
        if next(moves) == failing_move:
            raise OSError(errno.ENOSPC, "full")
        return replace(self, target)

    with pytest.raises(DestinationError), Staging(tmp_path / "m.onnx") as staging:
        files = stage(staging, m_onnx="new", m_json="new")
        monkeypatch.setattr(Path, "replace", failing)
        staging.commit(files, [tmp_path / "m.onnx.data"])
    monkeypatch.undo()
    assert visible(tmp_path) == dict.fromkeys(("m.json", "m.onnx", "m.onnx.data"), "old")


KILLED = """
import os, sys
from pathlib import Path
from isomorph.publishing import Staging
moves, replace = iter(range(99)), Path.replace
def dying(self, target):
    if next(moves) == int(sys.argv[2]):
        os._exit(9)
    return replace(self, target)
Path.replace = dying
with Staging(Path(sys.argv[1]) / "m.onnx") as staging:
    for name in ("m.onnx", "m.json"):
        (staging.directory / name).write_text("new")
    staging.commit([staging.directory / "m.onnx", staging.directory / "m.json"])
"""


@pytest.mark.parametrize("fatal_move", range(4))
def test_what_a_killed_process_left_is_put_right_by_the_next(tmp_path, fatal_move):
    for name in ("m.onnx", "m.json"):
        (tmp_path / name).write_text("old")
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), str(fatal_move)])
    assert done.returncode == 9
    Staging.recover(tmp_path / "m.onnx")
    assert visible(tmp_path) == {"m.json": "old", "m.onnx": "old"}
    assert len(list(tmp_path.iterdir())) == 2


def test_the_folder_of_a_running_process_is_left_alone(tmp_path):
    with Staging(tmp_path / "m.onnx") as running:
        Staging.recover(tmp_path / "m.onnx")
        assert running.directory.exists()
        assert (running.directory / "owner").read_text() == str(os.getpid())


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EACCES, errno.ENOTDIR])
def test_refusals_of_the_system_become_a_destination_error_with_a_remedy(code):
    with pytest.raises(DestinationError) as raised, destination_errors(Path("m.onnx")):
        raise OSError(code, os.strerror(code))
    assert raised.value.exit_code == 7
    assert raised.value.hint


def test_a_path_through_a_file_is_refused_before_any_work(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(DestinationError), Staging(tmp_path / "file" / "m.onnx"):
        pass


@pytest.mark.parametrize("journal", ["", "{", "[]", "null", '{"new": [7], "old": []}'])
def test_a_damaged_journal_touches_nothing_and_is_cleared_away(tmp_path, journal):
    (tmp_path / "m.onnx").write_text("old")
    left = tmp_path / ".m.onnx.isomorph-x"
    left.mkdir()
    (left / "journal").write_text(journal)
    Staging.recover(tmp_path / "m.onnx")
    assert visible(tmp_path) == {"m.onnx": "old"}
    assert not left.exists()


def test_a_journal_never_reaches_outside_its_folder(tmp_path):
    precious = tmp_path / "precious"
    precious.write_text("mine")
    folder = tmp_path / "out"
    left = folder / ".m.onnx.isomorph-x"
    left.mkdir(parents=True)
    (left / "journal").write_text('{"new": ["../precious", ".."], "old": []}')
    Staging.recover(folder / "m.onnx")
    assert precious.read_text() == "mine"


def test_a_destination_stays_where_it_was_when_the_working_folder_changes(tmp_path, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with Staging(Path("m.onnx")) as staging:
        monkeypatch.chdir(tmp_path / "elsewhere")
        staging.commit(stage(staging, m_onnx="new"))
    assert (tmp_path / "m.onnx").read_text() == "new"


def test_a_relative_destination_is_replaced_as_an_absolute_one_is(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for text in ("old", "new"):
        with Staging(Path("out/m.onnx")) as staging:
            files = stage(staging, m_onnx=text, m_json=text)
            finals = staging.commit(files, [Path("out/m.json"), Path("out/m.onnx")])
    assert finals == [Path("out/m.onnx"), Path("out/m.json")]
    assert visible(tmp_path / "out") == {"m.json": "new", "m.onnx": "new"}


def test_an_interrupt_while_entering_leaves_nothing(tmp_path, monkeypatch):
    def interrupted(folder):
        raise KeyboardInterrupt

    monkeypatch.setattr("isomorph.publishing._claim", interrupted)
    with pytest.raises(KeyboardInterrupt), Staging(tmp_path / "a" / "m.onnx"):
        pass
    assert list(tmp_path.iterdir()) == []
