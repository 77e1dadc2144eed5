"""Which operators the installed converter has a translation for, read from its own registry."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from ..base import Unsupported
from ..unsupported import unsupported
from .quiet import coremltools
from .recurrent import register_recurrent

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["takes", "untranslated"]


def takes(node: Node) -> bool:
    """Whether coremltools has a translation for the operator of a node.

    It translates functional operators only: an in-place one is not taken, whatever is registered
    for its functional form. Whether the translation accepts the node's arguments shows when it
    is converted.
    """
    if node.op != "call_function":
        return True
    return _kind(node.target) in _translations()


def untranslated(program: ExportedProgram) -> list[Unsupported]:
    """Operators of a prepared program that coremltools has no translation for."""
    return [unsupported(node) for node in _calls(program) if not takes(node)]


def _kind(target: Any) -> str:
    """The name under which coremltools looks an operator up (`InternalTorchIRNode`, 9.0)."""
    coremltools()
    from coremltools.converters.mil.frontend.torch.utils import sanitize_op_kind

    named = getattr(target, "name", None)
    return str(
        sanitize_op_kind(named() if callable(named) else getattr(target, "__name__", str(target)))
    )


@lru_cache(maxsize=1)
def _translations() -> frozenset[str]:
    coremltools()
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    register_recurrent()
    return frozenset(_TORCH_OPS_REGISTRY.name_to_func_mapping)


def _calls(program: ExportedProgram) -> Iterator[Node]:
    for node in program.graph_module.graph.nodes:
        if node.op == "call_function":
            yield node
