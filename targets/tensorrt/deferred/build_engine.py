#!/usr/bin/env python3
"""Builds a TensorRT engine on this machine's GPU, and proves that it computes what the model does.

    python3 build_engine.py

Needs TensorRT 10 or 11 (with its Python module), numpy, and Python 3.8 or later. The network, its
profile and settings (build.json) and what the model gives on chosen inputs (golden.json and
golden.npz) lie beside this file; the folder isomorph_device holds the rule that judges.

Exit codes: 0 built (PASS or UNVERIFIED), 2 usage, 3 the engine computes something else, 4 TensorRT
refuses the network, 5 this folder is damaged, 6 this machine lacks something, 7 cannot write.
"""

from __future__ import annotations

import argparse
import contextlib
import dataclasses
import datetime
import hashlib
import importlib
import json
import os
import platform
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

# Filled in where Isomorph writes the package.
NAME = "model"
ISOMORPH = "0"
RECIPE_SHA256 = ""

HERE = Path(__file__).resolve().parent
RECIPE = "build.json"
# Files of the package that build.json does not name.
OTHERS = (RECIPE, "README.txt", "build_engine.py", "golden.json", "golden.npz")

REFUSED, DAMAGED, LACKING, UNWRITABLE = 4, 5, 6, 7
FAILED, INTERRUPTED = 3, 130

COPY_AGAIN = "copy the whole folder once more, or export the model again"
REPEATS = 50
MIB = 1 << 20
# TensorRT's words for a GPU whose memory does not suffice.
OUT_OF_MEMORY = ("out of memory", "OutOfMemory", "insufficient memory", "Requested amount of GPU")

# In a process of its own: a broken driver may crash.
PROBE = """
import json, sys
sys.dont_write_bytecode = True
sys.path.insert(0, sys.argv[1])
from isomorph_device.driver import Cuda
cuda = Cuda()
print(json.dumps([cuda.name, cuda.capability, cuda.driver, cuda.memory()[1]]))
"""


class Stop(Exception):  # noqa: N818
    """Ends the run: what is wrong, what to do, and the exit code."""

    def __init__(self, code: int, cause: str, remedy: str) -> None:
        super().__init__(cause)
        self.code, self.remedy = code, remedy


class Gpu(NamedTuple):
    """The first GPU. `driver`: the newest CUDA that the driver knows; `memory` in bytes."""

    name: str
    capability: str
    driver: str
    memory: int


def main(argv: Sequence[str] | None = None) -> int:
    """Build, prove, tell; gives the exit code."""
    options = parse_arguments(argv)
    # The package stays as it was written.
    sys.dont_write_bytecode = True
    if str(HERE) not in sys.path:
        sys.path.insert(0, str(HERE))
    try:
        return work(options)
    except Stop as stop:
        sys.stderr.write(f"error: {stop}\n  {stop.remedy}\n")
        return stop.code
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: nothing was written\n")
        return INTERRUPTED


def parse_arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--output", metavar="FILE", help=f"the engine; default {NAME}.engine")
    parser.add_argument(
        "--timing-cache",
        metavar="FILE",
        help="keeps kernel timings from one build to the next; default: beside the engine",
    )
    parser.add_argument(
        "--workspace", metavar="MIB", type=positive, help="scratch memory that a layer may use"
    )
    parser.add_argument(
        "--module",
        choices=("tensorrt", "tensorrt_rtx"),
        default="tensorrt",
        help="tensorrt_rtx builds an engine of TensorRT for RTX, another format: never a PASS",
    )
    parser.add_argument(
        "--sm",
        metavar="86,89",
        help="tensorrt_rtx only: GPUs to build for; with --no-run this takes no GPU",
    )
    parser.add_argument("--no-run", action="store_true", help="build only: UNVERIFIED")
    parser.add_argument("--verbose", action="store_true", help="show what TensorRT says")
    options = parser.parse_args(argv)
    if options.output == "" or options.sm == "" or options.timing_cache == "":
        parser.error("--output, --sm and --timing-cache take something")
    if options.sm and options.module != "tensorrt_rtx":
        parser.error("--sm goes with --module tensorrt_rtx: TensorRT builds for the GPU it is on")
    if options.output is None:
        options.output = f"{NAME}.{'rtx.' if options.module == 'tensorrt_rtx' else ''}engine"
    return options


