"""Computes a network, layer by layer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch

from ....errors import ConversionError, UnverifiableError
from .blocks import Block, Conditional, Loop, Step
from .call import Call, refuse
from .nesting import blocks_of
from .network import Layer, Network, Tensor
from .table import OPERATORS

__all__ = ["compute", "run_network"]

_CONTRADICTIONS = (
    *(RuntimeError, IndexError, KeyError, ValueError, TypeError, AttributeError),
    *(ArithmeticError, MemoryError),
)

_LARGEST_RUN = 1_000_000
"""Layers that a run computes beyond those of the network itself before it is given up: minutes."""


def run_network(network: Network, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Outputs of the network by name.

    Args:
        network: from `read_network`.
        inputs: a tensor of the declared dtype and shape per input.

    Raises:
        UnverifiableError: a layer, or an edge of one, that the evaluator does not know; a loop
            that does not end within a bound.
        ConversionError: the network contradicts itself or its inputs.
    """
    names = [tensor.name for tensor in network.outputs]
    return compute(network, blocks_of(network), inputs, names)


@torch.no_grad()
def compute(
    network: Network, block: Block, inputs: Mapping[str, torch.Tensor], names: Iterable[str]
) -> dict[str, torch.Tensor]:
    """The tensors of `names` after a block of `network`; `inputs` are those that it needs.

    Raises:
        As `run_network` does.
    """
    run = _Run(len(network.layers) + _LARGEST_RUN)
    for tensor in network.inputs:
        if tensor.name in inputs:
            _require_fit(inputs[tensor.name], tensor, f"the input {tensor.name}")
    run.values.update(inputs)
    run.block(block)
    # Copies: an output may be a view of weights, whose memory goes with the network.
    return {name: run.values[name].clone() for name in names}


