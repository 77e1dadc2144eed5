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
    if not kinds:
        suite.append(_whole(report, suite.get("name", "")))
    seconds = sum(report["seconds"].values())
    suite.set("tests", str(len(suite)))
    suite.set("failures", str(len(suite.findall("testcase/failure"))))
    suite.set("errors", "0")
    suite.set("skipped", str(len(suite.findall("testcase/skipped"))))
    suite.set("time", f"{seconds:.3f}")
    return suite


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
    """A report without cases: the artifact was not run."""
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
