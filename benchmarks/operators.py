"""How many of PyTorch's own operator samples reach a format, by the stock way and by Isomorph.

    python benchmarks/operators.py [--target coreml] [--only add,linalg] [--jobs 2] [--json FILE]
                                   [--write]

Runs torch's `op_db` (float32, first and last sample of each operator) through torch.export, and
what that captures through two ways in the same process (ways.py): what the converter's own
documentation says, and Isomorph's target. An operator counts where both samples come through. What
either writes is computed by Isomorph's evaluator on the sample and on fresh values, and is right
where it agrees with the eager module (`_TOLERANCE` of the largest value). Operators that draw
random numbers, take or return complex numbers, return memory that nobody wrote, or whose sizes
depend on values are counted beside. Core ML has no empty arrays: where the first or last sample has
any, the next one stands in, and the share without such operators is told as well.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree
from ways import WAYS, Way

_TOLERANCE = 1e-4


class _Sample(nn.Module):
    """An operator with its tensors as inputs and all else fixed."""

    def __init__(self, op: Any, sample: Any) -> None:
        super().__init__()
        self._op = op
        leaves, self._spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
        self._fixed = [None if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._open = [i for i, leaf in enumerate(leaves) if isinstance(leaf, torch.Tensor)]
        tensors = tuple(leaves[i].detach().clone() for i in self._open)
        # A model takes something: what makes tensors of nothing gets an input that it ignores.
        self.tensors = tensors or (torch.zeros(1),)

    def forward(self, *tensors: torch.Tensor) -> Any:
        leaves = list(self._fixed)
        for index, tensor in zip(self._open, tensors, strict=False):
            leaves[index] = tensor
        first, args, kwargs = pytree.tree_unflatten(leaves, self._spec)
        return self._op(first, *args, **kwargs)


def operators() -> dict[str, Any]:
    """All entries of op_db that take float32, by name."""
    from torch.testing._internal.common_methods_invocations import op_db

    return {op.formatted_name: op for op in op_db if op.supports_dtype(torch.float32, "cpu")}


def samples(op: Any) -> tuple[list[_Sample], bool]:
    """The first and the last sample, and whether these are the list's own ends.

    Core ML has no empty arrays: of samples that take or give any, the next one stands in.
    """
    torch.manual_seed(0)
    found = [
        _Sample(op, sample)
        for sample in op.sample_inputs("cpu", torch.float32, requires_grad=False)
    ]
    first = next((s for s in found if not _is_empty(s)), found[0])
    last = next((s for s in reversed(found) if not _is_empty(s)), found[-1])
    return [first, last], first is found[0] and last is found[-1]


def _is_empty(sample: _Sample) -> bool:
    try:
        results = pytree.tree_leaves(sample(*sample.tensors))
    except Exception:  # noqa: BLE001 - told when it is captured
        return False
    tensors = (*sample.tensors, *(r for r in results if isinstance(r, torch.Tensor)))
    return any(tensor.numel() == 0 for tensor in tensors)


def examine(name: str, op: Any, way: Way, *, stock: bool) -> dict[str, Any]:
    """What became of one operator: captured, excluded, and both ways (or ours alone)."""
    chosen, ends = samples(op)
    result: dict[str, Any] = {"name": name, "captured": True, "excluded": "", "ends": ends}
    result |= {"stock": [], "ours": []}
    for module in chosen:
        try:
            program = torch.export.export(module.eval(), module.tensors)
            eager = _leaves(module(*module.tensors))
        except Exception as error:  # noqa: BLE001 - what is not captured is only counted
            return {**result, "captured": False, "reason": _short(error)}
        if not eager:
            return {**result, "captured": False, "reason": "no tensor comes out"}
        result["excluded"] = result["excluded"] or _excluded(program)
        with tempfile.TemporaryDirectory() as folder:
            if stock:
                path = Path(folder) / f"stock{way.suffix}"
                result["stock"].append(_outcome(way.stock, module, path))
            path = Path(folder) / f"ours{way.suffix}"
            result["ours"].append(_outcome(way.ours, module, path))
    return result


def _excluded(program: torch.export.ExportedProgram) -> str:
    """Why an operator is counted beside the shares; empty where it is not."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    nodes = list(program.graph.nodes)
    outputs = pytree.tree_leaves(program.graph.output_node().args)
    border = [n for n in nodes if n.op == "placeholder"] + [
        n for n in outputs if isinstance(n, torch.fx.Node)
    ]
    for node in nodes:
        tags = getattr(node.target, "tags", ())
        if torch.Tag.nondeterministic_seeded in tags:
            return "random"
        if "empty" in str(node.target) or "resize" in str(node.target):
            return "uninitialised"
    for node in border:
        value = node.meta.get("val")
        if isinstance(value, torch.Tensor) and value.dtype.is_complex:
            return "complex"
    for node in nodes:
        for value in pytree.tree_leaves(node.meta.get("val")):
            if isinstance(value, torch.Tensor) and free_unbacked_symbols(value):
                return "size depends on values"
    return ""


