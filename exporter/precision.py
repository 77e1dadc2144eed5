"""Half precision, made once on a copy of the graph for every target.

The copy's products, activations and data movement compute in float16 or
bfloat16, everything else in float32 (`half_operators` is the classification,
docs/precision.md the reasons). The border stays: inputs are cast where half
operators read them, outputs are cast back. What an operator must not compute in
half follows from three marks that travel along the graph:

- kept: the user cast it to float32 on purpose; all that is computed from it
  stays float32 up to the next product with something else;
- exact: made from integers or from nothing (positions, masks, constants); what
  is computed from such values alone stays float32;
- huge: it holds finite numbers beyond the half type's range, such as a mask's
  `finfo(float32).min`. Elementwise operators take it in float32, and a cast
  to half clamps it, so that it never becomes infinite.
"""

from __future__ import annotations

import numbers
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node
from torch.utils import _pytree as pytree

from .half_operators import (
    BOUNDED,
    ELEMENTWISE,
    MOVEMENT,
    PRODUCTS,
    REDUCTIONS,
    SENSITIVE,
    name_of,
)
from .half_weights import HalfWeights
from .inplace import functionalize, is_mutating
from .nodes import tensor_value

if TYPE_CHECKING:
    from torch.export import ExportedProgram

    from .graph import Graph

__all__ = ["HALF_TYPES", "lower_precision"]

aten = torch.ops.aten

HALF_TYPES = {"fp16": torch.float16, "bf16": torch.bfloat16}

_CASTS = frozenset(("to", "_to_copy", "type"))
_WITH_NUMBERS = ELEMENTWISE | {"pad", "constant_pad_nd"}


def lower_precision(graph: Graph, precision: str) -> Graph:
    """A copy of `graph` that computes in "fp16" or "bf16"; "fp32" gives `graph` itself.

    Names, shapes and dtypes at the border are those of `graph`, which is not changed.

    Raises:
        ConversionError: a weight does not fit into the half type.
    """
    if precision == "fp32":
        return graph
    program, outputs = _functional(graph)
    lowering = _Lowering(program, HALF_TYPES[precision], graph)
    lowered_outputs = lowering.run(outputs)
    return replace(
        graph,
        program=program,
        output_nodes=lowered_outputs,
        notes=(*graph.notes, *lowering.weights.notes),
        precision=precision,
    )


def _functional(graph: Graph) -> tuple[ExportedProgram, tuple[str, ...]]:
    """A copy of the program without writes, and the names of its output nodes.

    A value that is cast is a copy, so a write through a view would be lost.
    """
    program = graph.copy_program()
    functionalize(program.graph_module.graph)
    calls = [node for node in program.graph_module.graph.nodes if node.op == "call_function"]
    if not any(map(is_mutating, calls)):
        return program, graph.output_nodes
    from .flattening import flat_program

    program = flat_program(graph).run_decompositions({})
    results: Any = program.graph_module.graph.output_node().args[0]
    return program, tuple(node.name for node in results)


