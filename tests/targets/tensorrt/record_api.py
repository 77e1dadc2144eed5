"""Records the Python API of a TensorRT release from its bindings, which need no GPU.

    pip download --no-deps "tensorrt-cu12-bindings==10.*" && unzip *.whl
    python record_api.py FOLDER 10.16

writes `tensorrt-api-10.16.json` (public members of each class; of enums the member names) and
`tensorrt-calls-10.16.json` (parameters and results, from the docstrings). The bindings link
against TensorRT's libraries, which are not on PyPI: libraries of the same names stand in, whose
functions are never called.
"""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

# Functions that the bindings import from the libraries: `nm -D --undefined-only tensorrt.so`.
_FUNCTIONS = (
    *("createInferBuilder_INTERNAL", "createInferRefitter_INTERNAL"),
    *("createInferRuntime_INTERNAL", "createNvOnnxParserRefitter_INTERNAL"),
    *("createNvOnnxParser_INTERNAL", "getBuilderPluginRegistry", "getNvOnnxParserVersion"),
    *("getPluginRegistry", "initLibNvInferPlugins"),
)
_LIBRARIES = ("nvinfer", "nvinfer_plugin", "nvonnxparser")


def surface(module: Any) -> dict[str, list[str]]:
    """Public members of each class of `module`; of an enum its members alone."""
    found = {}
    for name, item in vars(module).items():
        if inspect.isclass(item) and not name.startswith("_"):
            enum = getattr(item, "__members__", None)
            members = dir(item) if enum is None else enum
            found[name] = sorted(m for m in members if not m.startswith("_"))
    return dict(sorted(found.items()))


def calls(module: Any) -> dict[str, Any]:
    """`Class.method`, `Class` and functions: parameter names of each overload, and the result."""
    found = {}
    for name, item in vars(module).items():
        if name.startswith(("_", "IPlugin")):
            continue
        if inspect.isclass(item):
            for member in dir(item):
                if member == "__init__":
                    found[name] = _signatures(item.__init__, "__init__")
                elif not member.startswith("_"):
                    found[f"{name}.{member}"] = _signatures(getattr(item, member), member)
        elif callable(item):
            found[name] = _signatures(item, name)
    return {name: overloads for name, overloads in sorted(found.items()) if overloads}


def _signatures(function: Any, name: str) -> list[Any]:
    lines = re.findall(
        rf"^(?:\d+\. )?{name}\((.*)\) -> (.*)$", getattr(function, "__doc__", None) or "", re.M
    )
    return [[_parameters(text), result.rpartition(".")[2]] for text, result in lines]


def _parameters(text: str) -> list[str]:
    """Names; those with defaults end in "=". Commas inside brackets belong to a type."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += (letter in "[(<{") - (letter in "])>}")
        if letter == "," and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    parts = [part.strip() for part in (*parts, text[start:]) if part.strip()]
    names = [part.partition(":")[0] + ("=" if " = " in part else "") for part in parts]
    return [name for name in names if name != "self"]


def main(folder: Path, version: str) -> None:
    """Write both files; runs itself again where the stand-ins are found."""
    here = Path(__file__).parent
    with tempfile.TemporaryDirectory() as libraries:
        source = Path(libraries, "empty.c")
        source.write_text("".join(f"void *{name}(void) {{ return 0; }}\n" for name in _FUNCTIONS))
        for name in _LIBRARIES:
            library = f"lib{name}.so.{version.partition('.')[0]}"
            command = ["cc", "-shared", "-fPIC", "-o", Path(libraries, library), source]
            subprocess.run([*command, f"-Wl,-soname,{library}"], check=True)
        environment = {**os.environ, "LD_LIBRARY_PATH": libraries, "PYTHONPATH": str(folder)}
        command = [sys.executable, __file__, "write", str(here), version]
        subprocess.run(command, env=environment, check=True)


def write(folder: Path, version: str) -> None:
    """Import the bindings and write what they have."""
    module = importlib.import_module("tensorrt_bindings")
    for kind, made in (("api", surface(module)), ("calls", calls(module))):
        path = folder / f"tensorrt-{kind}-{version}.json"
        lines = ",\n".join(f"{json.dumps(name)}: {json.dumps(made[name])}" for name in made)
        path.write_text(f"{{\n{lines}\n}}\n")


if __name__ == "__main__":
    if sys.argv[1] == "write":
        write(Path(sys.argv[2]), sys.argv[3])
    else:
        main(Path(sys.argv[1]), sys.argv[2])