def positive(text: str) -> int:
    """A size in MiB."""
    # TensorRT takes 64 bits of bytes, and no GPU has a petabyte.
    if not text.isdigit() or not 1 <= int(text) <= 1 << 32:
        raise argparse.ArgumentTypeError(f"{text!r} is no size in MiB")
    return int(text)


def say(text: str) -> None:
    """Print a line at once, though a pipe may read it."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


# What this folder holds


def read_recipe() -> dict[str, Any]:
    """build.json; every file that it names must be there unchanged."""
    if sha256_of(HERE / RECIPE) != RECIPE_SHA256:
        raise Stop(DAMAGED, f"{RECIPE} is not the file of this package", COPY_AGAIN)
    recipe: dict[str, Any] = json.loads((HERE / RECIPE).read_text(encoding="utf-8"))
    for name, digest in recipe["files"].items():
        if sha256_of(HERE / name) != digest:
            raise Stop(DAMAGED, f"{name} was changed since the package was written", COPY_AGAIN)
    return recipe


def sha256_of(path: Path) -> str:
    """Hex SHA-256 of a file of the package."""
    digest = hashlib.sha256()
    try:
        with path.open("rb") as stream:
            for block in iter(lambda: stream.read(MIB), b""):
                digest.update(block)
    except OSError as error:
        cause = f"{path.relative_to(HERE).as_posix()} cannot be read: {error.strerror}"
        raise Stop(DAMAGED, cause, COPY_AGAIN) from None
    return digest.hexdigest()


def package_sha256(recipe: dict[str, Any]) -> str:
    """The package's hash, as the manifest beside it has it."""
    digest = hashlib.sha256()
    for name in sorted((*recipe["files"], *OTHERS), key=lambda name: name.split("/")):
        path = HERE / name
        digest.update(f"{name}\0{path.stat().st_size}\0{sha256_of(path)}\n".encode())
    return digest.hexdigest()


def shipped(name: str) -> Any:
    """A module of the folder isomorph_device."""
    try:
        import numpy  # noqa: F401
    except ImportError as error:
        raise Stop(LACKING, f"numpy does not import: {error}", "pip install numpy") from None
    return importlib.import_module(f"isomorph_device.{name}")


def read_vectors() -> Any:
    """What the model gives on chosen inputs."""
    vectors = shipped("vectors")
    try:
        return vectors.read_golden(HERE)
    except vectors.DamagedVectorsError as error:
        raise Stop(DAMAGED, str(error), COPY_AGAIN) from None


# What this machine has


