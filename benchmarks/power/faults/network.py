"""A written ONNX file, opened for editing with the onnx library alone."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import helper, numpy_helper

__all__ = ["GRADED", "KINDS", "Fault", "Kind", "Network", "Place", "inject", "kind"]


@dataclass(frozen=True)
class Place:
    """Where a fault goes: a node by its index, and one of its inputs or outputs."""

    node: int
    slot: int = 0


@dataclass(frozen=True)
class Fault:
    """A fault in a file: its kind, the node that is wrong, what was done, and the bytes."""

    kind: str
    node_name: str
    operator: str
    node_outputs: tuple[str, ...]
    description: str
    data: bytes


class Network:
    """The graph of a file, and what edits need to know of it."""

    def __init__(self, data: bytes) -> None:
        self.model = onnx.load_from_string(data)
        self.graph = self.model.graph
        self.nodes = list(self.graph.node)
        self.initial = {t.name: t for t in self.graph.initializer}
        self.initial.update(
            (n.output[0], a.t)
            for n in self.nodes
            if n.op_type == "Constant"
            for a in n.attribute
            if a.name == "value"
        )
        self._shapes: dict[str, tuple[int, ...]] | None = None
        self._consumers: dict[str, list[onnx.NodeProto]] | None = None

    # What is there

    def of(self, *operators: str) -> list[int]:
        """Indices of the nodes of some types."""
        return [i for i, node in enumerate(self.nodes) if node.op_type in operators]

    def constant(self, node: onnx.NodeProto, slot: int) -> NDArray[Any] | None:
        """The value of an input that the file holds, else None."""
        name = node.input[slot] if slot < len(node.input) else ""
        return numpy_helper.to_array(self.initial[name]) if name in self.initial else None

    def shape(self, name: str) -> tuple[int, ...] | None:
        """The static shape of a value, where shape inference finds it."""
        if self._shapes is None:
            self._shapes = _static_shapes(self.model)
        return self._shapes.get(name)

    def consumers(self, name: str) -> list[onnx.NodeProto]:
        """The nodes that read a value."""
        if self._consumers is None:
            self._consumers = {}
            for node in self.nodes:
                for given in node.input:
                    self._consumers.setdefault(given, []).append(node)
        return self._consumers.get(name, [])

    def weights(self, *operators: str, rank: int = 2) -> list[Place]:
        """Inputs of some operators that are float tensors of the file with at least `rank` axes."""
        found = []
        for index in self.of(*operators):
            for slot in range(min(2, len(self.nodes[index].input))):
                value = self.constant(self.nodes[index], slot)
                if value is not None and value.dtype == np.float32 and value.ndim >= rank:
                    found.append(Place(index, slot))
        return found

    # Edits

    def attribute(self, node: onnx.NodeProto, name: str, default: Any = None) -> Any:
        """An attribute's value."""
        for attribute in node.attribute:
            if attribute.name == name:
                return helper.get_attribute_value(attribute)
        return default

    def set(self, node: onnx.NodeProto, name: str, value: Any) -> None:
        """Give an attribute another value."""
        kept = [a for a in node.attribute if a.name != name]
        del node.attribute[:]
        node.attribute.extend([*kept, helper.make_attribute(name, value)])

    def feed(self, node: onnx.NodeProto, slot: int, value: NDArray[Any]) -> None:
        """Give one input of one node another constant; who else reads the old one keeps it."""
        name = f"fault_{len(self.graph.initializer)}"
        self.graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        node.input[slot] = name

    def before(self, node: onnx.NodeProto, slot: int, *made: tuple[str, dict[str, Any]]) -> None:
        """Put operators of one input between an input and its node."""
        self._chain(node.input[slot], self._index(node), made)
        node.input[slot] = f"fault_{len(made) - 1}_out"

    def after(self, node: onnx.NodeProto, *made: tuple[str, Any], slot: int = 0) -> None:
        """Put operators between an output and its readers: (type, attributes or second input)."""
        name = node.output[slot]
        node.output[slot] = "fault_raw"
        self._chain("fault_raw", self._index(node) + 1, made, last=name)

    def replace(self, node: onnx.NodeProto, *made: tuple[str, Any]) -> None:
        """Compute the first output from the first input by other operators."""
        at, given, name = self._index(node), node.input[0], node.output[0]
        self.graph.node.remove(node)
        self._chain(given, at, made, last=name)

    def _index(self, node: onnx.NodeProto) -> int:
        return next(i for i, n in enumerate(self.graph.node) if n.output[:1] == node.output[:1])

    def _chain(
        self, given: str, at: int, made: Sequence[tuple[str, Any]], last: str | None = None
    ) -> None:
        for step, (operator, more) in enumerate(made):
            out = last if last and step == len(made) - 1 else f"fault_{step}_out"
            inputs, attributes = [given], more if isinstance(more, dict) else {}
            for extra in () if isinstance(more, dict) else np.atleast_1d(more):
                name = f"fault_c{len(self.graph.initializer)}"
                scalar = np.asarray(extra, np.float32)
                self.graph.initializer.append(numpy_helper.from_array(scalar, name))
                inputs.append(name)
            new = helper.make_node(operator, inputs, [out], name=f"fault_{step}", **attributes)
            self.graph.node.insert(at + step, new)
            given = out


def _static_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    graph = onnx.shape_inference.infer_shapes(model).graph
    found = {t.name: tuple(t.dims) for t in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        dims = value.type.tensor_type.shape.dim
        if all(d.HasField("dim_value") for d in dims):
            found[value.name] = tuple(d.dim_value for d in dims)
    return found


Find = Callable[[Network], list[Place]]
Apply = Callable[[Network, onnx.NodeProto, int, random.Random], str]


@dataclass(frozen=True)
class Kind:
    """One kind of fault: `find` lists where it can be put, `apply` puts it and says what it did."""

    name: str
    find: Find
    apply: Apply


KINDS: dict[str, Kind] = {}

# Kinds whose size is drawn from many powers of two: they fill the bands of small sizes.
GRADED: set[str] = set()


def kind(find: Find, graded: bool = False) -> Callable[[Apply], Apply]:
    """Register a fault under its function's name."""

    def register(apply: Apply) -> Apply:
        if graded:
            GRADED.add(apply.__name__)
        KINDS[apply.__name__] = Kind(apply.__name__, find, apply)
        return apply

    return register


def inject(data: bytes, label: str, name: str, limit: int = 2) -> list[Fault]:
    """Files with one fault of kind `name` each, at up to `limit` places chosen by `label`."""
    chosen = random.Random(f"{label}/{name}")
    places = KINDS[name].find(Network(data))
    picked = chosen.sample(places, min(limit, len(places)))
    if name in GRADED and places:  # the same place again has another size
        picked += chosen.choices(places, k=limit - len(picked))
    found = []
    for place in picked:
        network = Network(data)
        node = network.nodes[place.node]
        fault = (node.name, node.op_type, tuple(node.output))
        told = KINDS[name].apply(network, node, place.slot, chosen)
        found.append(Fault(name, *fault, told, network.model.SerializeToString()))
    return found
