"""`isomorph validate`: does an artifact compute what a checkpoint does?"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ..errors import MissingRequirementError, ParityError
from ..exporter.requirements import REQUIRE, demand_evidence
from ..failures import failures, leave
from .options import (
    logged,
    only_json,
    print_json,
    progress_of,
    request_of,
    source_options,
    tf32_option,
)
from .reporting import ReportFiles, report_option

if TYPE_CHECKING:
    from ..errors import IsomorphError
    from ..validation.report import Report
    from ..validation.report.document import ReportedError

__all__ = ["validate"]


@click.command()
@click.argument("artifact", metavar="ARTIFACT")
@click.option("--against", required=True, metavar="SOURCE", help="The checkpoint to compare with.")
@source_options
@click.option(
    "--device",
    "devices",
    multiple=True,
    metavar="NAME",
    help="Where to run it; repeat for several. Default: the first that the format has here.",
)
@click.option(
    "--precision",
    type=click.Choice(["fp32", "fp16", "bf16"]),
    help="Whose noise the artifact may have. Default: what the manifest says, else fp32.",
)
@click.option(
    "--require",
    type=click.Choice(REQUIRE),
    help="The least evidence, on every device. Without it a device that is not here is told and "
    "no failure, as long as another verified the artifact.",
)
@tf32_option
@report_option
def validate(
    artifact: str,
    against: str,
    devices: tuple[str, ...],
    precision: str | None,
    require: str | None,
    tf32: bool,
    **given: Any,
) -> None:
    """Check that ARTIFACT computes what the checkpoint does.

    What is not given is read from the artifact's manifest.

    \b
    Example:
      isomorph validate digits.onnx --against digits.pt --model train.py:DigitsNet
    """
    as_json: bool = given["as_json"]
    with failures(as_json, given["verbose"], against):
        from ..validation.checking import validate_on

        files = ReportFiles.parse(given["report_texts"])
        told = files.also_of_errors(against, Path(against).name)
        with told, only_json(as_json), logged(given):
            reports = validate_on(
                devices,
                artifact,
                against,
                precision=precision,
                tf32=tf32,
                data=list(given["data"]),
                progress=progress_of(given),
                **request_of(given),
            )
        failure = _failure(artifact, reports, require)
        files.write(reports, _untold(failure, against))
        if as_json:
            print_json(_document(reports))
        else:
            from ..rendering import print_report

            for report in reports:
                print_report(report)
        if failure is not None:
            leave(failure, as_json)


def _untold(failure: IsomorphError | None, against: str) -> list[ReportedError]:
    """What the reports do not show: that their evidence is too little."""
    from ..validation.report.document import ReportedError

    if failure is None or isinstance(failure, ParityError):
        return []
    return [ReportedError.of(failure, Path(against).name, "", against)]


def _document(reports: Sequence[Report]) -> dict[str, Any]:
    """One report as it stands, several in a document of them."""
    if len(reports) == 1:
        return reports[0].to_json()
    from ..validation.report.document import document_of

    return document_of(reports)


def _failure(artifact: str, reports: Sequence[Report], require: str | None) -> IsomorphError | None:
    """Why the command does not end well: a failure first, then what nobody could verify."""
    for report in reports:
        if report.verdict == "fail":
            found = report.localization
            first = f"; {found.summary}" if found is not None else ""
            where = f" on {report.evidence.device}" if len(reports) > 1 else ""
            return ParityError(f"{artifact} fails{where}: {report.reason}{first}")
    try:
        demand_evidence(reports, require)
    except MissingRequirementError as error:
        return error
    passed = any(report.verdict == "pass" for report in reports)
    for report in reports:
        if report.verdict == "unverified" and not (passed and report.evidence.kind == "built"):
            return MissingRequirementError(
                f"{artifact} could not be verified: {report.reason}",
                hint="validate needs at least evaluated evidence",
            )
    return None
