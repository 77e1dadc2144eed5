"""The command line: parse, call the API, render, exit code. No logic of its own."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from . import __version__
from .commands.check import check
from .commands.diff import diff
from .commands.localize import localize
from .commands.options import (
    logged,
    only_json,
    print_json,
    progress_of,
    request_of,
    source_options,
    tf32_option,
)
from .commands.reporting import ReportFiles, report_option
from .commands.validate import validate
from .errors import UsageError
from .failures import failures, leave, print_failure

__all__ = ["export_main", "main"]


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "--version", message="isomorph %(version)s")
def cli() -> None:
    """Export PyTorch checkpoints and prove that the artifact computes the same.

    \b
    Example:
      isomorph export model.pt --model net.py:Net -i 1x3x224x224 -f onnx

    Exit codes: 0 written and checked, 2 usage, 3 parity failed, 4 cannot be
    converted, 5 unreadable input file, 6 something is missing on this machine,
    7 destination cannot be written, 1 a bug in Isomorph, 130 interrupted.
    """


@cli.command()
@click.argument("source", metavar="SOURCE")
@click.option(
    "-f",
    "--format",
    "formats",
    multiple=True,
    metavar="NAME",
    help="Target format; repeat for several. `isomorph targets` lists them. Default: onnx.",
)
@click.option("-o", "--output", metavar="PATH", help="Artifact's path; a directory for several.")
@source_options
@click.option(
    "--precision",
    default="fp32",
    show_default=True,
    type=click.Choice(["fp32", "fp16", "bf16"]),
    help="Weights and arithmetic of the artifact; its inputs and outputs keep their types.",
)
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME",
    help="Where to run the artifact: cpu, or what `isomorph targets` lists (cuda, gpu, npu). "
    "Default: the first that it lists for the format. Repeat for several.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="[FORMAT.]KEY=VALUE",
    help="An option of the target, such as opset=20.",
)
@click.option(
    "--isolate",
    is_flag=True,
    help="Convert and run each format in a process of its own: a crash in native code is then "
    "that format's error.",
)
@click.option(
    "--defer",
    is_flag=True,
    help="For tensorrt: write a package that builds the engine on the device and checks it there.",
)
@click.option("--no-validate", is_flag=True, help="Write without checking: unverified.")
@click.option(
    "--require",
    type=click.Choice(["executed", "evaluated"]),
    help="Fail unless the artifact was checked at least this way: run by its own runtime "
    "(executed), or computed by an evaluator of ours (evaluated).",
)
@tf32_option
@report_option
def export(
    source: str,
    formats: tuple[str, ...],
    output: str | None,
    precision: str,
    devices: tuple[str, ...],
    settings: tuple[str, ...],
    isolate: bool,
    defer: bool,
    no_validate: bool,
    require: str | None,
    tf32: bool,
    **given: Any,
) -> None:
    """Export the checkpoint SOURCE and check what was written.

    \b
    Example:
      isomorph export digits.pt --model train.py:DigitsNet -i 1x1x8x8
      isomorph export bert.pt --model net.py:Bert -i ids=1x128:int64 -i mask=1x128:bool
    """
    as_json: bool = given["as_json"]
    with failures(as_json, given["verbose"], source):
        from .exporter.pipeline import export as run
        from .targets.options import split_settings

        files = ReportFiles.parse(given["report_texts"])
        names = formats or ("onnx",)
        told = files.also_of_errors(source, Path(source).name, names)
        with told, only_json(as_json), logged(given):
            options = split_settings(settings, names)
            result = run(
                source,
                names[0] if len(names) == 1 else list(names),
                output=output,
                precision=precision,
                devices=devices or None,
                options=options if len(names) > 1 else options[names[0]],
                validate=not no_validate,
                require=require,
                tf32=tf32,
                isolate=isolate,
                defer=defer,
                data=list(given["data"]),
                progress=progress_of(given),
                **request_of(given),
            )
        files.write_export(result)
        if as_json:
            print_json(result.to_json())
        else:
            from .rendering import print_export

            print_export(result)
        if found := result.failures():
            leave(found[0], as_json)


@cli.command()
@click.argument("file", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def inspect(file: str, as_json: bool, verbose: bool) -> None:
    """Say what FILE holds, without running anything in it.

    \b
    Example:
      isomorph inspect model.pt
    """
    with failures(as_json, verbose, file):
        from .exporter.inspection import inspect as run

        found = run(file)
        if as_json:
            print_json(found.to_json())
        else:
            from .rendering import print_inspection

            print_inspection(found)


@cli.command()
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
def targets(as_json: bool) -> None:
    """List the formats, and what this machine can do with each.

    \b
    Example:
      isomorph targets
    """
    with failures(as_json, False, None):
        from .chatter import library_log, muffled
        from .targets.registry import capabilities

        with library_log(None, show=False), muffled():  # a plug-in may print
            found = capabilities()
        if as_json:
            from dataclasses import asdict

            print_json({"targets": [{"format": n, **asdict(c)} for n, c in found.items()]})
        else:
            from .rendering import print_targets

            print_targets(found)


cli.add_command(validate)
cli.add_command(check)
cli.add_command(localize)
cli.add_command(diff)


def _collect_garbage_rarely() -> None:
    """A short-lived process that makes millions of objects wins little by looking for cycles.

    Python's default looks after every 700 new objects; benchmarks/export_onnx.py
    took 15 % less time with this on ResNet-50, and no more memory.
    """
    import gc

    gc.set_threshold(100_000, 20, 100)


def _run(command: click.Command, name: str | None) -> None:
    """Run a command and leave at once: torch takes up to 1.6 s to be torn down, for nothing.

    By then every file is closed and every temporary folder removed by its own
    context manager.
    """
    _collect_garbage_rarely()
    _prepare_streams()
    # A job that is stopped by its scheduler cleans up as one that is interrupted does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    code: Any = 0
    try:
        code = command.main(prog_name=name, standalone_mode=False)
    except SystemExit as end:
        code = end.code
    except click.ClickException as error:
        error.show()
        if "--json" in sys.argv:
            print_failure(None, UsageError(error.format_message()))
        code = error.exit_code
    except click.Abort:
        code = 130
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed: nobody left to tell
            stream.flush()
    os._exit(code if isinstance(code, int) else 0 if code is None else 1)


def _prepare_streams() -> None:
    """Closed streams become the null device; letters that an encoding lacks are escaped."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")


def main() -> None:
    """Entry point of `isomorph`."""
    _run(cli, None)


def export_main() -> None:
    """Entry point of `export`, the command's short form."""
    _run(export, "export")
