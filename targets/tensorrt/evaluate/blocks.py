"""The network as nested blocks: what runs once, in a loop's body, or in a branch."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from .network import Layer

__all__ = [
    "Block",
    "Conditional",
    "Loop",
    "Step",
    "block_of",
    "given",
    "made_by",
    "makers_of",
    "read_by",
]


@dataclass(frozen=True)
class Block:
    """Steps in an order in which they can be computed.

    frees: for each step, tensors that no later one needs.
    leftovers: tensors made in the block that live until what it ends with has been read.
    """

    steps: tuple[Step, ...]
    frees: tuple[tuple[str, ...], ...]
    leftovers: tuple[str, ...]


@dataclass(frozen=True)
class Conditional:
    """`outputs` take their first input from `taken`, or their second from `other`."""

    condition: Layer
    outputs: tuple[Layer, ...]
    taken: Block
    other: Block


@dataclass(frozen=True)
class Loop:
    """The first `head` steps of the body are what the WHILE limit needs before each trip."""

    limits: tuple[Layer, ...]
    recurrences: tuple[Layer, ...]
    iterators: tuple[Layer, ...]
    outputs: tuple[Layer, ...]
    body: Block
    head: int

    @property
    def first(self) -> Layer:
        """A layer to name the loop by."""
        return (*self.outputs, *self.recurrences, *self.limits)[0]


Step = Layer | Conditional | Loop


def made_by(step: Step) -> set[str]:
    """Tensors that a step makes, those inside it left out."""
    layers = (step,) if isinstance(step, Layer) else step.outputs
    return {tensor.name for layer in layers for tensor in layer.outputs}


def read_by(step: Step) -> set[str]:
    """Tensors that a step reads, those made inside it left out."""
    if isinstance(step, Layer):
        return set(given(step.inputs))
    if isinstance(step, Conditional):
        layers: tuple[Layer, ...] = (step.condition, *step.outputs)
        inner: tuple[Block, ...] = (step.taken, step.other)
    else:
        layers = (*step.limits, *step.recurrences, *step.iterators, *step.outputs)
        inner = (step.body,)
    read = {name for layer in layers for name in given(layer.inputs)}
    made: set[str] = set()
    if isinstance(step, Loop):
        made |= {t.name for layer in (*step.recurrences, *step.iterators) for t in layer.outputs}
    for block in inner:
        for each in block.steps:
            read |= read_by(each)
            made |= made_by(each)
    return read - made


def makers_of(steps: Sequence[Step], names: set[str], known: Collection[str] = ()) -> set[int]:
    """Indices of the steps that make `names`, and of those before that these need.

    What is in `known` needs no step.
    """
    wanted = set(names)
    found: set[int] = set()
    for index in reversed(range(len(steps))):
        if made_by(steps[index]) & wanted:
            found.add(index)
            wanted |= read_by(steps[index]).difference(known)
    return found


def block_of(steps: list[Step], ends: set[str], standing: Iterable[str] = ()) -> Block:
    """A block of steps.

    ends: tensors that are read when its last step has been computed.
    standing: tensors that are in it before its first step.
    """
    made = set(standing)
    last: dict[str, int] = {}
    for index, step in enumerate(steps):
        for name in made_by(step):
            made.add(name)
            last[name] = index
        for name in read_by(step):
            if name in made:
                last[name] = index
    frees: list[list[str]] = [[] for _ in steps]
    for name, index in last.items():
        if name not in ends:
            frees[index].append(name)
    leftovers = sorted((made - set(last)) | (made & ends))
    return Block(tuple(steps), tuple(map(tuple, frees)), tuple(leftovers))


def given(names: Iterable[str | None]) -> list[str]:
    """Names of the inputs that are set."""
    return [name for name in names if name is not None]
