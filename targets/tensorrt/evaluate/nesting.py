"""Finds which layers of the flat network are in a loop's body or in a branch.

TensorRT marks only the boundaries of loops and conditionals (`Layer.group`); which layers are
inside follows from what they depend on and what depends on them:

- A layer is in the body of a loop if it depends on the loop's recurrences or iterators. What a body
  uses and does not depend on them is computed once, outside.
- A layer is in a branch of a conditional if only that branch needs it. So the branch that is
  not taken costs nothing, and nothing in it can fail: the "lazy evaluation" of IIfConditional.
- A layer that no output needs is left out. Assertions are outputs in this sense.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from ....errors import ConversionError
from .blocks import Block, Conditional, Loop, Step, block_of, given, makers_of
from .call import refuse
from .network import Layer, Network

__all__ = ["blocks_of"]


def blocks_of(network: Network) -> Block:
    """The network's outermost block.

    Raises:
        ConversionError: the network contradicts itself: a cycle, or a tensor used out of its loop.
        UnverifiableError: an assertion inside a loop or a conditional.
    """
    return _Builder(network).build()


@dataclass(eq=False)
class _Region:
    """Where a step stands; `loop` is set on a loop's body."""

    parent: _Region | None = None
    loop: str | None = None
    steps: list[Step] = field(default_factory=list)

    def line(self) -> Iterator[_Region]:
        """The region and those around it."""
        region: _Region | None = self
        while region is not None:
            yield region
            region = region.parent


def _common(first: _Region | None, second: _Region) -> _Region:
    """The innermost region around both."""
    if first is None:
        return second
    around = set(map(id, first.line()))
    return next(region for region in second.line() if id(region) in around)


_GROUPED = {"TRIP_LIMIT", "LOOP_OUTPUT", "CONDITION", "CONDITIONAL_OUTPUT"}
_SOURCES = {"RECURRENCE", "ITERATOR"}

_Node = int | str
"""A layer by its index, or what the boundary layers of a group do, by the group's name."""


