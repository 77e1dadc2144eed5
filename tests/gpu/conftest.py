"""Collects what the GPU tests measured, and prints it as the table of docs/gpu.md."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

_ROWS: list[tuple[str, str, str, str, str]] = []


@pytest.fixture
def record() -> Callable[..., None]:
    """Keep one line: model, runtime, and its report (None: not run, and why)."""

    def keep(model: str, runtime: str, report: Any, reason: str = "") -> None:
        if report is None:
            _ROWS.append((model, runtime, "not run", reason, ""))
            return
        outputs = report.outputs
        worst = [
            max((getattr(o, k) or 0.0 for o in outputs), default=0.0)
            for k in ("peak_ratio", "rms_ratio")
        ]
        _ROWS.append((model, runtime, report.verdict, f"{worst[0]:.2f}", f"{worst[1]:.2f}"))

    return keep


def pytest_terminal_summary(terminalreporter: Any) -> None:
    if not _ROWS:
        return
    lines = [
        _machine(),
        "",
        "| model | runtime | verdict | peak, floors | RMS, floors |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(row)} |" for row in _ROWS]
    terminalreporter.write_line("")
    for line in lines:
        terminalreporter.write_line(line)
    if folder := os.environ.get("OUT"):
        Path(folder, "gpu.md").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _machine() -> str:
    import torch

    today = datetime.date.today().isoformat()
    if not torch.cuda.is_available():
        return f"Rehearsal on a CPU, torch {torch.__version__}, {today}."
    major, minor = torch.cuda.get_device_capability()
    return (
        f"{torch.cuda.get_device_name()} (compute capability {major}.{minor}), "
        f"torch {torch.__version__}, CUDA {torch.version.cuda}, {today}."
    )