def find_gpu(rtx: bool) -> Gpu:
    """The first GPU, asked before TensorRT is touched: without one TensorRT may crash."""
    remedy = "run this on the device that is to run the engine; its NVIDIA driver must be installed"
    if rtx:
        remedy += "; or build for GPUs that are not here: --sm 86,89 --no-run"
    command = [sys.executable, "-I", "-c", PROBE, str(HERE)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    except (OSError, subprocess.SubprocessError) as error:
        raise Stop(LACKING, f"CUDA could not be asked for a GPU: {error}", remedy) from None
    if done.returncode != 0:
        why = (done.stderr.strip().splitlines() or [f"it ended with {done.returncode}"])[-1]
        raise Stop(LACKING, f"this machine shows no GPU: {why}", remedy)
    name, capability, driver, memory = json.loads(done.stdout)
    return Gpu(name, ".".join(map(str, capability)), driver, memory)


def load_tensorrt(name: str) -> Any:
    """TensorRT's Python module, 10 or later."""
    remedy = "pip install tensorrt; on Jetson and DRIVE use the Python that TensorRT came with"
    if name == "tensorrt_rtx":
        remedy = "pip install tensorrt-rtx-cu13"
    try:
        module = importlib.import_module(name)
    except (ImportError, OSError) as error:
        raise Stop(LACKING, f"{name} does not import: {error}", remedy) from None
    version = str(module.__version__)
    if name == "tensorrt" and int(version.split(".")[0]) < 10:
        raise Stop(LACKING, f"TensorRT {version} is too old: 10 or 11 is needed", remedy)
    return module


def demand_writable(output: Path, recipe: dict[str, Any]) -> None:
    """Find out before a long build whether a file that comes of it can be written."""
    if output.resolve() in {HERE / name for name in (*recipe["files"], *OTHERS)}:
        raise Stop(2, f"{output} is a file of this package", "choose another place for it")
    if output.is_symlink() or (output.exists() and not output.is_file()):
        what = "a folder" if output.is_dir() else "no regular file"
        raise Stop(UNWRITABLE, f"{output} is {what}", "choose another place for it")
    trial = partial(output)
    try:
        trial.write_bytes(b"")
        trial.unlink()
    except OSError as error:
        raise cannot_write(output, error) from None


def demand_unproven(output: Path) -> None:
    """An engine that was found right is not replaced by one that nothing will run."""
    proven = output.with_name(f"{output.name}.manifest.json").exists()
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        receipt = output.with_name(f"{output.name}.receipt.json").read_text(encoding="utf-8")
        proven = proven or json.loads(receipt)["verdict"] == "pass"
    if output.exists() and proven:
        cause = f"{output} was checked and found right, and this build would not be run"
        raise Stop(UNWRITABLE, cause, "choose another place for it: --output FILE")


def cannot_write(path: Path, error: OSError) -> Stop:
    """The operating system's refusal, with a remedy."""
    cause = f"{path} cannot be written: {error.strerror or error}"
    return Stop(UNWRITABLE, cause, "free some space, or choose another place for it")


def partial(path: Path) -> Path:
    """Where a file grows, so that `path` only ever holds a whole one."""
    return path.with_name(f".{path.name}.partial")


def write_whole(path: Path, content: bytes) -> None:
    """Write beside `path` and rename; an older file survives a failure."""
    try:
        partial(path).write_bytes(content)
        os.replace(partial(path), path)  # noqa: PTH105
    except OSError as error:
        discard(partial(path))
        raise cannot_write(path, error) from None


def discard(path: Path) -> None:
    """Remove a file, if it is there and can be removed."""
    with contextlib.suppress(OSError):
        path.unlink()


# The build


def make_log(trt: Any, verbose: bool) -> Any:
    """TensorRT's logger; `errors` holds what went wrong, in order."""

    class Log(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []

        def log(self, severity: Any, message: str) -> None:
            if severity.name in ("ERROR", "INTERNAL_ERROR"):
                self.errors.append(message)
            if verbose:
                sys.stderr.write(f"{trt.__name__} {severity.name}: {message}\n")

    return Log()


def build(
    trt: Any,
    log: Any,
    recipe: dict[str, Any],
    options: argparse.Namespace,
    keeps_timings: Path,
) -> bytes:
    """The engine of the network and settings that build.json names."""
    # Operators that are plug-ins of TensorRT are found only after this.
    trt.init_libnvinfer_plugins(log, "")
    builder = trt.Builder(log)
    # Strongly typed: the only kind from TensorRT 11 on, a flag on 10.
    strongly = getattr(trt.NetworkDefinitionCreationFlag, "STRONGLY_TYPED", None)
    network = builder.create_network(0 if strongly is None else 1 << int(strongly))
    parser = trt.OnnxParser(network, log)
    if not parser.parse_from_file(str(HERE / recipe["onnx"])):
        raise refusal(f"its parser refuses {', '.join(parser_errors(parser))}", log)
    config = builder.create_builder_config()
    configure(trt, config, recipe["build"], options)
    profile = builder.create_optimization_profile()
    for name, sizes in recipe["build"]["profile"].items():
        profile.set_shape(name, sizes["min"], sizes["opt"], sizes["max"])
    if recipe["build"]["profile"] and config.add_optimization_profile(profile) < 0:
        raise refusal("it does not take the profile of build.json", log)
    # TensorRT for RTX compiles kernels on the GPU and keeps no timings.
    rtx = options.module == "tensorrt_rtx"
    named = options.timing_cache is not None
    cache = None if rtx else timing_cache(config, keeps_timings, named=named)
    with interrupts_kept():
        plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise refusal("the build failed", log)
    if cache is not None:
        write_whole(keeps_timings, bytes(memoryview(config.get_timing_cache().serialize())))
    return bytes(memoryview(plan))


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """Ctrl-C waits for the build's end: TensorRT swallows what is raised in its logger.

    A second one ends the process at once, with nothing written.
    """
    kept: list[int] = []

    def keep(number: int, _frame: Any) -> None:
        if kept:
            os._exit(INTERRUPTED)
        kept.append(number)
        os.write(2, b"interrupted: it ends when TensorRT returns; once more to end it now\n")

    numbers = (signal.SIGINT, signal.SIGTERM)
    before = [(number, signal.signal(number, keep)) for number in numbers]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)
    if kept:
        raise KeyboardInterrupt


def configure(
    trt: Any,
    config: Any,
    settings: dict[str, Any],
    options: argparse.Namespace,
) -> None:
    """Tell the builder what build.json and the command line ask for."""
    # On by default, and it rounds the factors of float32 products to 10 bits.
    config.clear_flag(trt.BuilderFlag.TF32)
    for name in settings["flags"]:
        if not hasattr(trt.BuilderFlag, name):
            cause = f"{trt.__name__} {trt.__version__} has no {name}, which build.json asks for"
            raise Stop(REFUSED, cause, "export again without that option")
        config.set_flag(getattr(trt.BuilderFlag, name))
    workspace = settings["workspace"] if options.workspace is None else options.workspace * MIB
    if workspace is not None:
        config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, workspace)
    if settings["optimization_level"] is not None:
        config.builder_optimization_level = settings["optimization_level"]
    if settings["hardware_compatibility"] != "NONE":
        level = getattr(trt.HardwareCompatibilityLevel, settings["hardware_compatibility"])
        config.hardware_compatibility_level = level
    # The layers' precisions can be told only where they were kept.
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    if options.sm:
        names = [f"SM{number.strip()}" for number in options.sm.split(",")]
        config.num_compute_capabilities = len(names)
        for index, name in enumerate(names):
            if name not in trt.ComputeCapability.__members__:
                known = ", ".join(trt.ComputeCapability.__members__)
                raise Stop(2, f"{trt.__name__} does not build for {name}", f"it knows {known}")
            config.set_compute_capability(getattr(trt.ComputeCapability, name), index)


