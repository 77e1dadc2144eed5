"""Packages that build an engine on its device and prove it there.

The build half runs with TensorRT for RTX, which builds without a GPU; the run half on stand-ins for
the driver and for TensorRT. No engine of TensorRT itself is built here.
"""

from __future__ import annotations

import ast
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch
from isomorph.errors import InputFileError, UsageError
from isomorph.targets import registry
from isomorph.targets.tensorrt.deferred import opening
from isomorph.targets.tensorrt.deferred.target import DeferredTarget
from isomorph.validation.vectors import read_golden

HERE = Path(__file__).parent
DIGITS = HERE.parents[2] / "examples" / "digits"

X = {"name": "x", "shape": [-1, 3], "min": [1, 3], "max": [4, 3]}
KEEP = {**X, "name": "keep", "dtype": "BOOL"}
DOUBLED = {"name": "doubled", "shape": [-1, 3], "of": "x", "op": "double"}
DROPPED = {"name": "dropped", "shape": [-1, 3], "of": "keep", "op": "not", "dtype": "BOOL"}
ENGINE = {"inputs": [X, KEEP], "outputs": [DOUBLED, DROPPED]}


class Double(torch.nn.Module):
    """What the stand-in for TensorRT can compute: twice a float, and the negation of a boolean."""

    def forward(self, x, keep):
        return {"doubled": x * 2, "dropped": ~keep}


def export(path: Path) -> Any:
    result = isomorph.export(
        Double(),
        "tensorrt",
        inputs=["x=2x3", "keep=2x3:bool"],
        dynamic={"x.0": "batch:1..4", "keep.0": "batch"},
        options={"workspace": 64, "optimization_level": 2, "hardware_compatible": "ampere_plus"},
        output=path,
        defer=True,
    )
    return result.artifacts[0]


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    return export(tmp_path_factory.mktemp("export") / "net.trt-deferred")


@pytest.fixture
def package(written, tmp_path):
    """A copy of the package, beside which the script runs."""
    return shutil.copytree(written.path, tmp_path / "net.trt-deferred")


@pytest.fixture(scope="session")
def gpu(fake_library, tmp_path_factory):
    """A folder with CUDA's driver."""
    folder = tmp_path_factory.mktemp("driver")
    (folder / "libcuda.so.1").symlink_to(fake_library)
    return folder


@pytest.fixture
def device(package, gpu):
    """`device("--option", engine=..., ...)`: build_engine.py with stand-ins; code and texts."""

    def run(*options: str, driver: bool = True, **spec: Any) -> subprocess.CompletedProcess[str]:
        spec.setdefault("engine", ENGINE)
        script = package / "build_engine.py"
        return subprocess.run(
            [sys.executable, "-I", HERE / "fake_device.py", json.dumps(spec), script, *options],
            cwd=package.parent,
            env={"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(gpu) if driver else ""},
            capture_output=True,
            text=True,
        )

    return run


def verdict_of(done: subprocess.CompletedProcess[str]) -> str:
    assert done.stdout, done.stderr
    return done.stdout.splitlines()[-1]


def engine_of(path: Path) -> dict[str, Any]:
    return json.loads(path.read_bytes()[4:])


def content_of(folder: Path) -> dict[str, bytes]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in files}