class _Builder:
    def __init__(self, network: Network) -> None:
        self.network = network
        self.layers = network.layers
        self.makers = {t.name: i for i, layer in enumerate(self.layers) for t in layer.outputs}
        self.groups: dict[str, list[int]] = {}
        for index, layer in enumerate(self.layers):
            if layer.group is not None:
                self.groups.setdefault(layer.group, []).append(index)
        self.live = self._reached()
        self.root = _Region()
        self.bodies: dict[str, _Region] = {}
        self.branches: dict[str, tuple[_Region, _Region]] = {}

    def build(self) -> Block:
        order = self._ordered()
        loops = self._loops(order)
        self._require_plain_assertions(order, loops)
        regions = self._regions(order, loops)
        ends = {tensor.name for tensor in self.network.outputs}
        for node in order:
            if isinstance(node, int):
                layer = self.layers[node]
                if layer.kind not in _SOURCES:
                    regions[node].steps.append(layer)
            else:
                regions[node].steps.append(self._step_of(node))
        block = block_of(self.root.steps, ends)
        # Outputs of the network are never dropped.
        return Block(block.steps, block.frees, ())

    def _reached(self) -> set[int]:
        """Layers that an output or an assertion needs."""
        live = {i for i, layer in enumerate(self.layers) if layer.kind == "ASSERTION"}
        stack = [i for i in map(self._maker, self._outputs()) if i is not None] + list(live)
        live.update(stack)
        while stack:
            layer = self.layers[stack.pop()]
            wanted = [i for i in map(self._maker, given(layer.inputs)) if i is not None]
            if layer.group is not None:
                # A boundary runs with what limits its loop or tells its branch.
                wanted += [
                    i
                    for i in self.groups[layer.group]
                    if self.layers[i].kind in ("TRIP_LIMIT", "CONDITION")
                ]
            new = set(wanted) - live
            live |= new
            stack.extend(new)
        return live

    def _outputs(self) -> list[str]:
        return [tensor.name for tensor in self.network.outputs]

    def _maker(self, name: str) -> int | None:
        return self.makers.get(name)

    def _node(self, name: str) -> _Node | None:
        """What makes a tensor; None for an input of the network."""
        index = self.makers.get(name)
        if index is None:
            return None
        layer = self.layers[index]
        return layer.group if layer.group is not None and layer.kind in _GROUPED else index

    def _members(self, group: str, *kinds: str) -> tuple[Layer, ...]:
        members = (i for i in self.groups[group] if i in self.live)
        return tuple(self.layers[i] for i in members if self.layers[i].kind in kinds)

    def _around(self, node: _Node) -> list[str]:
        """Tensors that a node reads where it stands; those of a source, around its loop."""
        if isinstance(node, int):
            layer = self.layers[node]
            return given(layer.inputs[:1] if layer.kind in _SOURCES else layer.inputs)
        names = [layer.inputs[0] for layer in self._members(node, "CONDITION", *_SOURCES)]
        names += [n for limit in self._limits(node, "COUNT") for n in limit.inputs]
        names += [n for layer in self._members(node, "LOOP_OUTPUT") for n in layer.inputs[1:]]
        return given(names)

    def _inside(self, group: str) -> list[str]:
        """Tensors of a loop's body that the loop reads."""
        names = [n for limit in self._limits(group, "WHILE") for n in limit.inputs]
        names += [layer.inputs[0] for layer in self._members(group, "LOOP_OUTPUT")]
        names += [n for layer in self._members(group, "RECURRENCE") for n in layer.inputs[1:]]
        return given(names)

    def _limits(self, group: str, kind: str) -> list[Layer]:
        """Limits that read their tensor where `kind` does; an unknown kind reads around the loop.

        What the kind is comes to be checked when the loop runs.
        """
        limits = self._members(group, "TRIP_LIMIT")
        return [x for x in limits if (x.attributes.get("kind") == "WHILE") == (kind == "WHILE")]

    def _branch(self, group: str, index: int) -> list[str]:
        outputs = self._members(group, "CONDITIONAL_OUTPUT")
        return given(layer.inputs[index] for layer in outputs)

    def _needs(self, node: _Node) -> list[str]:
        found = self._around(node)
        if isinstance(node, str):
            found = found + self._inside(node) + self._branch(node, 0) + self._branch(node, 1)
        return found

    def _ordered(self) -> list[_Node]:
        """Live nodes, each behind what it needs; depth first, so that values live shortly.

        The second input of a recurrence is the only edge that goes back, and belongs to the loop.
        """
        done: dict[_Node, bool] = {}
        order: list[_Node] = []
        roots = [node for node in map(self._node, self._outputs()) if node is not None]
        roots += [i for i in sorted(self.live) if self.layers[i].kind == "ASSERTION"]
        stack: list[tuple[_Node, Iterator[str]]] = []
        for root in roots:
            if root not in done:
                done[root] = False
                stack.append((root, iter(self._needs(root))))
            while stack:
                node, names = stack[-1]
                for name in names:
                    other = self._node(name)
                    if other is None:
                        continue
                    if other not in done:
                        done[other] = False
                        stack.append((other, iter(self._needs(other))))
                        break
                    if not done[other]:
                        raise self._contradiction(other, "its result depends on itself")
                else:
                    done[node] = True
                    order.append(node)
                    stack.pop()
        return order

    def _loops(self, order: list[_Node]) -> dict[_Node, frozenset[str]]:
        """The loops that each node depends on."""
        found: dict[_Node, frozenset[str]] = {}
        for node in order:
            makers = (self._node(name) for name in self._needs(node))
            loops = frozenset[str]().union(*(found[made] for made in makers if made is not None))
            if isinstance(node, int):
                layer = self.layers[node]
                if layer.kind in _SOURCES and layer.group is not None:
                    loops |= {layer.group}
            else:
                loops -= {node}
            found[node] = loops
        return found

    def _regions(
        self, order: list[_Node], loops: dict[_Node, frozenset[str]]
    ) -> dict[_Node, _Region]:
        """Where each node stands: innermost around its readers, and out of loops if it can be."""
        found: dict[_Node, _Region] = {}
        readers: dict[_Node, _Region] = {}

        def read(names: Iterable[str], region: _Region) -> None:
            for name in names:
                made = self._node(name)
                if made is not None:
                    readers[made] = _common(readers.get(made), region)

        read(self._outputs(), self.root)
        for node in reversed(order):
            region = readers.get(node, self.root)
            while region.loop is not None and region.loop not in loops[node]:
                region = region.parent or self.root
            if not loops[node] <= {around.loop for around in region.line()}:
                raise self._contradiction(node, "its result is used outside its loop")
            found[node] = region
            if isinstance(node, str):
                self._open(node, region)
                read(self._around(node), region)
                read(self._inside(node), self.bodies.get(node, region))
                for index, branch in enumerate(self.branches.get(node, ())):
                    read(self._branch(node, index), branch)
                continue
            layer = self.layers[node]
            if layer.kind in _SOURCES and layer.group is not None:
                region = self.bodies[layer.group].parent or self.root
            read(self._around(node), region)
        return found

    def _open(self, group: str, region: _Region) -> None:
        if group.startswith("loop "):
            self.bodies[group] = _Region(region, group)
        else:
            self.branches[group] = (_Region(region), _Region(region))

    def _require_plain_assertions(
        self, order: list[_Node], loops: dict[_Node, frozenset[str]]
    ) -> None:
        """An assertion has no reader that would tell which branch it is in."""
        inside: set[_Node] = set()
        for node in order:
            layer = self.layers[node] if isinstance(node, int) else None
            if any(self._node(name) in inside for name in self._needs(node)) or (
                layer is not None and layer.kind == "CONDITIONAL_INPUT"
            ):
                inside.add(node)
            if layer is not None and layer.kind == "ASSERTION" and (node in inside or loops[node]):
                refuse(layer, "an assertion on what a loop or a conditional reads")

    def _step_of(self, group: str) -> Step:
        if group in self.branches:
            return self._conditional(group)
        limits = self._members(group, "TRIP_LIMIT")
        early = {n for limit in self._limits(group, "WHILE") for n in given(limit.inputs)}
        steps = self.bodies[group].steps
        wanted = makers_of(steps, early)
        head = [step for i, step in enumerate(steps) if i in wanted]
        rest = [step for i, step in enumerate(steps) if i not in wanted]
        made = [t.name for layer in self._members(group, *_SOURCES) for t in layer.outputs]
        body = block_of(head + rest, set(self._inside(group)), made)
        return Loop(
            limits=limits,
            recurrences=self._members(group, "RECURRENCE"),
            iterators=self._members(group, "ITERATOR"),
            outputs=self._members(group, "LOOP_OUTPUT"),
            body=body,
            head=len(head),
        )

    def _conditional(self, group: str) -> Conditional:
        conditions = self._members(group, "CONDITION")
        outputs = self._members(group, "CONDITIONAL_OUTPUT")
        if len(conditions) != 1:
            raise self._contradiction(group, f"it has {len(conditions)} conditions")
        taken, other = (
            block_of(region.steps, set(self._branch(group, index)))
            for index, region in enumerate(self.branches[group])
        )
        return Conditional(conditions[0], outputs, taken, other)

    def _contradiction(self, node: _Node, what: str) -> ConversionError:
        layer = self.layers[node if isinstance(node, int) else self.groups[node][0]]
        return ConversionError(
            f"the network contradicts itself in {layer.kind} ({layer.name}): {what}",
            hint="please report this",
        )