def timing_cache(config: Any, path: Path, *, named: bool) -> Any:
    """Timings of earlier builds. `named`: the user said which file, so it is not thrown away."""
    try:
        kept = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise Stop(DAMAGED, f"{path} cannot be read: {error.strerror}", "delete it") from None
    cache = config.create_timing_cache(kept)
    if cache is not None and config.set_timing_cache(cache, ignore_mismatch=False):
        return cache
    if named:
        cause = f"{path} is no timing cache of this TensorRT and GPU"
        raise Stop(DAMAGED, cause, "delete it, or name another file with --timing-cache")
    # Ours, of another version or GPU: begin anew.
    cache = config.create_timing_cache(b"")
    config.set_timing_cache(cache, ignore_mismatch=False)
    return cache


def parser_errors(parser: Any) -> list[str]:
    """Nodes that the parser refuses, each with its reason."""
    told = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        told.append(f"{error.node_operator()} ({error.node_name()}): {one_line(error.desc())}")
    return told[:5] or ["the network"]


def refusal(cause: str, log: Any) -> Stop:
    """TensorRT does not build: its own last words, and what to do."""
    own = "; ".join(map(one_line, log.errors[-2:]))
    cause = f"TensorRT does not build {NAME}: {cause}" + (f": {own}" if own else "")
    if any(sign in text for sign in OUT_OF_MEMORY for text in log.errors):
        remedy = "the GPU's memory is too small: close other programs on it, or allow less scratch "
        return Stop(REFUSED, cause, f"{remedy}memory (--workspace 1024)")
    remedy = "--verbose tells more; rewrite that part of the model, export again"
    if "FP32 GEMM is not supported" in own:
        remedy = (
            "SM75 has no float32 product: leave 75 out of --sm, or export with --precision fp16"
        )
    elif "Unable to load library" in own:
        remedy = "this TensorRT lacks a library that an option of the export needs: leave that out"
    return Stop(REFUSED, cause, remedy)