def names_in(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# What is written


def test_the_network_passes_here_and_the_report_says_that_no_engine_exists(written):
    assert written.verdict == "pass"
    assert written.evidence.kind == "evaluated"
    assert written.evidence.details["engine"].startswith("not built yet")
    assert written.evidence.details["parser"].startswith("tensorrt-rtx")


def test_a_package_holds_all_that_a_device_needs(written):
    names = set(content_of(written.path))
    assert names >= {"build.json", "build_engine.py", "golden.json", "golden.npz", "README.txt"}
    recipe = json.loads((written.path / "build.json").read_text())
    assert recipe["build"] == {
        "precision": "fp32",
        "profile": {name: {"min": [1, 3], "opt": [2, 3], "max": [4, 3]} for name in ("x", "keep")},
        "workspace": 64 << 20,
        "optimization_level": 2,
        "flags": [],
        "hardware_compatibility": "AMPERE_PLUS",
    }
    assert recipe["onnx"] == "net.onnx"
    assert "net.engine" in (written.path / "README.txt").read_text()


def test_exports_are_byte_identical_and_hold_no_path(written, tmp_path):
    again = export(tmp_path / "net.trt-deferred")
    assert again.sha256 == written.sha256
    assert content_of(again.path) == content_of(written.path)
    for name, content in content_of(again.path).items():
        assert str(tmp_path).encode() not in content, name
        assert str(HERE.parents[2]).encode() not in content, name


def test_what_is_shipped_needs_no_python_newer_than_38(written):
    """By the syntax of 3.8, and without what later versions added to what is used here."""
    for path in written.path.rglob("*.py"):
        text = path.read_text()
        tree = ast.parse(text, feature_version=(3, 8))
        assert "from __future__ import annotations" in text or path.name == "__init__.py", path
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                name = getattr(node.func, "id", getattr(node.func, "attr", ""))
                assert name not in ("removeprefix", "removesuffix", "pairwise", "cache"), path
                assert name != "zip" or not node.keywords, f"{path}: zip(strict=)"
        for found in subscripts_at_run_time(tree):
            assert found not in NO_SUBSCRIPTS_IN_38, f"{path}: {found}[]"


NO_SUBSCRIPTS_IN_38 = {
    *("dict", "list", "tuple", "set", "frozenset", "type", "Mapping", "Sequence", "Iterator"),
    *("Callable", "Iterable", "AbstractContextManager"),
}


def subscripts_at_run_time(tree: ast.Module) -> list[str]:
    """Names that are subscripted outside annotations and `if TYPE_CHECKING:`."""
    found = []

    def walk(node: ast.AST) -> None:
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING":
            return
        if isinstance(node, ast.Subscript) and isinstance(node.value, ast.Name):
            found.append(node.value.id)
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST):
                    walk(child)

    walk(tree)
    return found


def test_the_rule_on_the_device_is_the_rule_here(written):
    root = Path(isomorph.__file__).parent
    shipped = written.path / "isomorph_device"
    for name in ("compare", "verdict", "judging", "findings", "expected", "vectors"):
        same = (shipped / f"{name}.py").read_bytes()
        assert same == (root / "validation" / f"{name}.py").read_bytes()


def test_a_timing_cache_belongs_to_the_device(tmp_path):
    with pytest.raises(UsageError, match="belongs to the device"):
        isomorph.export(
            Double(),
            "tensorrt",
            inputs=["x=2x3", "keep=2x3:bool"],
            options={"timing_cache": "t.cache"},
            output=tmp_path / "net.trt-deferred",
            defer=True,
        )


def test_the_registry_finds_it_by_its_key_and_its_suffix():
    assert isinstance(registry.get(DeferredTarget.key), DeferredTarget)
    assert isinstance(registry.of_suffix("net.trt-deferred"), DeferredTarget)


# Opened here


def test_without_a_parser_onnx_runtime_computes_the_network_and_it_is_said(written, monkeypatch):
    monkeypatch.setattr(opening, "parsers", lambda: ())
    with DeferredTarget().open(written.path) as session:
        assert session.evidence.kind == "evaluated"
        assert session.evidence.runtime == "onnxruntime"
        assert "no parser of TensorRT" in session.evidence.details["network"]
        case = read_golden(written.path).cases[0]
        assert (session.run(case.inputs)["doubled"] == case.inputs["x"] * 2).all()


@pytest.mark.parametrize(
    ("spoil", "cause"),
    [
        (lambda folder: (folder / "net.onnx").write_bytes(b"other"), "was changed"),
        (lambda folder: (folder / "isomorph_device/verdict.py").unlink(), "lacks"),
        (lambda folder: (folder / "build.json").write_text("{}"), "is damaged"),
        (lambda folder: (folder / "build.json").unlink(), "has no build.json"),
        (lambda folder: shutil.rmtree(folder), "is no folder"),
    ],
)
def test_a_damaged_package_is_not_opened(package, spoil, cause):
    spoil(package)
    with pytest.raises(InputFileError, match=cause):
        DeferredTarget().open(package)


# The build half, for real


