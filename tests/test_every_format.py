"""Trained checkpoints and the usual networks pass on every format at fp32 and fp16:
executed, or evaluated where the runtime cannot be here (Core ML off macOS, TensorRT's network).

One export makes all formats, as a user would: the model is captured once. The batch
is dynamic where the format can hold that; LiteRT files hold fixed sizes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import isomorph
import pytest
import torch
from isomorph.targets import registry
from isomorph.targets.conformance.models import MODELS

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
STATIC = ("litert",)
EVALUATED = ("tensorrt-rtx", *(() if sys.platform == "darwin" else ("coreml",)))
# An engine of TensorRT proper is built on its GPU: tests/gpu.
ELSEWHERE = ("tensorrt",)


@dataclass(frozen=True)
class Subject:
    """What `isomorph.export` is given, but for formats and precision."""

    source: Any
    arguments: Mapping[str, Any]
    dynamic: Mapping[str, str]


def real(name: str) -> Callable[[dict[str, Any]], Subject]:
    def subject(checkpoints: dict[str, Any]) -> Subject:
        found = checkpoints[name]
        batch = dict(text.split("=", 1) for text in found.dynamic if ".0=" in text)
        return Subject(found.weights, {"model": found.model, "inputs": found.input}, batch)

    return subject


def digits(_: dict[str, Any]) -> Subject:
    folder = EXAMPLES / "digits"
    return Subject(
        folder / "digits.pt",
        {
            "model": f"{folder / 'train.py'}:DigitsNet",
            "inputs": "x=1x1x8x8",
            "data": folder / "samples.npz",
        },
        {"x.0": "batch:1..16"},
    )


def net(name: str) -> Callable[[dict[str, Any]], Subject]:
    def subject(_: dict[str, Any]) -> Subject:
        model = MODELS[name]
        dynamic = {f"{each}.0": "batch:1..8" for each in model.batched}
        return Subject(model.build(), {"args": model.example()}, dynamic)

    return subject


SUBJECTS = {
    **{name: real(name) for name in ("pnet", "rnet", "onet", "mobilenetv2")},
    "digits": digits,
    **{name: net(name) for name in ("lstm", "transformer", "unet")},
}


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
@pytest.mark.parametrize("name", SUBJECTS)
def test_it_passes_on_every_format(name, precision, real_checkpoints, tmp_path):
    subject = SUBJECTS[name](real_checkpoints)
    formats = [name for name in registry.names() if name not in ELSEWHERE]
    holding = [f for f in formats if precision in registry.get(f).precisions]
    ended = {}
    for formats, dynamic in (
        ([f for f in holding if f not in STATIC], subject.dynamic),
        ([f for f in holding if f in STATIC], None),
    ):
        if not formats:
            continue
        result = isomorph.export(
            subject.source,
            formats,
            dynamic=dynamic,
            precision=precision,
            output=f"{tmp_path}/",
            require="evaluated",
            **subject.arguments,
        )
        for artifact in result.artifacts:
            reason = artifact.error or artifact.report.reason
            ended[artifact.format] = (
                artifact.verdict,
                artifact.evidence and artifact.evidence.kind,
            )
            assert artifact.verdict == "pass", f"{name} on {artifact.format}: {reason}"
    evidence = {name: "evaluated" if name in EVALUATED else "executed" for name in holding}
    assert ended == {name: ("pass", kind) for name, kind in evidence.items()}


class Named(torch.nn.Module):
    """Submodules that are called like attributes of torch's GraphModule."""

    def __init__(self) -> None:
        super().__init__()
        self.code = torch.nn.Linear(4, 4)
        self.graph = torch.nn.ModuleDict({"meta": torch.nn.Linear(4, 4)})
        self.register_buffer("meta", torch.arange(4.0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.graph["meta"](torch.relu(self.code(x)) + self.meta)


@pytest.mark.parametrize("precision", ["fp32", "fp16"])
def test_no_name_of_a_submodule_is_in_the_way(precision, tmp_path):
    # Halves are made by the same retrace for every format.
    everything = [name for name in registry.names() if name not in ELSEWHERE]
    formats = everything if precision == "fp32" else ["onnx", "openvino"]
    result = isomorph.export(
        Named().eval(),
        formats,
        args=(torch.randn(2, 4),),
        output=f"{tmp_path}/",
        precision=precision,
        budget=1,
    )
    assert {a.format: a.verdict for a in result.artifacts} == dict.fromkeys(formats, "pass")
