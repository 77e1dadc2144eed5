"""Watches coremltools translate operators: which keyword arguments does it leave unread?

Its translations were written for TorchScript, where every argument has a place, and many do not
look at those that torch.export gives by keyword: `gelu(x, approximate="tanh")` was written as the
exact GELU by coremltools 9.0, without a word.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

__all__ = ["ArgumentsLeftOut", "watching"]

# What does not change the values that a deployed operator computes.
_IDLE = {"device", "layout", "memory_format", "non_blocking", "pin_memory", "stable", "sparse_grad"}


class ArgumentsLeftOut(Exception):  # noqa: N818 - it is caught where it is awaited, never shown
    """Translations left keyword arguments unread: `names` of them by the node's name."""

    def __init__(self, names: dict[str, set[str]]) -> None:
        super().__init__(f"arguments left out: {names}")
        self.names = names


class _Watch:
    """What was seen during one conversion."""

    def __init__(self, matters: Callable[[str, str], bool]) -> None:
        self._matters = matters
        self._given: dict[str, _Keywords] = {}

    def demand(self) -> None:
        found = {}
        for name, given in self._given.items():
            left = {k for k in set(given) - given.read - _IDLE if self._matters(name, k)}
            if left:
                found[name] = left
        if found:
            raise ArgumentsLeftOut(found)

    def follow(self, node: Any) -> Any:
        """Count what is read of a node's keyword arguments from now on."""
        if node.kwinputs:
            node.kwinputs = self._given[node.name] = _Keywords(node.kwinputs)
        return node


class _Keywords(dict[str, Any]):
    """Keyword arguments that remember which were asked for."""

    def __init__(self, given: dict[str, Any]) -> None:
        super().__init__(given)
        self.read: set[str] = set()

    def __getitem__(self, name: str) -> Any:
        self.read.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.read.add(name)
        return super().get(name, default)


@contextlib.contextmanager
def watching(matters: Callable[[str, str], bool]) -> Iterator[None]:
    """While active, conversions in this process stop once all operators are translated if need be.

    `matters(node name, keyword)` tells whether leaving an argument out changes what is computed.

    Raises:
        ArgumentsLeftOut: within the conversion, before anything is written.
    """
    from coremltools.converters.mil.frontend.torch import converter
    from coremltools.converters.mil.frontend.torch.internal_graph import InternalTorchIRNode

    watch = _Watch(matters)
    read, translate = InternalTorchIRNode.__dict__["from_exir_node"], converter.convert_nodes

    def from_exir_node(cls: Any, node: Any) -> Any:
        return watch.follow(read.__func__(cls, node))

    def convert_nodes(*args: Any, **kwargs: Any) -> None:
        translate(*args, **kwargs)
        watch.demand()

    InternalTorchIRNode.from_exir_node = classmethod(from_exir_node)
    converter.convert_nodes = convert_nodes
    try:
        yield
    finally:
        InternalTorchIRNode.from_exir_node = read
        converter.convert_nodes = translate