def test_the_digits_example_is_built_by_tensorrt_rtx_without_torch(tmp_path, invoke):
    outcome = invoke(
        *("export", DIGITS / "digits.pt", "--model", f"{DIGITS / 'train.py'}:DigitsNet"),
        *("--input", "x=4x1x8x8", "--dynamic", "x.0=batch:1..16", "--format", "tensorrt"),
        *("--defer", "-o", tmp_path / "digits.trt-deferred", "-q"),
    )
    assert outcome.code == 0, outcome.stderr
    package = tmp_path / "digits.trt-deferred"
    before = content_of(package)
    hook = (
        "import runpy, sys\n"
        "for name in ('torch', 'isomorph', 'onnx'): sys.modules[name] = None\n"
        "sys.argv = sys.argv[1:]\n"
        "runpy.run_path(sys.argv[0], run_name='__main__')\n"
    )
    options = ("--module", "tensorrt_rtx", "--sm", "86,89", "--no-run", "--output", "d.engine")
    done = subprocess.run(
        [sys.executable, "-I", "-c", hook, package / "build_engine.py", *options],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert verdict_of(done) == "UNVERIFIED"
    assert "built and not run" in done.stdout
    assert (tmp_path / "d.engine").read_bytes()[:4] == b"vtrt"
    receipt = json.loads((tmp_path / "d.engine.receipt.json").read_text())
    assert receipt["report"]["evidence"]["kind"] == "built"
    assert receipt["built_by"]["compute_capabilities"] == "86,89"
    manifest = json.loads((tmp_path / "digits.trt-deferred.manifest.json").read_text())
    assert receipt["package_sha256"] == manifest["sha256"]
    assert content_of(package) == before


# The run half, on stand-ins


def test_a_right_engine_passes_and_the_receipt_tells_how(device, package, written):
    before = content_of(package)
    done = device()
    assert (done.returncode, done.stderr) == (0, "")
    assert verdict_of(done) == "PASS"
    receipt = json.loads((package.parent / "net.engine.receipt.json").read_text())
    assert receipt["verdict"] == "pass"
    assert receipt["package_sha256"] == written.sha256
    assert receipt["engine"]["bytes"] == (package.parent / "net.engine").stat().st_size
    assert receipt["report"]["evidence"]["kind"] == "executed"
    assert receipt["report"]["evidence"]["details"]["tensorrt"] == "11.4.0"
    assert [output["name"] for output in receipt["report"]["outputs"]] == ["doubled", "dropped"]
    assert receipt["time"]["median_seconds"] > 0
    assert content_of(package) == before
    made = ["net.engine", "net.engine.receipt.json", "net.engine.timings"]
    assert names_in(package.parent) == [*made, "net.trt-deferred"]


def test_the_builder_is_told_what_was_asked_for(device, package):
    device("--workspace", "8")
    assert engine_of(package.parent / "net.engine")["told"] == {
        "flags": [],
        "WORKSPACE": 8 << 20,
        "profile": {name: [[1, 3], [2, 3], [4, 3]] for name in ("x", "keep")},
        "builder_optimization_level": 2,
        "hardware_compatibility_level": 1,
        "profiling_verbosity": 2,
    }


def outputs(**changes: Any) -> dict[str, Any]:
    return {"inputs": [X, KEEP], "outputs": [{**DOUBLED, **changes}, DROPPED]}


WRONG = {
    "a wrong value": ({"spoil": 1e-3}, "noise floors off"),
    "NaN": ({"spoil": "nan"}, "NaN or Inf on one side"),
    "dtype": ({"engine": outputs(dtype="HALF")}, "dtype is float16, not float32"),
    "shape": ({"engine": outputs(op="shape")}, "shape is [2], not [2, 3]"),
    "missing": ({"engine": {**ENGINE, "outputs": [DROPPED]}}, "missing"),
    "it raises": (
        {"engine": {**ENGINE, "fail": ["execute_async_v3"]}},
        "TensorRT failed while it ran",
    ),
    "profile": ({"engine": {**ENGINE, "inputs": [{**X, "max": [3, 3]}, KEEP]}}, "UnfitInputError"),
    "boolean": ({"flip": True}, "1 of 6 elements differ"),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_engine_fails_and_is_put_aside(device, package, fault):
    spec, reason = WRONG[fault]
    old = package.parent / "net.engine"
    old.write_bytes(b"an older one")
    done = device(**spec)
    assert done.returncode == 3, done.stderr
    assert verdict_of(done) == "FAIL"
    assert reason in done.stdout
    assert old.read_bytes() == b"an older one"
    assert (package.parent / "net.engine.rejected").is_file()
    receipt = json.loads((package.parent / "net.engine.rejected.receipt.json").read_text())
    assert (receipt["verdict"], receipt["time"]) == ("fail", None)


def test_an_engine_of_tensorrt_rtx_never_passes(device, package):
    done = device("--module", "tensorrt_rtx")
    assert (done.returncode, done.stderr) == (0, "")
    assert verdict_of(done) == "UNVERIFIED"
    assert "TensorRT for RTX" in done.stdout
    assert not (package.parent / "net.engine").exists()
    assert (package.parent / "net.rtx.engine").exists()


@pytest.mark.parametrize(
    ("spec", "cause"),
    [
        ({"fail": "parser"}, "Frobnicate (node_frobnicate_3): Unsupported operator"),
        ({"fail": "profile"}, "does not take the profile"),
        ({"fail": "build"}, "no implementation"),
        ({"fail": "memory"}, "--workspace 1024"),
        ({"engine": {**ENGINE, "refuse": "not for this GPU"}}, "does not load"),
    ],
)
def test_a_build_that_fails_leaves_the_old_engine(device, package, spec, cause):
    old = package.parent / "net.engine"
    old.write_bytes(b"an older one")
    done = device(**spec)
    assert done.returncode == 4
    assert cause in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert old.read_bytes() == b"an older one"
    assert not list(package.parent.glob(".*"))


def test_a_killed_build_leaves_the_old_engine_and_the_next_one_works(device, package):
    old = package.parent / "net.engine"
    old.write_bytes(b"an older one")
    assert device(fail="killed").returncode < 0
    assert old.read_bytes() == b"an older one"
    # As if it had been killed while it wrote.
    (package.parent / ".net.engine.partial").write_bytes(b"half")
    assert verdict_of(device()) == "PASS"
    assert engine_of(old)["told"]
    assert not list(package.parent.glob(".*"))


def test_timings_are_kept_from_build_to_build(device, package):
    device()
    device()
    assert (package.parent / "net.engine.timings").read_bytes() == b"timings:++"
    (package.parent / "net.engine.timings").write_bytes(b"of another version")
    assert verdict_of(device()) == "PASS"
    assert (package.parent / "net.engine.timings").read_bytes() == b"timings:+"
    mine = package.parent / "notes.txt"
    mine.write_text("mine")
    done = device("--timing-cache", "notes.txt")
    assert (done.returncode, mine.read_text()) == (5, "mine")
    assert "is no timing cache" in done.stderr


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-20])