class _Lowering:
    """The rewriting of one program."""

    def __init__(self, program: ExportedProgram, half: torch.dtype, graph: Graph) -> None:
        self._program = program
        self._graph = program.graph_module.graph
        self._half = half
        self._limits = torch.finfo(half)
        self._nodes = list(self._graph.nodes)
        self.weights = HalfWeights(program, half)
        self._kept: set[Node] = set()
        self._exact: set[Node] = set()
        self._huge: set[Node] = set()
        self._in_half: set[Node] = set()
        self._versions: dict[tuple[Node, torch.dtype], Node] = {}

    def run(self, outputs: tuple[str, ...]) -> tuple[str, ...]:
        """Rewrite the program; the names of the nodes that are its outputs now."""
        sensitive = self._find_sensitive()
        for node in self._nodes:
            self._decide(node, sensitive)
        self._spare_casts()
        self._convert_weights()
        for node in self._nodes:
            if node.op == "call_function":
                self._rewrite(node)
        renamed = self._cast_outputs()
        self._graph.eliminate_dead_code()
        self._program.graph_module.recompile()
        return tuple(renamed.get(name, name) for name in outputs)

    # What computes in half

    def _find_sensitive(self) -> set[Node]:
        """Elementwise operators and moves whose result a sensitive operator reads."""
        found: set[Node] = set()
        for node in reversed(self._nodes):
            if name_of(node) not in ELEMENTWISE | MOVEMENT:
                continue
            if any(user in found or _is_sensitive_to(user, node) for user in node.users):
                found.add(node)
        return found

    def _decide(self, node: Node, sensitive: set[Node]) -> None:
        """Mark a node and choose its precision; what it reads is decided already."""
        if node.op != "call_function":
            if node.op == "placeholder" and self.weights.is_out_of_range(node):
                self._huge.add(node)
            elif node.op == "placeholder" and self.weights.is_tiny_number(node):
                self._kept.add(node)
            return
        name, floats = name_of(node), [n for n in node.all_input_nodes if _float_dtypes(n)]
        if not _float_dtypes(node):
            return
        if name == "getitem":
            self._follow(node, floats[0])
            return
        kept = any(n in self._kept for n in floats) or self._is_upcast(node)
        exact = all(n in self._exact for n in floats)
        unfit = name in _WITH_NUMBERS and any(map(self._is_unfit, _numbers(node)))
        # A large factor makes a sentinel of a mask and large numbers of an activation.
        written = exact or name not in ("mul", "div")
        huge = any(n in self._huge for n in floats) or (
            written and any(map(self._is_too_large, _numbers(node)))
        )
        settled = all(n in self._kept | self._exact for n in floats)
        may = self._holds_float32_only(node, floats)
        if name in PRODUCTS:
            if may and not settled:
                self._in_half.add(node)
                return
        elif name in ELEMENTWISE | MOVEMENT and not (name == "div" and _divides_by_tensor(node)):
            free = not (kept or exact or unfit or huge or node in sensitive)
            if may and free:
                self._in_half.add(node)
                return
        if kept:
            self._kept.add(node)
        if exact:
            self._exact.add(node)
        if huge and name not in BOUNDED:
            self._huge.add(node)

    def _follow(self, node: Node, source: Node) -> None:
        """Picking a result changes nothing."""
        for marked in (self._kept, self._exact, self._huge, self._in_half):
            if source in marked:
                marked.add(node)

    def _is_upcast(self, node: Node) -> bool:
        """Whether the user writes `x.to(torch.float32)` where x is a float already."""
        source = tensor_value(node.args[0]) if node.args else None
        return (
            name_of(node) in _CASTS
            and source is not None
            and source.is_floating_point()
            and torch.float32 in (*node.args, *node.kwargs.values())
        )

    def _holds_float32_only(self, node: Node, floats: list[Node]) -> bool:
        """Whether all float values that go in and come out are float32."""
        return bool(floats) and all(
            dtype is torch.float32 for n in (node, *floats) for dtype in _float_dtypes(n)
        )

    def _is_unfit(self, number: float) -> bool:
        """Whether a number of the program overflows the half type or vanishes in it."""
        size = abs(number)
        return self._is_too_large(number) or 0 < size < self._limits.smallest_normal

    def _is_too_large(self, number: float) -> bool:
        return self._limits.max < abs(number) < float("inf")

    def _spare_casts(self) -> None:
        """Keep float32 what stands between float32 operators only: its casts would cancel."""
        changed = True
        while changed:
            changed = False
            for node in reversed(self._nodes):
                if node not in self._in_half or name_of(node) not in ELEMENTWISE | MOVEMENT:
                    continue
                if any(name_of(n) == "getitem" for n in node.users):
                    continue  # several results, decided with what picks them
                around = [n for n in node.all_input_nodes if _float_dtypes(n)]
                weights = [n for n in around if self.weights.holds(n)]
                if weights or any(n in self._in_half for n in (*around, *node.users)):
                    continue
                self._in_half.discard(node)
                changed = True

    # Weights

    def _convert_weights(self) -> None:
        for node in self._nodes:
            if node.op != "placeholder" or not self.weights.holds(node) or node in self._huge:
                continue
            reads_half = any(user in self._in_half for user in node.users)
            if node in self._kept or not (reads_half or self.weights.is_matrix(node)):
                continue
            self.weights.convert(node)
            node.meta["val"] = node.meta["val"].to(self._half)
            self._in_half.add(node)

    # Rewriting

    def _rewrite(self, node: Node) -> None:
        wanted = self._half if node in self._in_half else torch.float32

        def version(item: Node) -> Node:
            now = _float_dtypes(item)
            if self._half_or_float32(item) and now != {wanted}:
                return self._cast(item, wanted)
            return item

        if node in self._in_half:
            node.meta["val"] = pytree.tree_map_only(
                torch.Tensor,
                lambda v: v.to(self._half) if v.dtype is torch.float32 else v,
                node.meta["val"],
            )
        if name_of(node) == "getitem":
            return  # follows what it picks from
        node.args = torch.fx.map_arg(node.args, version)
        node.kwargs = torch.fx.map_arg(node.kwargs, version)

    def _half_or_float32(self, node: Node) -> bool:
        """Whether a node's value is one that we may cast: ours in half, or a float32 tensor."""
        value = tensor_value(node)
        if value is None:
            return False
        return node in self._in_half or value.dtype is torch.float32

    def _cast(self, node: Node, dtype: torch.dtype) -> Node:
        """`node` in another dtype; made once, after the node itself."""
        key = (node, dtype)
        if key not in self._versions:
            value = node
            with self._graph.inserting_after(self._place(node)):
                if dtype is self._half and node in self._huge:
                    value = self._clamped(node)
                else:
                    value = self._add(node, node, aten._to_copy.default, (node,), dtype)
            self._versions[key] = value
        return self._versions[key]

    def _clamped(self, node: Node) -> Node:
        """`node` in half, its finite values kept finite and its infinite ones infinite."""
        full, half = torch.float32, self._half
        low, high = -self._limits.max, self._limits.max
        value = self._add(node, node, aten.clamp.default, (node, low, high), full)
        endless = self._add(node, value, aten.isinf.default, (node,), torch.bool)
        chosen = self._add(node, endless, aten.where.self, (endless, node, value), full)
        return self._add(node, chosen, aten._to_copy.default, (chosen,), half)

    def _add(
        self, origin: Node, after: Node, target: Any, args: tuple[Any, ...], dtype: torch.dtype
    ) -> Node:
        with self._graph.inserting_after(self._place(after)):
            kwargs = {"dtype": dtype} if target is aten._to_copy.default else {}
            made: Node = self._graph.call_function(target, args, kwargs)
        source = origin if origin.op != "placeholder" else next(iter(origin.users))
        made.meta = {key: item for key, item in source.meta.items() if key != "val"}
        made.meta["val"] = origin.meta["val"].to(dtype)
        return made

    def _place(self, node: Node) -> Node:
        """The node after which a call may stand that reads `node`."""
        return self._last_placeholder() if node.op == "placeholder" else node

    def _last_placeholder(self) -> Node:
        last: Node = next(n for n in reversed(self._nodes) if n.op == "placeholder")
        return last

    def _cast_outputs(self) -> dict[str, str]:
        """Give the outputs their float32 back; new names by old ones."""
        output = self._graph.output_node()
        renamed: dict[str, str] = {}

        def restored(node: Node) -> Node:
            if node not in self._in_half:
                return node
            made = self._cast(node, torch.float32)
            renamed[node.name] = made.name
            return made

        output.args = torch.fx.map_arg(output.args, restored)
        for spec in self._program.graph_signature.output_specs:
            name = getattr(spec.arg, "name", None)
            if name in renamed:
                spec.arg = type(spec.arg)(name=renamed[name])
        return renamed


def _float_dtypes(node: Node) -> set[torch.dtype]:
    """Dtypes of the float and complex tensors among a node's results."""
    return {
        value.dtype
        for value in pytree.tree_leaves(node.meta.get("val"))
        if isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())
    }


def _numbers(node: Node) -> Iterator[float]:
    """Python numbers among an operator's arguments."""
    for item in pytree.tree_leaves((node.args, node.kwargs)):
        if isinstance(item, numbers.Real) and not isinstance(item, bool):
            yield float(item)


def _divides_by_tensor(node: Node) -> bool:
    return isinstance(node.args[1], Node) and tensor_value(node.args[1]) is not None


def _is_sensitive_to(user: Node, node: Node) -> bool:
    """Whether a last digit of `node` matters more to `user` than a last digit of its result."""
    name = name_of(user)
    if name in SENSITIVE:
        return True
    if name == "div":
        return user.args[1] is node
    if name in REDUCTIONS:
        return name_of(node) == "mul"
    if name == "grid_sampler" or name == "grid_sampler_2d" or name == "grid_sampler_3d":
        return user.args[1] is node
    value = tensor_value(user)
    return name in _CASTS and value is not None and not value.is_floating_point()
