"""One self-contained HTML file: no script, nothing from the network, light and dark."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from ..compare import HISTOGRAM_EDGES

__all__ = ["render"]

# Floors on the logarithmic axes of the plots, from next to nothing to hopeless.
_LOWEST, _HIGHEST = -2.0, 6.0


def render(document: Mapping[str, Any]) -> str:
    """The document as a page."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader(__package__, "."),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["floors"] = _floors
    environment.filters["x"] = position
    page = environment.get_template("report.html.j2")
    return page.render(
        document=document,
        reports=[_view(report) for report in document["reports"]],
        errors=document.get("errors", ()),
        verdict=_overall(document),
        decades=[(10.0**e, position(10.0**e)) for e in range(int(_LOWEST), int(_HIGHEST) + 1, 2)],
    )


def position(ratio: Any) -> float:
    """Where a number of floors stands on an axis, in percent of its length."""
    value = _number(ratio)
    if value is None or math.isnan(value) or value <= 0:
        return 0.0
    exponent = _HIGHEST if math.isinf(value) else math.log10(value)
    share = (min(max(exponent, _LOWEST), _HIGHEST) - _LOWEST) / (_HIGHEST - _LOWEST)
    return round(100 * share, 2)


def _number(value: Any) -> float | None:
    """A number of the document, in which Infinity and NaN are texts."""
    return None if value is None else float(value)


def _floors(value: Any) -> str:
    number = _number(value)
    if number is None:
        return "-"
    return f"{number:.2f}" if number < 1000 else f"{number:.1e}"


def _overall(document: Mapping[str, Any]) -> str:
    """The worst verdict; an error leaves no pass."""
    verdicts = [report["verdict"] for report in document["reports"]]
    verdicts += ["error"] if document.get("errors") else []
    return next(
        (v for v in ("fail", "error", "unverified") if v in verdicts),
        "pass" if verdicts else "none",
    )


def _view(report: Mapping[str, Any]) -> dict[str, Any]:
    """A report with what the page draws."""
    found = report["localization"]
    return {
        **report,
        "title": " · ".join(
            filter(None, (report["model"], report["format"], report["evidence"]["device"]))
        ),
        "curve": None if found is None else _curve(found, report["limits"]["peak"]),
        "histograms": [
            (output["name"], _bars(output["histogram"]))
            for output in report["outputs"]
            if sum(output["histogram"])
        ],
        "kinds": list(
            dict.fromkeys(kind["kind"] for output in report["outputs"] for kind in output["kinds"])
        ),
    }


def _curve(found: Mapping[str, Any], limit: float) -> dict[str, Any] | None:
    """Points of the error along the graph, in the coordinates of a 600 by 200 picture."""
    points = found["curve"]
    if not points:
        return None
    step = 600 / max(len(points) - 1, 1)
    placed = [
        {
            "x": round(i * step, 1),
            "y": round(200 - 2 * position(point["ratio"]), 1),
            "node": point["node"],
            "module": point["module"],
            "ratio": point["ratio"],
        }
        for i, point in enumerate(points)
    ]
    culprit = found["culprit"]
    named = set(culprit["operators"]) if culprit is not None else set()
    marked = [point for point in placed if point["node"] in named]
    return {
        "points": placed,
        "path": " ".join(f"{point['x']},{point['y']}" for point in placed),
        "limit": round(200 - 2 * position(limit), 1),
        "culprit": marked[-1] if marked else None,
    }


def _bars(counts: Sequence[int]) -> list[dict[str, Any]]:
    """Bars of a 600 by 120 picture; heights are logarithms, or rare large errors would vanish."""
    top = math.log10(max(counts) + 1)
    width = 600 / len(counts)
    edges = ["0", *(f"2^{edge}" for edge in HISTOGRAM_EDGES), "more"]
    return [
        {
            "x": round(i * width, 1),
            "width": round(width - 1, 1),
            "height": round(110 * math.log10(count + 1) / top, 1),
            "count": count,
            "label": f"{edges[i]} to {edges[i + 1]}",
        }
        for i, count in enumerate(counts)
    ]