@pytest.mark.parametrize(
    ("spoil", "named"),
    [
        (lambda folder: cut(folder / "net.onnx"), "net.onnx"),
        (lambda folder: cut(folder / "golden.npz"), "golden.npz"),
        (lambda folder: cut(folder / "golden.json"), "golden.json"),
        (lambda folder: cut(folder / "build.json"), "build.json"),
        (lambda folder: (folder / "golden.npz").unlink(), "golden.npz"),
        (lambda folder: (folder / "build.json").unlink(), "build.json"),
        (lambda folder: cut(folder / "isomorph_device/verdict.py"), "isomorph_device/verdict.py"),
        (lambda folder: (folder / "isomorph_device/verdict.py").unlink(), "verdict.py"),
    ],
)
def test_a_damaged_package_builds_nothing(device, package, spoil, named):
    spoil(package)
    done = device()
    assert done.returncode == 5
    assert named in done.stderr.splitlines()[0]
    assert "copy the whole folder once more" in done.stderr
    assert names_in(package.parent) == ["net.trt-deferred"]


@pytest.mark.parametrize(
    ("options", "given", "cause"),
    [
        ((), {"driver": False}, "libcuda.so.1"),
        (("--module", "tensorrt_rtx", "--no-run"), {"driver": False}, "--sm 86,89"),
        ((), {"absent": ["tensorrt"]}, "tensorrt does not import"),
        ((), {"absent": ["numpy"]}, "numpy does not import"),
        ((), {"version": "8.6.1"}, "8.6.1 is too old"),
    ],
)
def test_what_the_machine_lacks_is_told(device, package, options, given, cause):
    done = device(*options, **given)
    assert done.returncode == 6
    assert cause in done.stderr
    assert len(done.stderr.splitlines()) == 2
    assert names_in(package.parent) == ["net.trt-deferred"]


@pytest.mark.parametrize(
    ("options", "code", "cause"),
    [
        ("--output nowhere/net.engine", 7, "No such file or directory"),
        ("--output net.trt-deferred/README.txt/net.engine", 7, "Not a directory"),
        ("--output net.trt-deferred", 7, "is a folder"),
        ("--output net.trt-deferred/net.onnx", 2, "is a file of this package"),
        ("--timing-cache nowhere/timings", 7, "No such file or directory"),
    ],
)
def test_where_nothing_can_be_written_nothing_is_built(device, package, options, code, cause):
    before = content_of(package)
    done = device(*options.split())
    assert done.returncode == code
    assert cause in done.stderr
    assert done.stdout == ""
    assert content_of(package) == before


