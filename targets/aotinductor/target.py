"""The AOTInductor format: compiled to native code by torch's Inductor, loaded by torch."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from ...errors import MissingRequirementError
from ..base import Artifact, Capability, Signature, Unsupported
from ..cuda import CUDA_REMEDY, torch_has_cuda
from ..packages import found_versions, importable, installed_version, require

if TYPE_CHECKING:
    from ...exporter.graph import Graph
    from .session import AotInductorSession

__all__ = ["AotInductorOptions", "AotInductorTarget"]

_REMEDY = "pip install isomorph"
_COMPILER_REMEDY = {
    "linux": "apt-get install g++ (or name your C++ compiler: export CXX=...)",
    "darwin": "xcode-select --install (or name your C++ compiler: export CXX=...)",
    "win32": "install the Build Tools for Visual Studio, and run in their command prompt",
}


@dataclass(frozen=True)
class AotInductorOptions:
    """Options of the AOTInductor target.

    device: what the package runs on; it is compiled for one device.
    max_autotune: time several kernels for each product while compiling, and keep the fastest.
        What is kept depends on the machine and its load, so the bytes are not reproducible.
    """

    device: Literal["cpu", "cuda"] = "cpu"
    max_autotune: bool = False


class AotInductorTarget:
    """Writes `NAME.aoti.pt2`, a package with native code, and opens it with torch.

    `native_code`: opening a file runs what is in it, so callers ask for trust first.
    """

    name = "aotinductor"
    suffix = ".aoti.pt2"
    extra = ""
    options_type = AotInductorOptions
    precisions = ("fp32", "fp16", "bf16")
    native_code = True

    def files(self, stem: str) -> tuple[str, ...]:
        return (f"{stem}.aoti.pt2",)

    def capability(self) -> Capability:
        """What is installed, a C++ compiler that answers included; imports none of it."""
        there, compiler = importable("torch"), cpp_compiler()
        devices: tuple[str, ...] = ()
        if there:
            devices = ("cpu", "cuda") if torch_has_cuda() else ("cpu",)
        remedy = None
        if not there:
            remedy = _REMEDY
        elif compiler is None:
            remedy = _compiler_remedy()
        return Capability(
            installed=there,
            version=installed_version("torch") if there else None,
            builds=there and compiler is not None,
            runs=there,
            devices=devices,
            remedy=remedy,
            device_remedies={} if "cuda" in devices else {"cuda": CUDA_REMEDY},
            note="native code for this kind of machine; building needs a C++ compiler",
            package="torch",
        )

    def check(self, graph: Graph) -> list[Unsupported]:
        """Operators of `graph` that the installed Inductor neither compiles nor calls."""
        require("compiling", ("torch",), _REMEDY)
        from ...exporter.flattening import flat_program
        from .check import find_unsupported

        return find_unsupported(flat_program(graph))

    def convert(
        self, graph: Graph, options: AotInductorOptions, directory: Path, stem: str
    ) -> Artifact:
        """Compile to `directory/stem.aoti.pt2`.

        Raises:
            ConversionError: Inductor or the C++ compiler failed.
            MissingRequirementError: there is no C++ compiler, or no GPU for `device=cuda`.
            OSError: the file cannot be written.
        """
        require("compiling", ("torch",), _REMEDY)
        compiler = cpp_compiler()
        if compiler is None:
            raise MissingRequirementError(
                f"AOTInductor compiles C++, and no compiler {_compiler_name()} answers",
                hint=f"run: {_compiler_remedy()}",
            )
        from ...exporter.flattening import flat_program
        from ..unsupported import cannot_express
        from .check import find_unsupported
        from .compile import compile_package

        program = flat_program(graph)
        if wrong := find_unsupported(program):
            raise cannot_express("AOTInductor", wrong)
        path = directory / f"{stem}{self.suffix}"
        compile_package(program, graph, options, compiler, path)
        return Artifact(
            path=path,
            files=(path,),
            format=self.name,
            inputs=graph.inputs,
            outputs=graph.outputs,
            versions=found_versions(("torch",)),
            notes=(
                f"native code for {options.device} and for the kind of CPU that it was compiled "
                "on; load it only if you trust whoever made it",
            ),
        )

    def open(
        self, artifact: Path, device: str = "cpu", signature: Signature | None = None
    ) -> AotInductorSession:
        """Load `artifact`, which runs native code in it; it holds its names.

        Callers that did not write the file themselves ask the user for trust first.
        """
        require("running AOTInductor packages", ("torch",), _REMEDY)
        from .session import AotInductorSession

        return AotInductorSession(artifact, device)


def cpp_compiler() -> str | None:
    """Path of the C++ compiler that torch would use; None if there is none that answers."""
    path = shutil.which(_compiler_name())
    if path is None or sys.platform == "win32":  # cl has no option that asks for its version
        return path
    asked = subprocess.run([path, "--version"], capture_output=True, check=False)
    return path if asked.returncode == 0 else None


def _compiler_name() -> str:
    default = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    return os.environ.get("CXX") or default


def _compiler_remedy() -> str:
    return _COMPILER_REMEDY.get(sys.platform, _COMPILER_REMEDY["linux"])
