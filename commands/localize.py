"""`isomorph localize`: which operator is wrong."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from ..errors import DestinationError, MissingRequirementError, ParityError, UsageError
from ..failures import failures, leave
from .options import logged, only_json, print_json, progress_of, request_of, source_options
from .reporting import ReportFiles, report_option

__all__ = ["localize"]


@click.command()
@click.argument("artifact", metavar="ARTIFACT")
@click.option("--against", required=True, metavar="SOURCE", help="The checkpoint to compare with.")
@source_options
@click.option("--device", metavar="NAME", help="Default: the first that the format has here.")
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "bf16"]),
    help="Whose noise the artifact may have. Default: what the manifest says, else fp32.",
)
@click.option("--case", metavar="NAME", help="The case to follow. Default: the worst that fails.")
@click.option(
    "--repro",
    metavar="FILE.py",
    help="Where the reproduction is written. Default: ARTIFACT.repro.py.",
)
@report_option
def localize(
    artifact: str,
    against: str,
    device: str | None,
    precision: str | None,
    case: str | None,
    repro: str | None,
    **given: Any,
) -> None:
    """Find the first operator at which ARTIFACT leaves what the checkpoint computes.

    Names the operator, its module and line, the artifact's node, and the stage by which the fault
    came in; writes a script that shows the operator alone.

    \b
    Example:
      isomorph localize digits.onnx --against digits.pt --model train.py:DigitsNet
    """
    as_json: bool = given["as_json"]
    with failures(as_json, given["verbose"], against):
        from ..validation.checking import validate as run

        files = ReportFiles.parse(given["report_texts"])
        script = _script(artifact, repro)
        told = files.also_of_errors(against, Path(against).name)
        with told, only_json(as_json), logged(given):
            report = run(
                artifact,
                against,
                device=device,
                precision=precision,
                data=list(given["data"]),
                progress=progress_of(given),
                reproduction=script,
                case=case,
                **request_of(given),
            )
        files.write([report])
        if as_json:
            print_json(report.to_json())
        else:
            from ..rendering import print_report

            print_report(report)
            found = report.localization
            if found is not None and found.reproduction and script is not None:
                click.echo(f"wrote {script}")
        if report.verdict == "fail":
            found = report.localization
            what = found.summary if found is not None else report.reason
            leave(ParityError(f"{artifact} fails: {what}"), as_json)
        if report.verdict == "unverified":
            leave(
                MissingRequirementError(
                    f"{artifact} could not be verified: {report.reason}",
                    hint="only what fails can be localised",
                ),
                as_json,
            )


def _script(artifact: str, repro: str | None) -> Path | None:
    """Where the reproduction goes; nowhere if the artifact's folder cannot be written.

    Raises:
        UsageError: the name has not the suffix `.py`, beside which the data has `.npz`.
        DestinationError: the file that the user named cannot be written.
    """
    from ..validation.report.document import demand_writable

    script = Path(repro or f"{artifact}.repro.py")
    if script.suffix != ".py":
        raise UsageError(f"--repro {repro} is no Python file", hint="name it FILE.py")
    try:
        demand_writable(script)
        demand_writable(script.with_suffix(".npz"))
    except DestinationError:
        if repro:
            raise
        return None
    return script
