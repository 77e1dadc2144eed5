"""A flat program compiled by Inductor into a package that says nothing of this machine's paths.

Inductor's defaults spend most of the time on questions about the compiler and on
precompiled headers that one model uses once; both are left out. Everything is
made in a private folder that is removed, and no cache of the user's is read or
written, so that a file never depends on what was compiled before.
"""

from __future__ import annotations

import json
import os
import shlex
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ...errors import ConversionError, IsomorphError, MissingRequirementError
from ...exporter.quiet import quiet_loggers
from ..unsupported import cannot_express, unsupported
from .check import nodes_of

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from ...exporter.graph import Graph
    from .target import AotInductorOptions

__all__ = ["MODEL", "NAMES_KEY", "compile_package"]

MODEL = "model"
NAMES_KEY = "isomorph"
# Before the compiler's own name, which torch reads to tell what kind it is.
_PREFIX = "isomorph-"
_KEPT = (".so", ".json", ".blob")
# A compiler must not treat -0.0 as 0.0; no line tables, and no paths in assertions.
_FLAGS = ("-fsigned-zeros", "-fno-associative-math", "-fno-reciprocal-math", "-g0")


def compile_package(
    program: ExportedProgram,
    graph: Graph,
    options: AotInductorOptions,
    compiler: str,
    path: Path,
) -> None:
    """Write the package `path`; names and dims of `graph` are in its metadata.

    Raises:
        ConversionError: Inductor or the compiler failed.
        MissingRequirementError: no such device.
        OSError: the file cannot be written.
    """
    from ..tensors import torch_device

    device = torch_device(options.device, "AOTInductor")
    if device.type != "cpu":
        from torch.export.passes import move_to_device_pass

        program = move_to_device_pass(program, str(device))
    with _private_folder(compiler) as command, _exact_environment():
        apart = _has_weights(program)
        files = _compile(program, graph, options, command, weights_apart=apart)
        if apart and any(f.endswith(".blob") and not Path(f).stat().st_size for f in files):
            # Nothing was left of the weights, and torch does not load an empty member.
            files = _compile(program, graph, options, command, weights_apart=False)
        _package([file for file in files if file.endswith(_KEPT)], path)


def _compile(
    program: ExportedProgram,
    graph: Graph,
    options: AotInductorOptions,
    command: str,
    *,
    weights_apart: bool,
) -> list[str]:
    import torch._inductor

    settings = _settings(graph, options, command)
    if weights_apart:  # the linker need not carry them, and no random number marks them
        settings["aot_inductor.package_constants_in_so"] = False
        settings["aot_inductor.package_constants_on_disk_format"] = "binary_blob"
    with quiet_loggers("torch", level=50), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        module: Any = program.module(check_guards=False)
        example = tuple(_placeholder_values(program, graph))
        try:
            files: Any = torch._inductor.aot_compile(module, example, options=settings)
        except Exception as error:
            raise _conversion_error(error, program, command.removeprefix(_PREFIX)) from error
    return [str(file) for file in files]


def _has_weights(program: ExportedProgram) -> bool:
    from ...exporter.graph import placeholder_tensors

    tensors = placeholder_tensors(program)
    return any(
        node.users and node.name in tensors and tensors[node.name].numel()
        for node in program.graph.nodes
    )


def _settings(graph: Graph, options: AotInductorOptions, command: str) -> dict[str, Any]:
    names = {
        "format": 1,
        "inputs": [spec.to_json() for spec in graph.inputs],
        "outputs": [spec.to_json() for spec in graph.outputs],
    }
    return {
        "aot_inductor.package": True,
        "aot_inductor.metadata": {NAMES_KEY: json.dumps(names, sort_keys=True)},
        "aot_inductor.model_name_for_generated_files": MODEL,
        "aot_inductor.precompile_headers": False,
        "aot_inductor.compile_wrapper_opt_level": "O0",  # calls kernels; computes nothing itself
        "aot_inductor.enable_line_tables": False,
        "compile_threads": 1,
        "max_autotune": options.max_autotune,
        "cpp.cxx": (command,),
        # Else the number of threads here would be that of every machine the package runs on.
        "cpp.dynamic_threads": True,
        "cpp.threads": _THREADS,
        "cpp.enable_unsafe_math_opt_flag": False,
        "cpp.enable_floating_point_contract_flag": "off",
        "cpp.use_decompose_tanh": False,
    }


# What Inductor assumes while it decides where loops are worth threads.
_THREADS = 8


