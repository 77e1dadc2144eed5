"""Options and habits that several commands share."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..errors import UsageError

if TYPE_CHECKING:
    from ..progress import Progress

__all__ = [
    "logged",
    "only_json",
    "print_json",
    "progress_of",
    "request_of",
    "source_options",
    "tf32_option",
]

_Command = TypeVar("_Command", bound=Callable[..., Any])


_BUDGET = click.option(
    "--budget",
    type=float,
    metavar="SECONDS",
    help="How long the inputs that are tried may take, as estimated from the graph. One of each "
    "kind is tried always. Default: 5.",
)


def budget_option(command: _Command) -> _Command:
    """The option that says how many inputs are tried."""
    return _BUDGET(command)


def source_options(command: _Command) -> _Command:
    """Options that say how to load the model and what its inputs are."""
    options = [
        click.option(
            "--model",
            metavar="SPEC",
            help="How to build the module: pkg.mod:callable, file.py:callable, torchvision:NAME "
            "or timm:NAME; literal arguments as in file.py:Net(width=64).",
        ),
        click.option(
            "-i",
            "--input",
            "input_texts",
            multiple=True,
            metavar="SPEC",
            help="[NAME=]SHAPE[:DTYPE[:MIN..MAX]], such as 1x3x224x224 or "
            "ids=1x128:int64:0..30521. Repeat for several inputs.",
        ),
        click.option(
            "--inputs",
            "inputs_file",
            metavar="FILE",
            help="Example inputs by name: .npz, .safetensors or .pt.",
        ),
        click.option(
            "--dynamic",
            "dynamic_texts",
            multiple=True,
            metavar="SPEC",
            help="NAME.AXIS=DIM[:MIN..MAX[:STEP]], such as x.0=batch:1..16. Axes with the same "
            "DIM always have the same size.",
        ),
        click.option(
            "--data",
            multiple=True,
            metavar="FILE",
            help="Further samples to check with: .npz, .safetensors or .pt.",
        ),
        _BUDGET,
        click.option(
            "--allow",
            multiple=True,
            metavar="CLASS",
            help="A class that a pickled module may hold, as pkg.mod.Class. Imports that module.",
        ),
        click.option(
            "--trust",
            is_flag=True,
            help="Unpickle freely and load native code. The file can then run any code.",
        ),
        click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout."),
        click.option("-q", "--quiet", is_flag=True, help="No progress."),
        click.option(
            "--log",
            metavar="FILE",
            help="Keep what libraries print while they convert and run.",
        ),
        click.option(
            "-v", "--verbose", is_flag=True, help="Show tracebacks, and what libraries print."
        ),
    ]
    return functools.reduce(lambda wrapped, option: option(wrapped), reversed(options), command)


def tf32_option(command: _Command) -> _Command:
    """The option that leaves TF32 on."""
    return click.option(
        "--tf32",
        is_flag=True,
        help="On a GPU, let float32 products round their factors to TF32's 10 bits while the "
        "artifact is checked.",
    )(command)


def request_of(given: dict[str, Any]) -> dict[str, Any]:
    """The API's keyword arguments from `source_options`."""
    from ..exporter.signature import parse_dynamic

    dynamic: dict[str, str] = {}
    for text in given["dynamic_texts"]:
        parse_dynamic(text)
        target, _, rest = text.partition("=")
        if target.strip() in dynamic:
            raise UsageError(f"--dynamic names {target.strip()} twice")
        dynamic[target.strip()] = rest.strip()
    inputs: list[str | Path] = list(given["input_texts"])
    if given["inputs_file"]:
        inputs.append(Path(given["inputs_file"]))
    return {
        "model": given["model"],
        "inputs": inputs or None,
        "dynamic": dynamic or None,
        "budget": given["budget"],
        "allow": given["allow"],
        "trust": given["trust"],
    }


def progress_of(given: dict[str, Any]) -> Progress | None:
    """Where stages are told; None for `--quiet`."""
    if given["quiet"]:
        return None
    from ..console import ConsoleProgress

    return ConsoleProgress()


def print_json(document: dict[str, Any]) -> None:
    """One document on stdout."""
    from ..console import print_json

    print_json(document)


@contextmanager
def only_json(active: bool) -> Iterator[None]:
    """Keep everything else off stdout while `active`."""
    from ..console import only_json_on_stdout

    with only_json_on_stdout(active):
        yield


def logged(given: dict[str, Any]) -> AbstractContextManager[None]:
    """Send what libraries print to where `--log` and `--verbose` say."""
    from ..chatter import library_log

    return library_log(given["log"], show=given["verbose"])
