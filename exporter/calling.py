"""How named tensors become a call of the user's module, and its result named tensors.

A module takes positional and keyword arguments that nest dicts, tuples and
dataclasses, with None and Python numbers between; a deployed artifact takes a
flat list of named tensors. `CallStructure` holds the translation both ways.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..errors import UsageError
from .rewrites.attention import plain_attention

__all__ = ["CallStructure", "Constant", "flat_names", "register_dataclasses", "unique_names"]


@dataclasses.dataclass(frozen=True)
class Constant:
    """A leaf that is not a tensor (None, a number, a string): fixed when captured."""

    value: Any


@dataclasses.dataclass(frozen=True)
class CallStructure:
    """Argument tree and result tree of a module, with a name for every tensor leaf.

    `input_leaves` and `output_leaves` follow the trees' leaf order; each is a
    tensor's name or a `Constant`. `mutated` names the inputs that the module
    writes to, each with the name of the output that carries the new value.
    """

    input_tree: pytree.TreeSpec
    input_leaves: tuple[str | Constant, ...]
    output_tree: pytree.TreeSpec
    output_leaves: tuple[str | Constant, ...]
    mutated: tuple[tuple[str, str], ...] = ()

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(leaf for leaf in self.input_leaves if isinstance(leaf, str))

    def bind(self, inputs: Mapping[str, torch.Tensor]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """`(args, kwargs)` for the module, from tensors by input name."""
        missing = [name for name in self.input_names if name not in inputs]
        if missing:
            raise UsageError(
                f"no value for input {', '.join(missing)}",
                hint=f"the model's inputs are {', '.join(self.input_names)}",
            )
        leaves = [
            inputs[leaf] if isinstance(leaf, str) else leaf.value for leaf in self.input_leaves
        ]
        args, kwargs = pytree.tree_unflatten(leaves, self.input_tree)
        return args, kwargs

    def call(
        self, module: Callable[..., Any], inputs: Mapping[str, torch.Tensor]
    ) -> dict[str, torch.Tensor]:
        """Call `module` without gradients; return its outputs, mutated inputs included, by name.

        Inputs are cloned first when the module is known to write to them.
        """
        if self.mutated:
            inputs = {
                name: value.clone(memory_format=torch.preserve_format)
                for name, value in inputs.items()
            }
        args, kwargs = self.bind(inputs)
        with torch.no_grad(), plain_attention():
            result = module(*args, **kwargs)
        named = self.name_outputs(result)
        for input_name, output_name in self.mutated:
            named[output_name] = inputs[input_name]
        return named

    def name_outputs(self, result: Any) -> dict[str, torch.Tensor]:
        """The tensors of a module's result, by output name."""
        leaves, tree = pytree.tree_flatten(result)
        if len(leaves) != len(self.output_leaves):
            raise UsageError(
                f"the model returned {len(leaves)} values where {len(self.output_leaves)} "
                f"were captured ({tree} against {self.output_tree})",
                hint="the number of outputs must not depend on the input's values",
            )
        return {
            name: torch.as_tensor(leaf)
            for name, leaf in zip(self.output_leaves, leaves, strict=True)
            if isinstance(name, str)
        }


def flat_names(paths: Iterable[Sequence[str]], fallback: str) -> list[str]:
    """One name per path of keys: joined by underscores, made unique.

    A path that is empty or starts with a number gets `fallback` in front, so an
    unnamed tuple becomes `output_0`, `output_1`. The key "" is named by its position.
    """
    names = []
    for position, path in enumerate(paths):
        parts = [re.sub(r"\W+", "_", part) for part in path]
        if not parts or parts[0][:1].isdigit():
            parts = [fallback, *(parts or ["0"])]
        names.append("_".join(parts) or f"{fallback}_{position}")
    return unique_names(names)


def unique_names(names: Iterable[str]) -> list[str]:
    """`names` with repeats numbered: a, a, b becomes a, a_1, b."""
    names = list(names)
    taken = set(names)
    seen: set[str] = set()
    result = []
    for name in names:
        candidate, number = name, 0
        while candidate in seen or (number and candidate in taken):
            number += 1
            candidate = f"{name}_{number}"
        seen.add(candidate)
        result.append(candidate)
    return result


def key_paths(tree: Any) -> tuple[list[tuple[str, ...]], list[Any], pytree.TreeSpec]:
    """Leaves of a nested structure with the keys that lead to each."""
    pairs, spec = pytree.tree_flatten_with_path(tree)
    paths = [tuple(_key_text(key) for key in path) for path, _ in pairs]
    return paths, [leaf for _, leaf in pairs], spec


def _key_text(key: Any) -> str:
    for attribute in ("key", "idx", "name"):
        if hasattr(key, attribute):
            return str(getattr(key, attribute))
    return str(key)


def argument_paths(
    forward: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> tuple[list[tuple[str, ...]], list[Any], pytree.TreeSpec]:
    """Leaves of a call with key paths that begin at `forward`'s parameter names."""
    positional = _positional_names(forward, len(args))
    paths, leaves, spec = key_paths((args, dict(kwargs)))
    named = []
    for path in paths:
        half, first, *rest = path
        head = positional[int(first)] if half == "0" else (first,)
        named.append((*head, *rest))
    return named, leaves, spec


def _positional_names(forward: Callable[..., Any], count: int) -> list[tuple[str, ...]]:
    """Names of the first `count` positional arguments; `*args` gives args_0, args_1."""
    try:
        parameters = list(inspect.signature(forward).parameters.values())
    except (TypeError, ValueError):
        parameters = []
    names: list[tuple[str, ...]] = []
    for parameter in parameters:
        if parameter.kind is parameter.VAR_POSITIONAL:
            names += [(parameter.name, str(i)) for i in range(count - len(names))]
        elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
            names.append((parameter.name,))
    names += [("input", str(i)) for i in range(len(names), count)]
    return names[:count]


def register_dataclasses(tree: Any) -> bool:
    """Teach pytree the dataclasses and dict subclasses found in `tree`; True if one was new.

    torch.export then sees their fields and entries.
    """
    seen: set[int] = set()
    new = False

    def visit(value: Any) -> None:
        nonlocal new
        if id(value) in seen:
            return
        seen.add(id(value))
        known = type(value) in pytree.SUPPORTED_NODES
        if dataclasses.is_dataclass(value) and not isinstance(value, (type, Mapping)):
            if not known:
                torch.export.register_dataclass(type(value))
                new = True
            for field in dataclasses.fields(value):
                visit(getattr(value, field.name))
        elif isinstance(value, Mapping):
            if isinstance(value, dict) and not known:
                _register_dict(type(value))
                new = True
            for item in value.values():
                visit(item)
        elif isinstance(value, (list, tuple)):
            for item in value:
                visit(item)

    visit(tree)
    return new


def _register_dict(kind: type) -> None:
    """A dict subclass is a node whose children are its values, made again from pairs."""

    def keyed(value: Any) -> tuple[list[tuple[Any, Any]], Any]:
        return [(pytree.MappingKey(k), v) for k, v in value.items()], list(value)

    pytree.register_pytree_node(
        kind,
        lambda value: (list(value.values()), list(value)),
        lambda values, keys: kind(zip(keys, values, strict=True)),
        serialized_type_name=f"{kind.__module__}.{kind.__qualname__}",
        flatten_with_keys_fn=keyed,
    )