def test_without_its_receipt_no_engine_takes_the_place_of_another(device, package):
    old = package.parent / "net.engine"
    old.write_bytes(b"an older one")
    (package.parent / ".net.engine.receipt.json.partial").mkdir()
    done = device()
    assert (done.returncode, old.read_bytes()) == (7, b"an older one")
    assert "Is a directory" in done.stderr
    assert not (package.parent / ".net.engine.partial").exists()


@pytest.mark.parametrize("options", [("--sm", "86"), ("--workspace", "0"), ("--workspace", "x")])
def test_options_that_cannot_be_meant_are_refused(device, options):
    assert device(*options).returncode == 2


@pytest.mark.parametrize(
    "options",
    [("--output", ""), ("--module", "tensorrt_rtx", "--sm", ""), ("--workspace", "9" * 20)],
)
def test_empty_and_endless_options_are_usage_errors(device, options):
    assert device(*options).returncode == 2


@pytest.mark.parametrize("kind", ["fifo", "symlink"])
def test_what_is_no_regular_file_is_not_replaced(device, package, kind):
    place = package.parent / "place"
    if kind == "fifo":
        os.mkfifo(place)
    else:
        place.symlink_to(package.parent / "elsewhere")
    done = device("--output", "place", engine=ENGINE)
    assert done.returncode == 7
    assert "no regular file" in done.stderr
    assert place.is_fifo() or place.is_symlink()


def test_an_engine_that_was_found_right_is_not_replaced_by_one_that_is_not_run(device, package):
    assert verdict_of(device(engine=ENGINE)) == "PASS"
    engine = package.parent / "net.engine"
    before = engine.read_bytes()
    done = device("--no-run", engine=ENGINE)
    assert done.returncode == 7
    assert "found right" in done.stderr
    assert engine.read_bytes() == before
    assert device("--no-run", "--output", "other.engine", engine=ENGINE).returncode == 0


def swap(package: Path) -> None:
    """The golden vectors of another model, whole in themselves."""
    other = isomorph.export(
        torch.nn.Linear(2, 2),
        "tensorrt",
        args=(torch.randn(1, 2),),
        output=package.parent / "other.trt-deferred",
        defer=True,
    )
    for name in ("golden.json", "golden.npz"):
        shutil.copyfile(other.artifacts[0].path / name, package / name)


def edit(path: Path) -> None:
    path.write_text(path.read_text(encoding="utf-8").replace("50", "51"), encoding="utf-8")


@pytest.mark.parametrize(
    "spoil",
    [
        lambda package: (package / "golden.npz").unlink(),
        lambda package: (package / "golden.json").write_text("[" * 200_000),
        lambda package: (package / "build_engine.py").unlink(),
        lambda package: edit(package / "build_engine.py"),
        lambda package: (package / "build.json").write_text(
            (package / "build.json").read_text().replace('"workspace": 67108864', '"workspace": 1')
        ),
        swap,
    ],
    ids=[
        "no golden.npz",
        "deep golden.json",
        "no script",
        "edited script",
        "edited recipe",
        "swap",
    ],
)
def test_validate_refuses_what_the_script_would(package, spoil):
    given = {"inputs": ["x=2x3", "keep=2x3:bool"], "dynamic": {"x.0": "batch:1..4"}}
    given["dynamic"]["keep.0"] = "batch"
    assert isomorph.validate(package, Double(), **given).verdict == "pass"
    spoil(package)
    with pytest.raises(InputFileError):
        isomorph.validate(package, Double(), **given)


def test_an_interrupt_while_tensorrt_builds_is_not_lost_in_its_logger():
    import importlib.util
    import signal

    script = Path(opening.__file__).with_name("build_engine.py")
    spec = importlib.util.spec_from_file_location("build_engine", script)
    module = importlib.util.module_from_spec(spec)
    sys.modules["build_engine"] = module
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        spec.loader.exec_module(module)
        done = []
        with pytest.raises(KeyboardInterrupt), module.interrupts_kept():
            signal.raise_signal(signal.SIGINT)
            done.append("built")
        assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    finally:
        signal.signal(signal.SIGINT, before)
        del sys.modules["build_engine"]
    assert done == ["built"]
