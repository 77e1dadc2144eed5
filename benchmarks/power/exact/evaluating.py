"""Evaluates the graph of an ONNX file, node by node, every float widened to float64."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import onnx
import torch
from numpy.typing import NDArray
from onnx import helper, numpy_helper

from .layers import LAYERS
from .simple import SIMPLE

__all__ = ["Model", "Values"]

Values = Mapping[str, torch.Tensor]

_OPERATORS = {**SIMPLE, **LAYERS}


class Model:
    """A graph that can be evaluated, also in the parts in which it differs from another."""

    def __init__(self, data: bytes) -> None:
        graph = onnx.load_from_string(data).graph
        self.outputs = [value.name for value in graph.output]
        self._nodes = [(node, _signature(node), _attributes(node)) for node in graph.node]
        self._initial = {
            tensor.name: widened(numpy_helper.to_array(tensor)) for tensor in graph.initializer
        }
        self._known = {signature for _, signature, _ in self._nodes}

    def run(
        self,
        inputs: Mapping[str, NDArray[Any]],
        like: Model | None = None,
        values: Values | None = None,
    ) -> dict[str, torch.Tensor]:
        """Every value of the graph.

        Args:
            inputs: by name.
            like: a model that this one was made from by edits that gave new constants new names.
            values: what `like.run` gave on the same inputs; what the edits leave alone is taken
                from there.
        """
        found = {name: widened(value) for name, value in inputs.items()}
        found.update(self._initial)
        clean = set(inputs)
        if like is not None:
            clean |= self._initial.keys() & like._initial.keys()
        for node, signature, attributes in self._nodes:
            same = like is not None and signature in like._known
            if same and values is not None and all(i in clean for i in node.input if i):
                found.update({name: values[name] for name in node.output if name})
                clean |= set(node.output)
                continue
            given = [found[name] if name else None for name in node.input]
            made = _OPERATORS[node.op_type](attributes, *given)
            made = made if isinstance(made, (tuple, list)) else (made,)
            for name, value in zip(node.output, made, strict=False):
                found[name] = value
                if values is not None and name in values and torch.equal(values[name], value):
                    clean.add(name)  # the change did not reach here
                else:
                    clean.discard(name)
        return found


def widened(array: NDArray[Any]) -> torch.Tensor:
    """A tensor of the array's values, float64 if they are floats of any size."""
    if array.dtype.kind not in "iub":
        array = array.astype(np.float64)
    return torch.from_numpy(np.array(array, copy=True, order="C"))


def _signature(node: onnx.NodeProto) -> bytes:
    """What a node computes, from what and under which name; its own name does not matter."""
    plain = onnx.NodeProto()
    plain.CopyFrom(node)
    plain.ClearField("name")
    plain.ClearField("doc_string")
    plain.ClearField("metadata_props")
    data: bytes = plain.SerializeToString(deterministic=True)
    return data


def _attributes(node: onnx.NodeProto) -> dict[str, Any]:
    found: dict[str, Any] = {"outputs": len(node.output)}
    for attribute in node.attribute:
        value = helper.get_attribute_value(attribute)
        if isinstance(value, onnx.TensorProto):
            value = widened(numpy_helper.to_array(value))
        found[attribute.name] = value.decode() if isinstance(value, bytes) else value
    return found
