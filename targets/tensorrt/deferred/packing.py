"""Writes the folder that a device needs, and the recipe by which it builds."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .... import __version__
from ....hashing import sha256_of
from ..making import write_network
from ..options import TensorRtOptions

if TYPE_CHECKING:
    from ....exporter.graph import Graph
    from ...base import Artifact

__all__ = ["MODULES", "RECIPE", "SCRIPT", "constants_of", "is_ours", "pack"]

RECIPE, SCRIPT, MODULES = "build.json", "build_engine.py", "isomorph_device"
# Lines of the script that differ from package to package.
CONSTANTS = ("NAME", "ISOMORPH", "RECIPE_SHA256")
_SCHEMA = 1

_ROOT = Path(__file__).resolve().parents[3]
_INIT = (
    '"""What build_engine.py needs of Isomorph: how engines are run, and the rule of parity."""\n'
)

# As they stand in Isomorph: the device judges by the same lines. They need Python 3.8 and numpy.
_SHIPPED = {
    "border.py": "targets/tensorrt/border.py",
    "driver.py": "targets/tensorrt/driver.py",
    "running.py": "targets/tensorrt/running.py",
    "telling.py": "targets/tensorrt/deferred/telling.py",
    "evidence.py": "targets/evidence.py",
    "compare.py": "validation/compare.py",
    "detections.py": "validation/detections.py",
    "expected.py": "validation/expected.py",
    "findings.py": "validation/findings.py",
    "judging.py": "validation/judging.py",
    "pooled.py": "validation/pooled.py",
    "vectors.py": "validation/vectors.py",
    "verdict.py": "validation/verdict.py",
    "report/__init__.py": "validation/report/__init__.py",
    "report/model.py": "validation/report/model.py",
}

_README = """\
{name}: a TensorRT engine, to be built on the device that will run it
{line}

On the device, which needs TensorRT 10 or 11 with its Python module (on a PC: pip install tensorrt;
on Jetson it comes with JetPack), Python 3.8 or later and numpy 1.21 or later:

    python3 {script}

It builds {name}.engine in the current folder, runs the golden vectors on it, and says on its last
line PASS, FAIL or UNVERIFIED. {name}.engine.receipt.json tells what was built and found. An engine
that computes something else than the model is kept as {name}.engine.rejected and is not to be used.

    {onnx:<18}the network
    {recipe:<18}profile, precision and settings of the build; hashes
    golden.npz        inputs and what the model gives on them, in float64
    golden.json       the cases, the model's own rounding noise, the rule
    {script:<18}the one command; --help tells its options
    {modules:<18}what it needs of Isomorph {version}

The samples that the export was given (--data) are among the golden vectors.

Exit codes: 0 built (PASS or UNVERIFIED), 2 a wrong option, 3 FAIL, 4 TensorRT refuses the network,
5 this folder is damaged, 6 no GPU, TensorRT or numpy, 7 the engine cannot be written.
"""


def pack(graph: Graph, options: TensorRtOptions, folder: Path, stem: str) -> Artifact:
    """Write `folder`, and give the ONNX artifact in it.

    Raises:
        UsageError: the profile does not fit the model's dims.
        ConversionError: ONNX cannot express an operator.
        OSError: the folder cannot be written or is full.
    """
    folder.mkdir()
    network = write_network(graph, options.opset, options.opt, folder, stem)
    for name, source in _SHIPPED.items():
        path = folder / MODULES / name
        path.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_ROOT / source, path)
    (folder / MODULES / "__init__.py").write_text(_INIT, encoding="utf-8")
    onnx = network.onnx
    build = network.build_facts(graph.precision, options.settings)
    # Of another product, which aims at GPUs that are not there.
    del build["compute_capabilities"]
    known = {path.relative_to(folder).as_posix(): digest for path, digest in onnx.hashes.items()}
    recipe = {
        "schema": _SCHEMA,
        "isomorph": __version__,
        "name": stem,
        "onnx": onnx.path.name,
        "inputs": [spec.to_json() for spec in onnx.inputs],
        "outputs": [spec.to_json() for spec in onnx.outputs],
        "build": build,
        "versions": dict(onnx.versions),
        "files": {
            name: known.get(name) or sha256_of(folder / name) for name in _relative_files(folder)
        },
    }
    text = json.dumps(recipe, indent=2, ensure_ascii=True) + "\n"
    (folder / RECIPE).write_text(text, encoding="utf-8")
    _write_script(folder, {"NAME": stem, "ISOMORPH": __version__})
    readme = _README.format(
        name=stem,
        line="=" * (len(stem) + 63),
        script=SCRIPT,
        onnx=onnx.path.name,
        recipe=RECIPE,
        modules=MODULES,
        version=__version__,
    )
    (folder / "README.txt").write_text(readme, encoding="utf-8")
    return onnx


def _relative_files(folder: Path) -> list[str]:
    return sorted(
        path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()
    )


def _write_script(folder: Path, constants: dict[str, Any]) -> None:
    """The template beside this module, with the package's own constants."""
    text = Path(__file__).with_name(SCRIPT).read_text(encoding="utf-8")
    for name, value in {**constants, "RECIPE_SHA256": sha256_of(folder / RECIPE)}.items():
        found = re.findall(rf"^{name} = .*$", text, flags=re.MULTILINE)
        if len(found) != 1:
            raise AssertionError(f"the template sets {name} {len(found)} times")
        text = text.replace(f"\n{found[0]}\n", f"\n{name} = {json.dumps(value)}\n", 1)
    (folder / SCRIPT).write_text(text, encoding="utf-8")


def constants_of(script: str) -> dict[str, str]:
    """What a written script has in the place of the template's constants."""
    found = {}
    for name in CONSTANTS:
        line = re.search(rf"^{name} = (.*)$", script, flags=re.MULTILINE)
        with contextlib.suppress(ValueError):
            found[name] = str(json.loads(line[1])) if line else ""
    return found


def is_ours(script: str) -> bool:
    """Whether a script is this version's, but for its constants."""
    template = Path(__file__).with_name(SCRIPT).read_text(encoding="utf-8")
    return _without_constants(script) == _without_constants(template)


def _without_constants(script: str) -> str:
    return re.sub(rf"^({'|'.join(CONSTANTS)}) = .*$", r"\1", script, flags=re.MULTILINE)