def _placeholder_values(program: ExportedProgram, graph: Graph) -> Iterator[Any]:
    values = {n.name: n.meta["val"] for n in program.graph.nodes if n.op == "placeholder"}
    return (values[name] for name in graph.input_nodes)


def _package(files: list[Any], path: Path) -> None:
    from torch._inductor.package.package import package_aoti

    # The archive's root folder is named after the file that torch is told.
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        written = Path(folder, f"{MODEL}.pt2")
        try:
            package_aoti(str(written), files)
        except RuntimeError as error:
            if "Writer" not in str(error):
                raise
            raise OSError(str(error).splitlines()[0]) from error
        written.replace(path)


@contextmanager
def _private_folder(compiler: str) -> Iterator[str]:
    """Inductor's cache in a folder that is removed; yields the command that compiles there."""
    with ExitStack() as stack:
        made = tempfile.TemporaryDirectory(prefix="isomorph-", dir=_plain_parent())
        folder = Path(stack.enter_context(made))
        script = _wrapped_compiler(compiler, folder)
        variables = {
            "TORCHINDUCTOR_CACHE_DIR": folder,
            "TRITON_CACHE_DIR": folder / "triton",
            "PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}",
        }
        before = {name: os.environ.get(name) for name in variables}
        os.environ.update({name: str(value) for name, value in variables.items()})
        stack.callback(_restore, before)
        with quiet_loggers("torch.utils.cpp_extension"):
            from torch._inductor.utils import clear_caches  # importing it makes the folder
        clear_caches()
        stack.callback(clear_caches)
        yield script.name


def _plain_parent() -> str:
    """A temporary folder whose path has no spaces: torch splits its compiler's command at them.

    Raises:
        MissingRequirementError: there is none.
    """
    for place in (tempfile.gettempdir(), "/tmp", "/var/tmp"):
        if not any(letter.isspace() for letter in place) and os.access(place, os.W_OK):
            return place
    raise MissingRequirementError(
        f"AOTInductor cannot compile in {tempfile.gettempdir()}: torch takes no path with spaces",
        hint="export TMPDIR=... to a folder without spaces in its path",
    )


def _restore(before: dict[str, str | None]) -> None:
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


def _wrapped_compiler(compiler: str, folder: Path) -> Path:
    """A script that calls the compiler with our flags last; torch has no setting for flags."""
    torch_folder = Path(torch.__file__).parent
    flags = [
        *_FLAGS,
        f"-ffile-prefix-map={folder}=model",
        f"-ffile-prefix-map={folder.resolve()}=model",
        f"-ffile-prefix-map={torch_folder}=torch",
    ]
    script = folder / f"{_PREFIX}{Path(compiler).name}"
    linking = 'case " $* " in *\' -shared \'*) set -- "$@" -s;; esac\n'
    script.write_text(
        f'#!/bin/sh\n{linking}exec {shlex.quote(compiler)} "$@" {shlex.join(flags)}\n'
    )
    script.chmod(0o700)
    return script


@contextmanager
def _exact_environment() -> Iterator[None]:
    """The instruction sets that the CPU reports are taken as they are; random state is kept.

    Inductor otherwise compiles and runs a small program for each of them, six or more.
    """
    from unittest.mock import patch

    with quiet_loggers("torch.utils.cpp_extension"):
        from torch._inductor import cpu_vec_isa

    def trusted(self: Any, code: str) -> bool:
        return True

    cpu_vec_isa.valid_vec_isa_list.cache_clear()
    try:
        with (
            torch.random.fork_rng(devices=[]),
            patch.object(cpu_vec_isa.VecISA, "check_build", trusted),
        ):
            yield
    finally:
        cpu_vec_isa.valid_vec_isa_list.cache_clear()


def _conversion_error(error: Exception, program: ExportedProgram, compiler: str) -> IsomorphError:
    """The operator that Inductor names, where it names one, else its message."""
    text = str(error).strip()
    if "InvalidCxxCompiler" in type(error).__name__ + text:
        return MissingRequirementError(
            f"the C++ compiler {os.environ.get('CXX') or compiler} does not work",
            hint="install another, or name one: export CXX=...",
        )
    named = next((line for line in text.splitlines() if line.strip().startswith("target: ")), "")
    target = named.strip().removeprefix("target: ")
    lines = text.splitlines() or [type(error).__name__]
    if target:
        nodes = [node for node in nodes_of(program) if str(node.target) == target]
        if nodes:
            return cannot_express("AOTInductor", [unsupported(node, lines[0]) for node in nodes])
    return ConversionError(
        f"AOTInductor does not compile the model: {lines[0]}",
        hint="-v shows the compiler's whole message; a newer compiler or torch may help",
    )
