"""How every failure of a command becomes one message and its exit code."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NoReturn

import click

from .bugs import as_bug
from .console import print_error, print_json
from .errors import InputFileError, IsomorphError, UsageError

__all__ = ["as_error", "failures", "leave", "print_failure"]


@contextmanager
def failures(as_json: bool, verbose: bool, source: str | None) -> Iterator[None]:
    """Every failure becomes one message and its exit code."""
    try:
        yield
    except IsomorphError as error:
        if verbose:
            traceback.print_exc()
        _fail(error, as_json, source)
    except KeyboardInterrupt:
        if as_json:
            print_failure(source, IsomorphError("interrupted"), 130)
        else:
            click.echo("interrupted: nothing half-written is left", err=True)
        raise click.exceptions.Exit(130) from None
    except (click.exceptions.Exit, click.ClickException, click.Abort):
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001  the last line of defence
        told = as_error(error)
        if told is None:
            if verbose:
                traceback.print_exc()
            told = as_bug(error)
        _fail(told, as_json, source)


def as_error(error: BaseException) -> IsomorphError | None:
    """The error to tell for an exception; None for a bug of ours."""
    if isinstance(error, IsomorphError):
        return error
    if isinstance(error, SystemExit):
        return UsageError(
            f"the model's code ended the process (sys.exit({error.code!r}))",
            hint="a module, its factory and its forward() must not call sys.exit",
        )
    return _of_system(error) if isinstance(error, OSError) and error.filename else None


def _of_system(error: OSError) -> IsomorphError:
    """A path that the system refuses: too long a name, a loop of links, no permission."""
    name = error.filename.decode() if isinstance(error.filename, bytes) else error.filename
    return InputFileError(
        f"{str(name)[:300]}: {error.strerror or error}", hint="check the path and its permissions"
    )


def print_failure(source: str | None, error: IsomorphError, code: int | None = None) -> None:
    """The one JSON document of a command that failed; `code` overrides the error's own."""
    from .exporter.result import error_document

    document = error_document(error)
    document["code"] = error.exit_code if code is None else code
    print_json({"source": source, "artifacts": [], "error": document})


def _fail(error: IsomorphError, as_json: bool, source: str | None) -> NoReturn:
    if as_json:
        print_failure(source, error)
    leave(error, as_json)


def leave(error: IsomorphError, as_json: bool) -> NoReturn:
    """Tell the error, unless JSON has told it, and end with its exit code."""
    if not as_json:
        print_error(error)
    raise click.exceptions.Exit(error.exit_code)
