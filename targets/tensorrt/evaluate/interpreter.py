"""Computes a network, layer by layer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ....errors import ConversionError, UnverifiableError
from .call import Call, refuse
from .network import Layer, Network, Tensor
from .table import OPERATORS

__all__ = ["run_network"]

_CONTRADICTIONS = (
    *(RuntimeError, IndexError, KeyError, ValueError, TypeError, AttributeError),
    *(ArithmeticError, MemoryError),
)


@torch.no_grad()
def run_network(network: Network, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Outputs of the network by name.

    Args:
        network: from `read_network`.
        inputs: a tensor of the declared dtype and shape per input.

    Raises:
        UnverifiableError: a layer, or an edge of one, that the evaluator does not know.
        ConversionError: the network contradicts itself or its inputs.
    """
    values: dict[str, Any] = {}
    for tensor in network.inputs:
        _require_fit(inputs[tensor.name], tensor, f"the input {tensor.name}")
        values[tensor.name] = inputs[tensor.name]
    for layer in _ordered(network):
        _compute(layer, values)
    return {tensor.name: values[tensor.name] for tensor in network.outputs}


def _ordered(network: Network) -> list[Layer]:
    """Layers in an order in which they can be computed."""
    from graphlib import TopologicalSorter

    makers = {t.name: i for i, layer in enumerate(network.layers) for t in layer.outputs}
    sorter = TopologicalSorter(
        {
            i: [makers[name] for name in layer.inputs if name is not None and name in makers]
            for i, layer in enumerate(network.layers)
        }
    )
    return [network.layers[i] for i in sorter.static_order()]


def _compute(layer: Layer, values: dict[str, Any]) -> None:
    operator = OPERATORS.get(layer.kind)
    if operator is None:
        refuse(layer, "the layer type is not implemented")
    call = Call(layer, [None if name is None else values[name] for name in layer.inputs])
    try:
        result = operator(call)
    except (ConversionError, UnverifiableError):
        raise
    except _CONTRADICTIONS as error:
        raise call.contradiction(f"torch refuses its arguments ({error})") from error
    if call.unread:
        call.refuse(f"the attribute {call.unread[0]} is not known")
    results = result if isinstance(result, tuple) else (result,)
    if len(results) != len(layer.outputs):
        raise call.contradiction(f"it has {len(layer.outputs)} outputs, not {len(results)}")
    for tensor, value in zip(layer.outputs, results, strict=True):
        _require_fit(value, tensor, f"{layer.kind} ({layer.name})")
        values[tensor.name] = value


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
