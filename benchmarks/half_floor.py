"""How far half-precision graphs and their artifacts are from what the rule allows.

    python benchmarks/half_floor.py [--models vit_tiny,lstm] [--write]

Models with random, awake weights are lowered to fp16 and bf16. Two ratios are
taken, each over all cases: the lowered graph's error against the independent
estimate of half arithmetic (`validation/rounding.py`), and, for fp16, ONNX
Runtime's error against the half graph's noise floor. All are right, so a ratio
above a limit is a false alarm. Then wrong lowerings of each kind are made, and
what becomes of them is counted. `--write` puts the tables into
docs/precision.md. Needs torchvision, timm and transformers.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
from isomorph.errors import ConversionError
from isomorph.exporter import precision as lowering
from isomorph.exporter.graph import Graph
from isomorph.exporter.precision import lower_precision
from isomorph.exporter.source import Request, open_source
from isomorph.progress import Silent
from isomorph.targets.onnx.target import OnnxOptions, OnnxTarget
from isomorph.validation import parity, rounding
from isomorph.validation.checking import make_reference
from isomorph.validation.expected import Reference
from isomorph.validation.lowered import lowered_reference
from isomorph.validation.verdict import EXTREME_KINDS, HALF_RULE
from torch import nn

sys.path.insert(0, str(Path(__file__).resolve().parent))
from noise_floor import MODELS, awake

PAGE = Path(__file__).resolve().parents[1] / "docs" / "precision.md"


class Causal(nn.Module):
    """Scores with a causal and a padding mask of finfo.min, and a norm by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.head = nn.Linear(32, 7)

    def forward(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        x = self.table(ids)
        scores = self.query(x) @ self.key(x).transpose(1, 2) / 32**0.5
        lowest = torch.finfo(torch.float32).min
        scores = scores + (1.0 - keep[:, None].float()) * lowest
        scores = scores.masked_fill(torch.ones(11, 11, dtype=torch.bool).triu(1), lowest)
        x = x + scores.softmax(-1) @ self.value(x)
        return self.head(x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6))


class Positions(nn.Module):
    """Sines of computed positions, unit-length rows, cosine scores: epsilons and phases."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(16, 32), nn.Linear(32, 5)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        steps = torch.arange(x.shape[1]).float()[:, None] * 37.0
        angles = steps * torch.exp(torch.arange(32).float() * -0.3)
        y = nn.functional.normalize(self.inner(x) + torch.sin(angles), dim=-1)
        return self.head(y) + (y @ y.transpose(1, 2)).sum(-1, keepdim=True)


class Hazards(nn.Module):
    """A softmax by hand, a row that is wholly masked, zeros divided by an epsilon."""

    def __init__(self) -> None:
        super().__init__()
        self.inner, self.head = nn.Linear(16, 16), nn.Linear(16, 5)
        mask = torch.zeros(9, 16)
        mask[3] = torch.finfo(torch.float32).min
        self.register_buffer("mask", mask)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.inner(x)
        raised = torch.exp(torch.tanh(y) * 9)
        shares = raised / raised.sum(-1, keepdim=True)
        rest = (y - y.detach()) / ((y - y.detach()).pow(2).sum(-1, keepdim=True) + 1e-12)
        return self.head(shares + (y + self.mask).softmax(-1) + rest)


def _huggingface(kind: str, **sizes: int) -> nn.Module:
    import transformers

    config = getattr(transformers, f"{kind}Config")(**sizes)
    config._attn_implementation = "eager"

    class Plain(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = getattr(transformers, f"{kind}Model")(config)

        def forward(self, ids: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
            return self.inner(ids, attention_mask=keep, use_cache=False).last_hidden_state

    if kind == "Bert":
        config.use_cache = False
        Plain.forward = lambda self, ids, keep: self.inner(ids, keep).last_hidden_state
    return Plain()


_TOKENS = ("ids=2x11:int64:0..99", "keep=2x11:int64:1..1")
_BERT = {"num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 100}

STUDIED: dict[str, tuple[Callable[[], nn.Module], tuple[str, ...]]] = {
    **MODELS,
    "causal_masks": (Causal, ("ids=2x11:int64", "keep=2x11:int64:1..1")),
    "positions": (Positions, ("2x9x16",)),
    "hazards": (Hazards, ("2x9x16",)),
    "bert": (
        lambda: _huggingface("Bert", hidden_size=64, intermediate_size=128, **_BERT),
        _TOKENS,
    ),
    "gpt2": (
        lambda: _huggingface("GPT2", n_layer=2, n_head=4, n_embd=64, vocab_size=100),
        _TOKENS,
    ),
    "llama": (
        lambda: _huggingface("Llama", hidden_size=64, intermediate_size=128, **_BERT),
        _TOKENS,
    ),
    "densenet": (lambda: _timm("densenet121"), ("1x3x64x64",)),
    "swin": (lambda: _timm("swin_tiny_patch4_window7_224"), ("1x3x224x224",)),
}


def _timm(name: str) -> nn.Module:
    import timm

    return timm.create_model(name, pretrained=False)


def _unsafe_softmax(patch: Callable[[str, object], None]) -> None:
    """Softmax, exponentials and what leads up to them in half."""
    patch("SENSITIVE", frozenset())
    patch("ELEMENTWISE", lowering.ELEMENTWISE | {"softmax", "exp", "pow", "sqrt", "rsqrt"})
    patch("_is_sensitive_to", lambda user, node: False)


def _unsafe_numbers(patch: Callable[[str, object], None]) -> None:
    """Sentinels cast without clamping, epsilons lost, masks added in half."""
    _unsafe_softmax(patch)
    patch("_divides_by_tensor", lambda node: False)
    patch("_Lowering._is_unfit", lambda self, number: False)
    patch("_Lowering._is_too_large", lambda self, number: False)


def _lost_weight(graph: Graph) -> None:
    """The first eighth of the largest weight is zero."""
    largest = max(graph.program.state_dict.values(), key=lambda t: t.numel())
    rows = largest.data.view(-1)
    rows[: max(1, rows.numel() // 8)] = 0


def broken(graph: Graph, how: str) -> Graph:
    """`graph` lowered to fp16 wrongly."""
    if how == "weight lost":
        made = lower_precision(graph, "fp16")
        _lost_weight(made)
        return made
    saved: list[tuple[object, str, object]] = []

    def patch(name: str, value: object) -> None:
        owner, _, last = name.rpartition(".")
        holder = getattr(lowering, owner) if owner else lowering
        saved.append((holder, last, getattr(holder, last)))
        setattr(holder, last, value)

    {"softmax in half": _unsafe_softmax, "sentinels and epsilons": _unsafe_numbers}[how](patch)
    try:
        return lower_precision(graph, "fp16")
    finally:
        for holder, name, value in reversed(saved):
            setattr(holder, name, value)


BREAKS = ("weight lost", "softmax in half", "sentinels and epsilons")


def study(name: str, folder: Path) -> tuple[list[str], bool]:
    """One model's row, and whether anything right was refused."""
    start = time.perf_counter()
    make, inputs = STUDIED[name]
    torch.manual_seed(0)
    source = open_source(awake(make()), Request(inputs=inputs))
    graph = source.capture.graph
    plain = make_reference(source.capture, source.module, (), Silent())
    cells, alarm = [name], False
    for kind in ("fp16", "bf16"):
        lowered = lower_precision(graph, kind)
        reference = lowered_reference(plain, lowered, Silent())
        alarm |= not reference.capture.passed
        cells += [_cost(reference), f"{reference.capture.severity:.2f}"]
        if kind == "fp16":
            cells.append(_onnx(lowered, reference, folder / name))
            alarm |= not cells[-1].endswith("pass")
    for how in BREAKS:
        cells.append(_found(plain, broken(graph, how)))
    print(f"{time.perf_counter() - start:.0f} s", end=" ", flush=True)
    return cells, alarm