def _outcome(way: Any, module: _Sample, path: Path) -> dict[str, Any]:
    try:
        run = way(module, path)
    except Exception as error:  # noqa: BLE001 - counted
        return {"converted": False, "right": False, "reason": _short(error)}
    try:
        for tensors in _cases(module):
            wrong = _wrong(run(tensors), _leaves(module(*tensors)))
            if wrong:
                return {"converted": True, "right": False, "reason": wrong}
    except Exception as error:  # noqa: BLE001 - counted
        return {"converted": True, "right": False, "reason": _short(error)}
    return {"converted": True, "right": True, "reason": ""}


def _cases(module: _Sample) -> Iterator[tuple[torch.Tensor, ...]]:
    yield module.tensors
    generator = torch.Generator().manual_seed(1)
    fresh = tuple(
        t + 0.01 * torch.randn(t.shape, generator=generator) if t.is_floating_point() else t
        for t in module.tensors
    )
    try:
        module(*fresh)
    except Exception:  # noqa: BLE001 - an operator may take certain values only
        return
    yield fresh


def _leaves(result: Any) -> list[np.ndarray]:
    return [
        leaf.detach().resolve_conj().resolve_neg().numpy()
        for leaf in pytree.tree_leaves(result)
        if isinstance(leaf, torch.Tensor)
    ]


def _wrong(found: list[np.ndarray], wanted: list[np.ndarray]) -> str:
    """What is wrong with `found`; empty where nothing is. Core ML gives (1,) for rank 0."""
    if len(found) < len(wanted):  # more: what an operator wrote into its inputs
        return f"{len(found)} outputs for {len(wanted)}"
    for a, b in zip(found, wanted, strict=False):
        if a.size != b.size or (a.shape != b.shape and b.shape != ()):
            return f"shape {a.shape} for {b.shape}"
        a, b = a.reshape(b.shape).astype(np.float64), b.astype(np.float64)
        if not (np.isnan(a) == np.isnan(b)).all() or not (np.isinf(a) == np.isinf(b)).all():
            return "NaN or Inf on one side only"
        fine = np.isfinite(b)
        if not (np.sign(a[~fine]) == np.sign(b[~fine]))[~np.isnan(b[~fine])].all():
            return "Inf of the other sign"
        top = float(np.abs(b[fine]).max(initial=0.0))
        far = float(np.abs(a[fine] - b[fine]).max(initial=0.0))
        if far > _TOLERANCE * max(top, 1e-3):
            return f"off by {far:.3g} of {top:.3g}"
    return ""


def _short(error: BaseException) -> str:
    text = " ".join(str(error).split())
    return f"{type(error).__name__}: {text[:300]}"


def _worker(args: argparse.Namespace, way: Way) -> None:
    """Examine a share of the operators; one JSON line each on stdout."""
    warnings.simplefilter("ignore")
    table, out, parts = operators(), sys.stdout, args.only.split(",")
    chosen = [name for name in table if any(part in name for part in parts)][:: args.every]
    for name in chosen[args.share :: args.jobs]:
        print(json.dumps({"begun": name}), file=out, flush=True)
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            result = examine(name, table[name], way, stock=not args.ours)
        print(json.dumps(result), file=out, flush=True)


