"""Every built-in format passes the suite that other packages' targets must pass."""

from __future__ import annotations

from isomorph.targets.conformance import TargetConformance


class TestOnnx(TargetConformance):
    target = "onnx"
    unrun = {"bf16": "ONNX Runtime has no bfloat16 kernels for a CPU"}  # noqa: RUF012