def one_line(text: str) -> str:
    """A message without line breaks, cut at a length that a terminal shows."""
    return " ".join(text.split())[:300]


# The proof


def prove(
    trt: Any,
    log: Any,
    engine: bytes,
    recipe: dict[str, Any],
    golden: Any,
    rtx: bool,
) -> tuple[Any, dict[str, Any] | None]:
    """The report on the engine, and how long a run takes; None where it does not run."""
    running, driver = shipped("running"), shipped("driver")
    findings, judging, evidence = shipped("findings"), shipped("judging"), shipped("evidence")

    def run(case: Any, _: str) -> tuple[Any, Any]:
        try:
            return runner.run(case.inputs), None
        except Exception as error:  # noqa: BLE001 - judged as a failure, whatever it is
            if getattr(error, "out_of_memory", False):
                raise no_memory(error) from None
            return None, judging.Problem("fail", failure_of(error, log))

    try:
        onnx = HERE / recipe["onnx"]
        # Built here: native code that it carries for other versions is TensorRT's own.
        with running.EngineRunner(trt, engine, log, onnx=onnx, host_code=True) as runner:
            facts = runner.facts()
            label = evidence.Evidence(
                "executed", trt.__name__, str(trt.__version__), "cuda", dict(facts)
            )
            found = judging.judge_runs(
                golden.outputs,
                golden.reference,
                golden.cases,
                run,
                declared={tensor.name: tensor.dtype for tensor in runner.outputs},
            )
            report = findings.report_of(golden.outputs, golden.reference, label, found)
            if rtx and report.verdict == "pass":
                reason = "an engine of TensorRT for RTX, which says nothing of TensorRT's own"
                report = dataclasses.replace(report, verdict="unverified", reason=reason)
            timed = None if report.verdict == "fail" else take_time(runner, golden.cases)
    except (running.EngineError, driver.CudaError, OSError) as error:
        if getattr(error, "out_of_memory", False):
            raise no_memory(error) from None
        cause = f"the engine was built and does not load: {failure_of(error, log)}"
        raise Stop(REFUSED, cause, "--verbose tells more; nothing was written") from None
    return report, timed


def no_memory(error: Exception) -> Stop:
    """The GPU cannot hold the engine and a case."""
    remedy = "close other programs on the GPU, or export with a smaller range of sizes (--dynamic)"
    return Stop(LACKING, f"the GPU's memory does not suffice to run the engine: {error}", remedy)


def failure_of(error: Exception, log: Any) -> str:
    """An exception in one line, with what TensorRT said last."""
    said = f" ({one_line(log.errors[-1])})" if log.errors else ""
    return f"{type(error).__name__}: {one_line(str(error))}{said}"


def take_time(runner: Any, cases: Sequence[Any]) -> dict[str, Any]:
    """Median time of a run on the first case, which is the user's own where there is one."""
    case = cases[0]
    return {
        "median_seconds": runner.times(case.inputs, REPEATS),
        "runs": REPEATS,
        "case": case.name,
        "inputs": {name: list(array.shape) for name, array in case.inputs.items()},
    }