def _found(plain: Reference, wrong: Graph) -> str:
    """What becomes of a wrongly lowered graph: red, or how near to it."""
    try:
        reference = lowered_reference(plain, wrong, Silent())
    except ConversionError:
        return "red (stops)"
    outcome = reference.capture
    usual = [c for c in reference.cases if c.kind not in EXTREME_KINDS]
    if outcome.passed and all(
        any(e.doubt for e in reference.expected[c.name].values()) for c in usual
    ):
        return "unverified"
    return "red" if not outcome.passed else f"{outcome.severity:.2f}"


def _cost(reference: Reference) -> str:
    shares = [
        e.noise.lanes[0].rms / e.noise.signal.rms
        for case in reference.cases
        if case.kind not in EXTREME_KINDS
        for e in reference.expected[case.name].values()
        if not e.is_discrete and e.noise.signal.rms
    ]
    return f"{max(shares):.2%}"


def _onnx(lowered: Graph, reference: Reference, folder: Path) -> str:
    folder.mkdir()
    target = OnnxTarget()
    artifact = target.convert(lowered, OnnxOptions(), folder, "model")
    with target.open(artifact.path) as session:
        report = parity.judge(lowered, reference, session)
    output = max(report.outputs, key=lambda o: o.peak_ratio or 0.0)
    if output.peak_ratio is None or output.rms_ratio is None:
        return f"{output.reason} {report.verdict}"
    return f"{output.peak_ratio:.2f} / {output.rms_ratio:.2f} {report.verdict}"


def table(rows: list[list[str]]) -> str:
    rule = rounding.RULE
    lines = [
        f"Printed by `benchmarks/half_floor.py`. Shares of the limit (peak {rule.peak:g}, RMS "
        f"{rule.rms:g}): above 1 is red. ONNX Runtime: floors, peak / RMS (limits "
        f"{HALF_RULE.peak:g} / {HALF_RULE.rms:g}).",
        "",
        "| model | fp16 costs | share of limit | ONNX Runtime | bf16 costs | share of limit | "
        + " | ".join(BREAKS)
        + " |",
        "|" + "---|" * (6 + len(BREAKS)),
        *("| " + " | ".join(row) + " |" for row in rows),
    ]
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--models", default=",".join(STUDIED))
    parser.add_argument("--write", action="store_true")
    options = parser.parse_args()
    rows, alarms = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for name in options.models.split(","):
            row, alarm = study(name, Path(folder))
            print(" | ".join(row), flush=True)
            rows.append(row)
            alarms += alarm
    text = f"{table(rows)}\n\n{alarms} of {len(rows)} models gave a false alarm."
    print(text)
    if options.write:
        page = PAGE.read_text(encoding="utf-8")
        marks = r"(<!-- half-floor -->\n).*(\n<!-- end -->)"
        written = re.sub(marks, lambda m: m[1] + text + m[2], page, flags=re.S)
        PAGE.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
