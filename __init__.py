"""Isomorph: export PyTorch models and prove that the artifact computes the same.

    import isomorph

    result = isomorph.export("model.pt", "onnx", model="net.py:Net", inputs=["1x3x224x224"])
    result.raise_for_verdict()

Importing this package imports neither torch nor any runtime; the functions do.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exporter.graph import Graph
    from .exporter.pipeline import export
    from .exporter.result import ExportResult
    from .exporter.tracing import trace
    from .validation.checking import load, validate, validate_on
    from .validation.report import Report

__version__ = "0.1.0"
__all__ = [
    "ExportResult",
    "Graph",
    "Report",
    "__version__",
    "export",
    "load",
    "trace",
    "validate",
    "validate_on",
]

_HOMES = {
    "ExportResult": ".exporter.result",
    "Graph": ".exporter.graph",
    "Report": ".validation.report",
    "export": ".exporter.pipeline",
    "load": ".validation.checking",
    "trace": ".exporter.tracing",
    "validate": ".validation.checking",
    "validate_on": ".validation.checking",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOMES[name], __name__), name)


def __dir__() -> list[str]:
    return sorted(__all__)
