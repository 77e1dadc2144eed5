"""litert_torch, imported once and quietly, and the few of its functions that we call.

`litert_torch.convert` captures a module by itself; a Graph is captured already, so we call
what comes after: its passes, its lowering to MLIR and its converter. These functions are not
promised by the library. The extra pins the minor version, and one that lacks them is refused.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from typing import TYPE_CHECKING, Any

from ...errors import MissingRequirementError
from ...exporter.quiet import quiet_loggers
from ..packages import installed_version

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["Library", "library"]

# Read by the native libraries when they are loaded; progress bars are litert_torch's own.
_QUIET = {"TF_CPP_MIN_LOG_LEVEL": "3", "TF_ENABLE_ONEDNN_OPTS": "0"}


class Library:
    """The parts of the installed litert_torch, by what they do."""

    def __init__(self) -> None:
        from litert_converter.mlir import passmanager
        from litert_converter.mlir._mlir_libs import converter_api_ext
        from litert_torch import fx_infra
        from litert_torch._convert import core
        from litert_torch.backend import export, export_utils, inline_consts, lowerings

        self._infra = fx_infra
        self._run_passes = core._run_convert_passes
        self._export = export
        self._context = export_utils.create_ir_context
        self._constants = inline_consts
        self._lookup = lowerings.lookup
        self._converter = converter_api_ext
        self._pass_manager = passmanager.PassManager
        self.constant = inline_consts.tensor_lowering_placeholder
        for owner, name in self._narrowing():
            getattr(owner, name)

    def decomposed(
        self, program: ExportedProgram, replacements: Mapping[Any, Callable[..., Any]]
    ) -> ExportedProgram:
        """Retraced with litert_torch's decompositions and ours, before its passes."""
        program = self._infra.graph_utils.reset_from_node_meta(program)
        table = {**self._infra.decomp.pre_convert_decomp(), **replacements}
        result: ExportedProgram = self._infra.safe_run_decompositions(
            program, table, can_skip=False
        )
        return result

    def lowers(self, node: Node) -> bool:
        """Whether a decomposed operator has a lowering."""
        return self._lookup(node.target) is not None

    def flatbuffer(
        self,
        program: ExportedProgram,
        names: tuple[list[str], list[str]],
        before_lowering: Callable[[ExportedProgram], None],
    ) -> bytes:
        """A decomposed program as the bytes of a file.

        Args:
            program: from `decomposed`.
            names: of inputs and of outputs, in order.
            before_lowering: sees, and may mark or refuse, the operators that are lowered.
        """
        program = self._run_passes(program)
        context = self._context()
        with self._values_kept():
            lowered = self._export.exported_program_to_mlir(
                program,
                ir_context=context,
                lowering_context_plugins=[self._constants.InlineConstsContext()],
                _pre_lower_pass=before_lowering,
            )
        self._converter.set_signature(
            lowered.module.operation,
            signature_name="serving_default",
            input_names=names[0],
            output_names=names[1],
        )
        module = self._converter.merge_modules([lowered.module])
        config = self._converter.ConvertToTFLConfig()
        config.model_origin_framework = "PYTORCH"
        config.unsafe_fuse_dynamic_shaped_broadcast = True
        config.canonicalizing_inf_as_min_max_float = False
        config.enable_x64 = True  # else int64 would silently become int32
        with context:
            self._converter.run_convert_to_tfl_passes(module, self._pass_manager(), config)
        content: bytes = self._converter.export_flatbuffer_to_bytes(
            getattr(module, "operation", module)
        )
        return content

    def lowered_operators(self, program: ExportedProgram) -> ExportedProgram:
        """A decomposed program as it would be lowered."""
        found: list[ExportedProgram] = []

        def stop(program: ExportedProgram) -> None:
            found.append(program)
            raise _StopError

        with suppress(_StopError):
            self.flatbuffer(program, ([], []), stop)
        return found[0]

    def _narrowing(self) -> tuple[tuple[Any, str], ...]:
        """Functions of litert_torch 0.10 that change values without a word.

        The first clamps infinite constants to the largest float, in the user's own tensors;
        the second makes int64 `arange` int32, so that what is computed from it may wrap.
        """
        return (
            (self._constants, "_clamp_inf_values"),
            (self._export, "_convert_i64_to_i32"),
        )

    @contextmanager
    def _values_kept(self) -> Iterator[None]:
        before = [(owner, name, getattr(owner, name)) for owner, name in self._narrowing()]
        for owner, name, _ in before:
            setattr(owner, name, _unchanged)
        try:
            yield
        finally:
            for owner, name, function in before:
                setattr(owner, name, function)


class _StopError(Exception):
    """Ends a conversion before the lowering."""


def _unchanged(value: Any) -> Any:
    return value


@cache
def library() -> Library:
    """The installed litert_torch.

    Raises:
        MissingRequirementError: it does not import, or is one that we do not know.
    """
    before = {name: os.environ.get(name) for name in _QUIET}
    os.environ.update({name: value for name, value in _QUIET.items() if before[name] is None})
    try:
        with warnings.catch_warnings(), quiet_loggers("torch.utils._pytree", "jax"):
            warnings.simplefilter("ignore")
            found = Library()
            from litert_torch import progress
    except (ImportError, AttributeError) as error:
        raise MissingRequirementError(
            f"litert-torch {installed_version('litert-torch')} cannot be used: {error}",
            hint='run: pip install -U "isomorph[litert]"',
        ) from error
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
    progress.config = _NoProgress()
    return found


class _NoProgress:
    """Takes the place of litert_torch's settings where its progress bars read them."""

    show_progress = False
