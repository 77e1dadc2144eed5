"""Values inside a function of an ML Program, and parts of it that are run by themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace

from .program import Function, Name, Operation, Port

__all__ = ["computed", "names_read", "part", "sources", "with_outputs"]


def computed(function: Function) -> Iterator[tuple[Operation, Port]]:
    """What the outermost block computes from its inputs, in order; constants are left out."""
    depending = {port.name for port in function.inputs}
    for operation in function.block.operations:
        if depending.isdisjoint(names_read(operation)):
            continue
        for port in operation.outputs:
            depending.add(port.name)
            yield operation, port


def sources(function: Function, operation: Operation) -> tuple[str, ...]:
    """Inputs of `function` and values that depend on them, which an operation reads."""
    known = {port.name for port in function.inputs} | {p.name for _, p in computed(function)}
    return tuple(dict.fromkeys(name for name in names_read(operation) if name in known))


def with_outputs(function: Function, names: Sequence[str]) -> Function:
    """`function` with more outputs, behind its own."""
    own = function.block.outputs
    more = tuple(name for name in names if name not in own)
    return replace(function, block=replace(function.block, outputs=(*own, *more)))


def part(function: Function, given: Collection[str], names: Sequence[str]) -> Function:
    """What computes `names` from `given`, which become its inputs."""
    ports = {port.name: port for port in function.inputs}
    ports |= {port.name: port for o in function.block.operations for port in o.outputs}
    wanted = {name for name in names if name not in given}
    kept = []
    for operation in reversed(function.block.operations):
        made = {port.name for port in operation.outputs}
        if made & wanted:
            kept.append(operation)
            wanted |= {name for name in names_read(operation) if name not in given}
    inputs = tuple(ports[name] for name in given)
    block = replace(function.block, operations=tuple(reversed(kept)), outputs=tuple(names))
    return replace(function, inputs=inputs, block=block)


def names_read(operation: Operation) -> Iterator[str]:
    """What an operation reads, its blocks included."""
    for items in operation.inputs.values():
        yield from (item.text for item in items if isinstance(item, Name))
    for block in operation.blocks:
        yield from block.outputs
        for inner in block.operations:
            yield from names_read(inner)
