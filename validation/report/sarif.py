"""SARIF 2.1.0: a failed parity as a finding at the line of the user's code that is at fault."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

__all__ = ["render"]

_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
_RULES = {
    "parity": ("The artifact does not compute what the model computes", "error"),
    "unverified": ("What the artifact computes is not known", "warning"),
    "not-made": ("The artifact could not be made or proved", "error"),
}


def render(document: Mapping[str, Any]) -> str:
    """The document as SARIF: one run, a result for each report that is no pass and each error."""
    results = [_result(r) for r in document["reports"] if r["verdict"] != "pass"]
    results += [_error(error) for error in document.get("errors", ())]
    log = {
        "$schema": _SCHEMA,
        "version": "2.1.0",
        "runs": [
            {
                "tool": {
                    "driver": {
                        "name": "isomorph",
                        "semanticVersion": document["isomorph"],
                        "rules": [
                            {
                                "id": name,
                                "shortDescription": {"text": text},
                                "defaultConfiguration": {"level": level},
                            }
                            for name, (text, level) in _RULES.items()
                        ],
                    }
                },
                "columnKind": "unicodeCodePoints",
                "results": results,
            }
        ],
    }
    return json.dumps(log, indent=2) + "\n"


def _result(report: Mapping[str, Any]) -> dict[str, Any]:
    rule = "parity" if report["verdict"] == "fail" else "unverified"
    found = report["localization"]
    what = " ".join(filter(None, (report["model"], report["format"])))
    text = f"{what or 'artifact'}: {report['reason']}"
    if found is not None:
        text += f"; {found['summary']}"
    result: dict[str, Any] = {
        "ruleId": rule,
        "ruleIndex": list(_RULES).index(rule),
        "level": _RULES[rule][1],
        "message": {"text": text},
        # Neither figures nor line numbers, which move from one commit to the next.
        "partialFingerprints": {"isomorph/v1": "/".join((rule, *_identity(report)))},
    }
    culprit = found["culprit"] if found is not None else None
    location = _location(culprit) if culprit is not None else None
    if location is None and report["artifact"]:
        uri = {"uri": quote(report["artifact"])}
        location = {"physicalLocation": {"artifactLocation": uri}}
    if location is not None:
        result["locations"] = [location]
    return result


def _error(error: Mapping[str, Any]) -> dict[str, Any]:
    what = " ".join(filter(None, (error["model"], error["format"])))
    hint = f" ({error['hint']})" if error["hint"] else ""
    result: dict[str, Any] = {
        "ruleId": "not-made",
        "ruleIndex": list(_RULES).index("not-made"),
        "level": "error",
        "message": {"text": f"{what or 'isomorph'}: {error['message']}{hint}"},
        "partialFingerprints": {
            "isomorph/v1": "/".join(("not-made", error["model"], error["format"]))
        },
    }
    if error["source"]:
        uri = {"uri": quote(error["source"])}
        # The first line: a code host shows nothing for a file without one.
        place = {"artifactLocation": uri, "region": {"startLine": 1}}
        result["locations"] = [{"physicalLocation": place}]
    return result


def _identity(report: Mapping[str, Any]) -> tuple[str, ...]:
    found = report["localization"]
    culprit = (found or {}).get("culprit") or {}
    device = report["evidence"]["device"]
    return report["model"], report["format"], device, culprit.get("module", "")


def _location(culprit: Mapping[str, Any]) -> dict[str, Any] | None:
    """The line, as a path that is relative to the project."""
    file, _, line = culprit["location"].rpartition(":")
    if not file or not line.isdigit():
        return None
    region: dict[str, Any] = {"startLine": int(line)}
    if culprit["source"]:
        region["snippet"] = {"text": culprit["source"]}
    names = [{"fullyQualifiedName": culprit["module"], "kind": "module"}]
    return {
        "physicalLocation": {"artifactLocation": {"uri": quote(file)}, "region": region},
        **({"logicalLocations": names} if culprit["module"] else {}),
    }