def _run(args: argparse.Namespace) -> list[dict[str, Any]]:
    jobs = args.jobs
    command = [sys.executable, __file__, *sys.argv[1:], "--share"]
    workers = [
        subprocess.Popen([*command, str(i)], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        for i in range(jobs)
    ]
    results: list[dict[str, Any]] = []
    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda worker: _listen(worker, results), workers))
    print(file=sys.stderr)
    return sorted(results, key=lambda r: r["name"])


def _listen(worker: subprocess.Popen[bytes], results: list[dict[str, Any]]) -> None:
    """Take in what a worker finds."""
    assert worker.stdout is not None
    begun = ""
    for line in worker.stdout:
        entry = json.loads(line)
        begun = entry.get("begun", "")
        if not begun:
            results.append(entry)
            print(f"\r{len(results)} operators", end="", file=sys.stderr, flush=True)
    if worker.wait():
        print(f"\na worker ended with {worker.returncode} during {begun}", file=sys.stderr)


def _count(results: list[dict[str, Any]], way: str, what: str) -> int:
    return sum(bool(r[way]) and all(o[what] for o in r[way]) for r in results)


def table(results: list[dict[str, Any]], stock: str) -> str:
    """The shares as a Markdown table."""
    captured = [r for r in results if r["captured"]]
    judged = [r for r in captured if not r["excluded"]]
    beside = Counter(r["excluded"] for r in captured if r["excluded"])
    lines = [
        f"{len(results)} operators, {len(captured)} captured by torch.export; counted beside: "
        + (", ".join(f"{count} {why}" for why, count in beside.most_common()) or "none")
        + f" ({sum(beside.values()) / max(len(captured), 1):.0%} of the captured).",
        "",
        "| | of | converted | converted and evaluated right |",
        "|---|---|---|---|",
    ]
    groups = (
        ("all captured", captured),
        ("without those beside", judged),
        ("and whose ends are not empty", [r for r in judged if r["ends"]]),
    )
    for title, group in groups:
        for label, way in ((stock, "stock"), ("Isomorph", "ours")):
            converted, right = _count(group, way, "converted"), _count(group, way, "right")
            share = f"{right} ({right / max(len(group), 1):.1%})"
            lines.append(f"| {label}, {title} | {len(group)} | {converted} | {share} |")
    return "\n".join(lines)


def missing(results: list[dict[str, Any]]) -> str:
    """Operators that Isomorph does not bring through, and why, as a line of text."""
    judged = [r for r in results if r["captured"] and not r["excluded"]]
    names: dict[str, list[str]] = {}
    for result in judged:
        kind = _kind(result["ours"])
        if kind:
            names.setdefault(kind, []).append(result["name"])
    return "\n" + "".join(
        f"{kind} ({len(group)}): {', '.join(f'`{name}`' for name in group)}.\n\n"
        for kind, group in sorted(names.items())
    )


def _kind(outcomes: list[dict[str, Any]]) -> str:
    """How an operator fails: refused, left unverified, or wrong; empty where it is right."""
    wrong = [o for o in outcomes if not o["right"]]
    if not wrong:
        return ""
    if any(not o["converted"] for o in wrong):
        return "Refused before anything is written"
    if all("UnverifiableError" in o["reason"] for o in wrong):
        return "Written, but the documentation leaves open what comes out: unverified"
    return "Written with other values, which parity fails"


def main() -> None:
    """Run, print, and on request write the table into the format's page."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--target", default="coreml", choices=WAYS)
    parser.add_argument("--only", default="", help="parts of names, separated by commas")
    parser.add_argument("--every", type=int, default=1, help="of these only each N-th")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--json", type=Path, help="where to keep what became of each operator")
    parser.add_argument("--write", action="store_true", help="put the table into the format's page")
    parser.add_argument("--ours", action="store_true", help="leave the stock way out")
    parser.add_argument("--share", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.share is not None:
        _worker(args, WAYS[args.target])
        return
    way = WAYS[args.target]
    results = _run(args)
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    found = table(results, way.label)
    print(found)
    if args.write:
        text = way.page.read_text(encoding="utf-8")
        pattern = re.compile(r"(<!-- operators -->\n).*?(<!-- end -->)", re.DOTALL)
        written = pattern.sub(lambda m: f"{m[1]}{found}\n{missing(results)}{m[2]}", text)
        way.page.write_text(written, encoding="utf-8")


if __name__ == "__main__":
    main()