class _Run:
    """`values` holds every tensor that a later step reads, by its name."""

    def __init__(self, left: int) -> None:
        self.values: dict[str, torch.Tensor] = {}
        self.left = left

    def block(self, block: Block, start: int = 0, stop: int | None = None) -> None:
        for index in range(start, len(block.steps) if stop is None else stop):
            self._step(block.steps[index])
            for name in block.frees[index]:
                del self.values[name]

    def _step(self, step: Step) -> None:
        if isinstance(step, Loop):
            self._loop(step)
        elif isinstance(step, Conditional):
            self._conditional(step)
        else:
            self._layer(step)

    def _layer(self, layer: Layer) -> None:
        self._spend(layer)
        operator = OPERATORS.get(layer.kind)
        if operator is None:
            refuse(layer, "the layer type is not implemented")
        call = Call(
            layer, [None if name is None else self._value(layer, name) for name in layer.inputs]
        )
        try:
            result = operator(call)
        except (ConversionError, UnverifiableError):
            raise
        except _CONTRADICTIONS as error:
            raise call.contradiction(f"torch refuses its arguments ({error})") from error
        _require_all_read(call)
        results = result if isinstance(result, tuple) else (result,)
        if len(results) != len(layer.outputs):
            raise call.contradiction(f"it has {len(layer.outputs)} outputs, not {len(results)}")
        for tensor, value in zip(layer.outputs, results, strict=True):
            self._set(layer, tensor, value)

    def _conditional(self, step: Conditional) -> None:
        _require_all_read(Call(step.condition, ()))
        condition = self._input(step.condition, 0)
        if condition.dim() != 0:
            refuse(step.condition, f"a condition of shape {list(condition.shape)}")
        index, branch = (0, step.taken) if bool(condition) else (1, step.other)
        self.block(branch)
        for layer in step.outputs:
            _require_all_read(Call(layer, ()))
            self._set(layer, layer.outputs[0], self._input(layer, index))
        self._drop(branch)

    def _loop(self, loop: Loop) -> None:
        count, condition = self._limits(loop)
        iterators = [_iterator(layer, count) for layer in loop.iterators]
        outputs = [_output(layer, loop) for layer in loop.outputs]
        lists: list[list[torch.Tensor]] = [[] for _ in outputs]
        for layer in loop.recurrences:
            _require_all_read(Call(layer, ()))
        state = [self._input(layer, 0) for layer in loop.recurrences]
        trips = 0
        while count is None or trips < count:
            self._spend(loop.first)
            for layer, value in zip(loop.recurrences, state, strict=True):
                self._set(layer, layer.outputs[0], value)
            self.block(loop.body, 0, loop.head)
            if condition is not None and not bool(self._scalar(condition)):
                for names in loop.body.frees[loop.head :]:
                    for name in names:
                        self.values.pop(name, None)
                self._drop(loop.body)
                break
            for layer, (axis, first, step) in zip(loop.iterators, iterators, strict=True):
                value = self._at(layer, axis, first + step * trips)
                self._set(layer, layer.outputs[0], value)
            self.block(loop.body, loop.head)
            for layer, (kind, _), found in zip(loop.outputs, outputs, lists, strict=True):
                if kind != "LAST_VALUE":
                    found.append(self._input(layer, 0))
            state = [
                self._next(layer, value)
                for layer, value in zip(loop.recurrences, state, strict=True)
            ]
            self._drop(loop.body)
            trips += 1
        last = {
            layer.outputs[0].name: value
            for layer, value in zip(loop.recurrences, state, strict=True)
        }
        for layer, (kind, axis), found in zip(loop.outputs, outputs, lists, strict=True):
            value = (
                last[layer.inputs[0] or ""]
                if kind == "LAST_VALUE"
                else self._concatenated(layer, found[::-1] if kind == "REVERSE" else found, axis)
            )
            self._set(layer, layer.outputs[0], value)

    def _limits(self, loop: Loop) -> tuple[int | None, Layer | None]:
        """The count, and the layer whose input tells whether another trip is made."""
        found: dict[str, Layer] = {}
        for layer in loop.limits:
            call = Call(layer, ())
            kind = call.choice("kind", {"COUNT": "COUNT", "WHILE": "WHILE"})
            _require_all_read(call)
            if kind in found:
                refuse(layer, f"two limits of the kind {kind}")
            found[kind] = layer
        if not found:
            refuse(loop.first, "a loop without a limit")
        count = int(self._scalar(found["COUNT"])) if "COUNT" in found else None
        if count is not None and count < 0:
            refuse(found["COUNT"], f"a loop of {count} trips")
        return count, found.get("WHILE")

    def _at(self, layer: Layer, axis: int, index: int) -> torch.Tensor:
        """IIteratorLayer: a gather of one index. One that is out of bounds is invalid."""
        value = self._input(layer, 0)
        if not 0 <= axis < value.dim() or not 0 <= index < value.shape[axis]:
            refuse(layer, f"iteration {index} along axis {axis} of {list(value.shape)}")
        return value.select(axis, index)

    def _next(self, layer: Layer, value: torch.Tensor) -> torch.Tensor:
        following = self._input(layer, 1)
        if following.shape != value.shape:
            refuse(layer, f"it goes from shape {list(value.shape)} to {list(following.shape)}")
        return following

    def _concatenated(self, layer: Layer, found: list[torch.Tensor], axis: int) -> torch.Tensor:
        """Values of all trips along a new axis, as long as the layer's second input says.

        The guide to loops: elements beyond the trips are arbitrary.
        """
        length = int(self._scalar(layer, 1))
        if length != len(found):
            refuse(layer, f"{len(found)} trips, and an output for {length}")
        if found:
            if not 0 <= axis <= found[0].dim():
                refuse(layer, f"axis {axis} of a result of rank {found[0].dim() + 1}")
            return torch.stack(found, axis)
        declared = layer.outputs[0]
        sizes = [0 if i == axis else size for i, size in enumerate(declared.shape or (-1,))]
        if min(sizes) < 0:
            refuse(layer, "no trip is made, so that nothing tells the result's shape")
        return torch.empty(sizes, dtype=getattr(torch, declared.dtype))

    def _value(self, layer: Layer, name: str) -> torch.Tensor:
        if name not in self.values:
            raise Call(layer, ()).contradiction(f"nothing makes its input {name}")
        return self.values[name]

    def _input(self, layer: Layer, index: int) -> torch.Tensor:
        name = layer.inputs[index] if index < len(layer.inputs) else None
        if name is None:
            raise Call(layer, ()).contradiction(f"input {index} is missing")
        return self._value(layer, name)

    def _scalar(self, layer: Layer, index: int = 0) -> torch.Tensor:
        value = self._input(layer, index)
        if value.dim() != 0:
            refuse(layer, f"a scalar of shape {list(value.shape)}")
        return value

    def _set(self, layer: Layer, tensor: Tensor, value: torch.Tensor) -> None:
        _require_fit(value, tensor, f"{layer.kind} ({layer.name})")
        self.values[tensor.name] = value

    def _drop(self, block: Block) -> None:
        for name in block.leftovers:
            self.values.pop(name, None)

    def _spend(self, layer: Layer) -> None:
        self.left -= 1
        if self.left < 0:
            refuse(layer, f"its loop has not ended after {_LARGEST_RUN} layers")


def _iterator(layer: Layer, count: int | None) -> tuple[int, int, int]:
    """Axis, first index and step. A reverse iterator counts down from M - 1, M being COUNT's."""
    call = Call(layer, ())
    axis, reverse = call.integer("axis"), call.flag("reverse")
    _require_all_read(call)
    if not reverse:
        return axis, 0, 1
    if count is None:
        refuse(layer, "it runs backwards in a loop without a count")
    return axis, count - 1, -1


def _output(layer: Layer, loop: Loop) -> tuple[str, int]:
    """Kind and axis. The guide to loops: a last value is that of a recurrence's output."""
    call = Call(layer, ())
    kind = call.choice("kind", {name: name for name in ("LAST_VALUE", "CONCATENATE", "REVERSE")})
    axis = call.integer("axis")
    _require_all_read(call)
    recurrent = {each.outputs[0].name for each in loop.recurrences}
    if kind == "LAST_VALUE" and layer.inputs[0] not in recurrent:
        refuse(layer, "the last value of what is not a recurrence")
    return kind, axis


def _require_all_read(call: Call) -> None:
    if call.unread:
        call.refuse(f"the attribute {call.unread[0]} is not known")


def _require_fit(value: torch.Tensor, declared: Tensor, what: str) -> None:
    dtype = str(value.dtype).removeprefix("torch.")
    shape = declared.shape
    fits = shape is None or (
        len(shape) == value.dim()
        and all(want in (-1, size) for want, size in zip(shape, value.shape, strict=True))
    )
    if dtype != declared.dtype or not fits:
        raise ConversionError(
            f"{what} comes to {dtype}{list(value.shape)}, and the network declares "
            f"{declared.dtype}{'' if shape is None else list(shape)}",
            hint="please report this",
        )
