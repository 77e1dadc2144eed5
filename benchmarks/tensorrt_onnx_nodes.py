"""What TensorRT's parser and Isomorph's evaluator make of ONNX's own operator tests.

    python benchmarks/tensorrt_onnx_nodes.py [--only NAME] [--kind node] [--jobs 1]

The `onnx` package ships a model with inputs and expected outputs for each operator and attribute.
Each is given to the parser of TensorRT for RTX, and what it makes of it to the evaluator; a table
counts what came of it, and disagreements are listed. The parser runs in child processes, of which one
that dies costs the test it was at. Needs onnx and tensorrt-rtx.

"refused by the parser": not our matter. "unverified": the evaluator says that it does not know.
"wrong": its outputs are not the expected ones within 1e-4, which is a bug of it, or a
difference between TensorRT and ONNX that someone has to explain.
"""

from __future__ import annotations

import argparse
import logging
import re
import subprocess
import sys
import tempfile
import warnings
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np

CHUNK = 60


def cases(kind: str, only: str) -> list[Any]:
    import onnx.backend.test.loader as loader

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = loader.load_model_tests(kind=kind)
    # The expanded ones spell an operator out in others, whose tests there are.
    return [
        case
        for case in found
        if re.search(only, case.name) and case.model is not None and "_expanded" not in case.name
    ]


def outcome(case: Any, path: Path) -> str:
    """One word, and what there is to say."""
    import onnx
    import torch
    from isomorph.errors import ConversionError, UnverifiableError
    from isomorph.targets.tensorrt.evaluate.interpreter import run_network
    from isomorph.targets.tensorrt.evaluate.network import read_network
    from isomorph.targets.tensorrt.parse import parse
    from isomorph.targets.tensorrt.products import RTX

    onnx.save(case.model, str(path))
    try:
        parsed = parse(RTX, path)
        network = read_network(parsed.module, parsed.network, parsed)
    except ConversionError as error:
        return f"refused {error}"
    except UnverifiableError as error:
        return f"unverified {error}"
    names = [tensor.name for tensor in case.model.graph.input]
    for inputs, expected in case.data_sets:
        given = {}
        for tensor in network.inputs:
            value = inputs[names.index(tensor.name)]
            if isinstance(value, onnx.TensorProto):
                value = onnx.numpy_helper.to_array(value)
            if str(value.dtype) == "bfloat16":
                given[tensor.name] = torch.from_numpy(value.view(np.int16).copy()).view(
                    torch.bfloat16
                )
            else:
                given[tensor.name] = torch.from_numpy(np.array(value))
        try:
            found = run_network(network, given)
        except UnverifiableError as error:
            return f"unverified {error}"
        except ConversionError as error:
            return f"wrong {error}"
        for output, want in zip(case.model.graph.output, expected, strict=True):
            if isinstance(want, onnx.TensorProto):
                want = onnx.numpy_helper.to_array(want)
            if output.name not in found:
                continue  # an optional one that is not asked for
            said = difference(found[output.name], np.asarray(want))
            if said:
                return f"wrong {output.name}: {said}"
    return "agrees"


def difference(found: Any, want: Any) -> str | None:
    import torch

    value = found.float().numpy() if found.dtype == torch.bfloat16 else found.numpy()
    if value.shape != want.shape:
        return f"{value.shape}, not {want.shape}"
    want = want.astype(np.float32) if str(want.dtype) == "bfloat16" else want
    if value.dtype != want.dtype:
        return f"{value.dtype}, not {want.dtype}"
    half = value.dtype == np.float16 or found.dtype == torch.bfloat16
    tolerance = 2e-3 if half else 1e-4
    if want.dtype.kind != "f":
        same = np.array_equal(value, want)
    else:
        same = np.allclose(value, want, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
    if same:
        return None
    return f"{value.reshape(-1)[:4].tolist()}, not {want.reshape(-1)[:4].tolist()}"


def work(kind: str, only: str, start: int) -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found = cases(kind, only)
    with tempfile.TemporaryDirectory() as folder:
        for index in range(start, min(start + CHUNK, len(found))):
            case = found[index]
            print(f"{index}\t{case.name}\tstarted", flush=True)
            try:
                said = outcome(case, Path(folder) / "model.onnx")
            except Exception as error:  # the sweep is to go on, and shows it
                said = f"wrong {type(error).__name__}: {error}"
            print(f"{index}\t{case.name}\t{' '.join(said.split())}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kind", default="node")
    parser.add_argument("--only", default="", help="a regular expression for the tests' names")
    parser.add_argument("--verbose", action="store_true", help="list every test")
    parser.add_argument("--from", type=int, dest="start", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.start is not None:
        work(given.kind, given.only, given.start)
        return
    total = len(cases(given.kind, given.only))
    results: dict[str, str] = {}
    start = 0
    while start < total:
        command = [sys.executable, __file__, "--kind", given.kind, "--only", given.only]
        child = subprocess.run(
            [*command, "--from", str(start)], capture_output=True, text=True, check=False
        )
        last = start - 1
        for line in child.stdout.splitlines():
            index, name, said = [*line.split("\t", 2), "", ""][:3]
            if index.isdigit():
                results[name] = f"died ({child.returncode})" if said == "started" else said
                last = int(index)
        if last < start:
            sys.exit(f"the child process does not start: {child.stderr.strip()[-500:]}")
        start = last + 1
    counts = Counter(said.split(" ", 1)[0] for said in results.values())
    for name, said in sorted(results.items(), key=lambda item: item[1]):
        word, _, rest = said.partition(" ")
        if given.verbose or word in ("wrong", "died"):
            print(f"{word:12}{name}: {rest[:300]}")
    print()
    for word, number in counts.most_common():
        print(f"{word:12}{number:6}")


if __name__ == "__main__":
    main()
