"""Values inside a network, and parts of it that are computed by themselves."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import torch

from .blocks import Block, Step, block_of, made_by, makers_of, read_by
from .interpreter import compute
from .nesting import blocks_of
from .network import Layer, Network, Tensor

__all__ = ["computed", "run_part", "watch_network"]


def computed(network: Network) -> Iterator[tuple[Layer, Tensor, tuple[str, ...]]]:
    """What the network computes from its inputs, and from which values directly.

    In the order of computation. What loops and branches compute belongs to them.
    """
    depending = {tensor.name for tensor in network.inputs}
    for step in blocks_of(network).steps:
        read = depending & read_by(step)
        if not read:
            continue
        for layer in (step,) if isinstance(step, Layer) else step.outputs:
            for tensor in layer.outputs:
                depending.add(tensor.name)
                # The order of a layer's own inputs is known, that of a loop's is none.
                yield layer, tensor, _ordered(step, read)


def _ordered(step: Step, read: Collection[str]) -> tuple[str, ...]:
    if isinstance(step, Layer):
        return tuple(dict.fromkeys(name for name in step.inputs if name in read and name))
    return tuple(sorted(read))


def watch_network(
    network: Network, inputs: Mapping[str, torch.Tensor], names: Sequence[str]
) -> dict[str, torch.Tensor]:
    """Outputs of the network, and the values of `names`; see `run_network`."""
    outputs = [tensor.name for tensor in network.outputs]
    wanted = [*outputs, *(name for name in names if name not in outputs)]
    whole = blocks_of(network).steps
    return compute(network, _block(whole, wanted, inputs), inputs, wanted)


def run_part(
    network: Network, given: Mapping[str, torch.Tensor], names: Sequence[str]
) -> dict[str, torch.Tensor]:
    """The values of `names` from those of `given` alone."""
    steps = blocks_of(network).steps
    needed = makers_of(steps, set(names) - set(given), given)
    kept = [step for index, step in enumerate(steps) if index in needed]
    return compute(network, _block(kept, names, given), given, names)


def _block(steps: Sequence[Step], ends: Sequence[str], given: Collection[str]) -> Block:
    made = {name for step in steps for name in made_by(step)}
    return block_of(list(steps), set(ends), [name for name in given if name not in made])
