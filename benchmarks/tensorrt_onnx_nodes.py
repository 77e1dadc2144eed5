"""What TensorRT's parser and Isomorph's evaluator make of ONNX's own operator tests.

    python benchmarks/tensorrt_onnx_nodes.py [--only NAME] [--kind node]

The `onnx` package ships a model with inputs and expected outputs for each operator and attribute.
Each is given to the parser of TensorRT for RTX, and what it makes of it to the evaluator; a table
counts what came of it, and disagreements are listed. The parser runs in a child process, which
is started anew behind the test that it died at. Needs onnx and tensorrt-rtx.

refused: by the parser, or for a dtype at the border that TensorRT does not have.
unverified: the evaluator says that it does not know.
differs: an explained difference between TensorRT's parser and ONNX (DIFFERENCES below).
wrong: the outputs are not the expected ones, and nobody has said why.
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

_LAYOUT = "the parser ignores the attribute layout"
_LENGTHS = "the parser ignores what opset 24 added to Attention: lengths, windows"
DIFFERENCES = {
    r"test_(lstm|gru|simple_rnn)_batchwise": _LAYOUT,
    r"test_attention_.*(nonpad|window)": _LENGTHS,
    r"test_triu": "the parser takes upper=0 where the attribute is left out, ONNX 1",
    r"test_spacetodepth_crd": "the parser ignores the attribute mode, which is new",
}


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
    border = (*case.model.graph.input, *case.model.graph.output)
    declared = {tensor.name: tensor.dtype for tensor in (*network.inputs, *network.outputs)}
    for info in border:
        dtype = str(onnx.helper.tensor_dtype_to_np_dtype(info.type.tensor_type.elem_type))
        if info.name in declared and declared[info.name] != dtype:
            return f"refused {dtype} at the border"
    names = [tensor.name for tensor in case.model.graph.input]
    if not {tensor.name for tensor in network.inputs} <= set(names):
        return "refused the parser renames an input"
    for inputs, expected in case.data_sets:
        given = {
            tensor.name: as_tensor(inputs[names.index(tensor.name)]) for tensor in network.inputs
        }
        try:
            found = run_network(network, given)
        except UnverifiableError as error:
            return f"unverified {error}"
        except ConversionError as error:
            return f"wrong {error}"
        for output, want in zip(case.model.graph.output, expected, strict=True):
            # One that is not there is optional, and not asked for.
            said = output.name in found and difference(found[output.name], as_tensor(want))
            if said:
                return f"wrong {output.name}: {said}"
    return "agrees"


def as_tensor(value: Any) -> Any:
    import onnx
    import torch

    array = onnx.numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value
    name = str(array.dtype)
    if hasattr(np, name) or name == "bool":
        return torch.from_numpy(np.array(array))
    if not hasattr(torch, name):
        raise TypeError(name)
    bits = np.array(array).view(f"uint{array.dtype.itemsize * 8}")
    return torch.from_numpy(bits).view(getattr(torch, name))


def difference(found: Any, want: Any) -> str | None:
    import torch

    if found.shape != want.shape or found.dtype != want.dtype:
        return f"{found.dtype}{list(found.shape)}, not {want.dtype}{list(want.shape)}"
    eps = torch.finfo(want.dtype).eps if want.is_floating_point() else 0.0
    rtol = max(1e-4, 4 * eps) if eps else 0.0
    first, second = (x.double() if eps else x for x in (found, want))
    if torch.allclose(first, second, rtol=rtol, atol=rtol / 2, equal_nan=True):
        return None
    return f"{found.reshape(-1)[:4].tolist()}, not {want.reshape(-1)[:4].tolist()}"


def work(kind: str, only: str, start: int) -> None:
    logging.disable(logging.CRITICAL)
    warnings.simplefilter("ignore")
    found = cases(kind, only)
    with tempfile.TemporaryDirectory() as folder:
        for index in range(start, len(found)):
            case = found[index]
            print(f"{index}\t{case.name}\tstarted", flush=True)
            try:
                said = outcome(case, Path(folder) / "model.onnx")
            except (TypeError, ValueError, RuntimeError, KeyError) as error:
                said = f"wrong {type(error).__name__}: {error}"
            if said.startswith("wrong"):
                known = [why for name, why in DIFFERENCES.items() if re.search(name, case.name)]
                said = f"differs {known[0]}" if known else said
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