def not_run(trt: Any, golden: Any) -> Any:
    """The report on an engine that was built only."""
    model, evidence = shipped("report.model"), shipped("evidence")
    reason = "the engine was built and not run (--no-run)"
    label = evidence.Evidence("built", trt.__name__, str(trt.__version__), "none")
    outputs = tuple(
        model.OutputReport(tensor.name, tensor.dtype, tensor.shape, "unverified", reason)
        for tensor in golden.outputs
    )
    return model.Report("unverified", reason, label, outputs=outputs)


# The whole way


def surroundings(
    trt: Any, recipe: dict[str, Any], options: argparse.Namespace, seconds: float
) -> dict[str, Any]:
    """What the engine was built from, by what and where, for the receipt."""
    return {
        "package_sha256": package_sha256(recipe),
        "isomorph": ISOMORPH,
        "built_by": {
            "module": trt.__name__,
            "version": str(trt.__version__),
            "seconds": round(seconds, 3),
            "settings": recipe["build"],
            "workspace_mib": options.workspace,
            "compute_capabilities": options.sm,
        },
        "host": {
            "python": platform.python_version(),
            "numpy": importlib.import_module("numpy").__version__,
            "machine": platform.machine(),
            "system": platform.platform(),
        },
        "date": datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds"),
    }


def work(options: argparse.Namespace) -> int:
    """Check, build, prove, write, tell."""
    output = Path(options.output)
    recipe = read_recipe()
    timings = Path(options.timing_cache or f"{output}.timings")
    for path in (output, timings):
        demand_writable(path, recipe)
    rtx = options.module == "tensorrt_rtx"
    if rtx or options.no_run:
        demand_unproven(output)
    golden = read_vectors()
    gpu = None if rtx and options.no_run and options.sm else find_gpu(rtx)
    trt = load_tensorrt(options.module)
    log = make_log(trt, options.verbose)
    where = f" on {gpu.name}" if gpu else f" for {options.sm} (no GPU is used)"
    say(f"building {NAME} with {trt.__name__} {trt.__version__}{where}")
    begun = time.monotonic()
    engine = build(trt, log, recipe, options, timings)
    seconds = time.monotonic() - begun
    growing = partial(output)
    try:
        try:
            growing.write_bytes(engine)
        except OSError as error:
            raise cannot_write(output, error) from None
        del engine
        # What is judged are the bytes that were written.
        written = growing.read_bytes()
        timed: dict[str, Any] | None = None
        if options.no_run:
            report = not_run(trt, golden)
        else:
            report, timed = prove(trt, log, written, recipe, golden, rtx)
        final = output
        if report.verdict == "fail":
            final = output.with_name(f"{output.name}.rejected")
        receipt_file = final.with_name(f"{final.name}.receipt.json")
        receipt = {
            "schema": 1,
            "verdict": report.verdict,
            "reason": report.reason,
            "name": NAME,
            "engine": {
                "file": final.name,
                "sha256": hashlib.sha256(written).hexdigest(),
                "bytes": len(written),
            },
            **surroundings(trt, recipe, options, seconds),
            "gpu": gpu._asdict() if gpu else None,
            "time": timed,
            "report": report.to_json(),
        }
        # Both are on disk before either takes its name.
        try:
            partial(receipt_file).write_text(json.dumps(receipt, indent=2) + "\n", encoding="utf-8")
            os.replace(growing, final)  # noqa: PTH105
            os.replace(partial(receipt_file), receipt_file)  # noqa: PTH105
        except OSError as error:
            raise cannot_write(final, error) from None
        finally:
            discard(partial(receipt_file))
    finally:
        discard(growing)
    for line in shipped("telling").lines_of(report, receipt, final):
        say(line)
    return FAILED if report.verdict == "fail" else 0


if __name__ == "__main__":
    sys.exit(main())
