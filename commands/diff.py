"""`isomorph diff`: what moved between two reports."""

from __future__ import annotations

from pathlib import Path

import click

from ..errors import ParityError
from ..failures import failures, leave
from .options import print_json

__all__ = ["diff"]


@click.command()
@click.argument("old", metavar="OLD.report.json")
@click.argument("new", metavar="NEW.report.json")
@click.option("--json", "as_json", is_flag=True, help="One JSON document on stdout.")
@click.option("-v", "--verbose", is_flag=True, help="Show tracebacks.")
def diff(old: str, new: str, as_json: bool, verbose: bool) -> None:
    """Show what moved between two reports; exit 3 when a verdict got worse.

    \b
    Example:
      isomorph diff main/digits.onnx.report.json digits.onnx.report.json
    """
    with failures(as_json, verbose, None):
        from ..validation.report.difference import compare
        from ..validation.report.document import read_document

        found = compare(read_document(Path(old)), read_document(Path(new)))
        if as_json:
            print_json(found.to_json())
        else:
            from ..validation.report.difference import lines

            for line in lines(found):
                click.echo(line)
        if found.worse:
            names = ", ".join(change.name for change in found.worse)
            leave(ParityError(f"worse than before: {names}"), as_json)
