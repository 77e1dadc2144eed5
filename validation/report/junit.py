"""JUnit XML: a test suite for each artifact on each device, a test case for each kind of input.

The dialect is that of Jenkins and GitLab: testsuites/testsuite/testcase with failure or skipped.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

__all__ = ["render"]

# What XML 1.0 cannot hold.
_FORBIDDEN = re.compile("[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def render(document: Mapping[str, Any]) -> str:
    """The document as JUnit XML."""
    root = ElementTree.Element("testsuites", name="isomorph")
    for report in document["reports"]:
        root.append(_suite(report))
    for error in document.get("errors", ()):
        root.append(_error(error))
    for key in ("tests", "failures", "errors", "skipped"):
        root.set(key, str(sum(int(suite.get(key, "0")) for suite in root)))
    ElementTree.indent(root)
    text: str = ElementTree.tostring(root, encoding="unicode")
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n'


def _suite(report: Mapping[str, Any]) -> ElementTree.Element:
    evidence = report["evidence"]
    name = ".".join(filter(None, (report["model"], report["format"], evidence["device"])))
    suite = ElementTree.Element("testsuite", name=_clean(name or "artifact"))
    kinds = dict.fromkeys(case["kind"] for case in report["cases"])
    for kind in kinds:
        suite.append(_case(report, kind, suite.get("name", "")))
    shown = suite.find("testcase/failure") is not None
    if not kinds or (report["verdict"] == "fail" and not shown):
        suite.append(_whole(report, suite.get("name", "")))
    seconds = sum(report["seconds"].values())
    _count(suite, seconds)
    return suite


def _error(error: Mapping[str, Any]) -> ElementTree.Element:
    """What could not be made or proved: a suite whose one case is an error."""
    name = _clean(".".join(filter(None, (error["model"], error["format"]))) or "isomorph")
    suite = ElementTree.Element("testsuite", name=name)
    case = ElementTree.SubElement(suite, "testcase", classname=name, name="export", time="0")
    text = "\n".join(filter(None, (error["message"], error["hint"])))
    _add(case, "error", error["message"], text, f"exit code {error['exit_code']}")
    _count(suite, 0.0)
    return suite


def _count(suite: ElementTree.Element, seconds: float) -> None:
    suite.set("tests", str(len(suite)))
    for attribute, tag in (("failures", "failure"), ("errors", "error"), ("skipped", "skipped")):
        suite.set(attribute, str(len(suite.findall(f"testcase/{tag}"))))
    suite.set("time", f"{seconds:.3f}")


def _case(report: Mapping[str, Any], kind: str, suite: str) -> ElementTree.Element:
    members = [case for case in report["cases"] if case["kind"] == kind]
    found = ElementTree.Element("testcase", classname=suite, name=_clean(kind), time="0")
    failed = [case for case in members if case["verdict"] == "fail"]
    if failed:
        _add(found, "failure", failed[0]["reason"], _told(report, failed), "parity")
    elif all(case["verdict"] == "unverified" for case in members):
        _add(found, "skipped", members[0]["reason"] or "unverified")
    return found


def _whole(report: Mapping[str, Any], suite: str) -> ElementTree.Element:
    """The verdict itself: nothing was run, or no kind of input shows what failed."""
    found = ElementTree.Element("testcase", classname=suite, name="parity", time="0")
    if report["verdict"] == "fail":
        _add(found, "failure", report["reason"], report["reason"], "parity")
    elif report["verdict"] == "unverified":
        _add(found, "skipped", report["reason"])
    return found


def _told(report: Mapping[str, Any], failed: list[Any]) -> str:
    lines = [f"{case['name']} ({case['description']}): {case['reason']}" for case in failed]
    found = report["localization"]
    if found is not None:
        lines.append(found["summary"])
        if found["culprit"] is not None and found["culprit"]["source"]:
            lines.append(f"{found['culprit']['location']}: {found['culprit']['source']}")
    return "\n".join(lines)


def _add(case: ElementTree.Element, tag: str, message: str, text: str = "", kind: str = "") -> None:
    child = ElementTree.SubElement(case, tag, message=_clean(message))
    if kind:
        child.set("type", kind)
    if text:
        child.text = _clean(text)


def _clean(text: str) -> str:
    return _FORBIDDEN.sub("?", text)
