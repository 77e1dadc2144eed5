"""A parsed `INetworkDefinition` as plain data, to be computed, and changed by tests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ..logger import unheard
from .weights import raw_weights

__all__ = ["Layer", "Network", "Tensor", "read_network"]


@dataclass(frozen=True)
class Tensor:
    """An edge of the network: `dtype` is a torch name ("float32", "int4"...).

    `shape` holds -1 for sizes that only the run tells, and is None where the rank itself is
    not known while building.
    """

    name: str
    dtype: str
    shape: tuple[int, ...] | None


@dataclass(frozen=True)
class Layer:
    """One layer. `kind` is the name of its `LayerType` ("CONVOLUTION").

    source: what the parser notes of its origin, "[ONNX Layer: NODE]"; may be empty.
    inputs: names of tensors in order; None for an optional one that is not set.
    attributes: every property that the layer's class adds to `ILayer`, by its name in the Python
        API; enums as their names, `Dims` as tuples (None where not set), weights as arrays, or as
        `RawWeights` of a dtype that numpy does not have (as they came where that fails),
        tensors as their names; those of an attention are its boundaries'.
        `type` is kept where the class uses it for an operation ("RELU", "MAX").
    group: which loop or conditional a boundary layer belongs to, "loop 0 NAME" or "conditional 1
        NAME", else None.
    unused: names of outputs that no layer reads and the network does not return.
    """

    kind: str
    name: str
    source: str
    inputs: tuple[str | None, ...]
    outputs: tuple[Tensor, ...]
    attributes: Mapping[str, Any] = field(default_factory=dict)
    group: str | None = None
    unused: frozenset[str] = frozenset()


@dataclass(frozen=True)
class Network:
    """Layers in the parser's order, which need not be one in which they can be computed."""

    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    layers: tuple[Layer, ...]
    owner: Any = None
    """What keeps the weights alive: the parser and network that they belong to."""


# TensorRT's names for dtypes, and torch's.
_DTYPES = {
    "FLOAT": "float32",
    "HALF": "float16",
    "BF16": "bfloat16",
    **{f"{sign}INT{bits}": f"{sign.lower()}int{bits}" for sign in ("", "U") for bits in (8,)},
    "INT32": "int32",
    "INT64": "int64",
    "BOOL": "bool",
    "FP8": "float8_e4m3fn",
    "INT4": "int4",
    "FP4": "fp4",
    "E8M0": "float8_e8m0fnu",
}

# Layer types whose class is not called I + type + Layer.
_CLASSES = {
    "CONDITIONAL_INPUT": "IIfConditionalInputLayer",
    "CONDITIONAL_OUTPUT": "IIfConditionalOutputLayer",
}


def read_network(module: Any, network: Any, owner: Any = None) -> Network:
    """Read a network of `module` (`tensorrt` or `tensorrt_rtx`).

    Weights are views of the parser's memory: `owner` must keep it alive.

    Raises:
        UnverifiableError: two tensors share a name, so that edges cannot be told apart.
        ConversionError: TensorRT cannot tell the shape of a tensor, as the network is not valid.
    """
    with unheard():
        return _read(module, network, owner)


def _read(module: Any, network: Any, owner: Any) -> Network:
    groups: list[Any] = []
    layers = tuple(_layer(module, network.get_layer(i), groups) for i in range(network.num_layers))
    outputs = tuple(_tensor(network.get_output(i)) for i in range(network.num_outputs))
    read = {tensor.name for tensor in outputs}.union(*(layer.inputs for layer in layers))
    found = Network(
        inputs=tuple(_tensor(network.get_input(i)) for i in range(network.num_inputs)),
        outputs=outputs,
        layers=tuple(_with_unused(layer, read) for layer in layers),
        owner=owner,
    )
    _require_distinct(found)
    return found


def _with_unused(layer: Layer, read: set[str | None]) -> Layer:
    unused = frozenset(tensor.name for tensor in layer.outputs if tensor.name not in read)
    return replace(layer, unused=unused) if unused else layer


def _require_distinct(network: Network) -> None:
    from ....errors import UnverifiableError

    seen: set[str] = set()
    for tensor in (*network.inputs, *(t for layer in network.layers for t in layer.outputs)):
        if tensor.name in seen:
            raise UnverifiableError(
                f"two tensors of the network are called {tensor.name!r}, so it cannot be evaluated",
                hint="please report this; the engine can be checked on its GPU",
            )
        seen.add(tensor.name)


def _layer(module: Any, layer: Any, groups: list[Any]) -> Layer:
    kind = layer.type.name
    source, name = layer.metadata, layer.name
    inputs = tuple(
        None if (given := layer.get_input(i)) is None else given.name
        for i in range(layer.num_inputs)
    )
    outputs = tuple(_tensor(layer.get_output(i)) for i in range(layer.num_outputs))
    attributes, group = _attributes(module, layer, kind, groups)
    return Layer(kind, name, source, inputs, outputs, attributes, group)


def _attributes(
    module: Any, layer: Any, kind: str, groups: list[Any]
) -> tuple[dict[str, Any], str | None]:
    """What the class of `kind` adds to ILayer, and the loop or conditional of a boundary.

    `groups` collects loops and conditionals: they may share a name, and the bindings hand out the
    same object for one as long as it lives.
    """
    own = _class_of(module, kind)
    if own is None:
        return {}, None
    # The bindings hand out every layer as ILayer; its class is what one makes it.
    layer.__class__ = own
    common = set(dir(module.ILayer)) - {"type"}
    group = None
    found: dict[str, Any] = {}
    for attribute in dir(own):
        if attribute.startswith("_") or attribute in common or attribute.startswith("set_"):
            continue
        value = _value(layer, attribute)
        if attribute in ("loop", "conditional"):
            if all(value is not known for known in groups):
                groups.append(value)
            number = next(i for i, known in enumerate(groups) if known is value)
            group = f"{attribute} {number} {value.name}"
            continue
        if attribute == "attention":
            found.update(_attention(module, value))
            continue
        if callable(value):
            if not attribute.startswith("is_"):
                continue
            value = value()
        plain = _plain(module, value)
        if attribute == "type" and plain == kind:
            continue
        found[attribute] = plain
    return found, group


def _attention(module: Any, attention: Any) -> dict[str, Any]:
    """Properties of an `IAttention`, which its boundary layers stand for."""
    names = (name for name in dir(attention) if not name.startswith("_"))
    values = {name: getattr(attention, name) for name in names if name not in _DESCRIBING}
    return {name: _plain(module, value) for name, value in values.items() if not callable(value)}


# What names an attention or counts its tensors, which the layer shows too.
_DESCRIBING = {"name", "metadata", "num_inputs", "num_outputs"}


def _value(layer: Any, attribute: str) -> Any:
    try:
        return getattr(layer, attribute)
    except RuntimeError:
        # The bindings raise where the block of a (de)quantisation is not set.
        if attribute == "block_shape":
            return None
        raise


def _class_of(module: Any, kind: str) -> Any:
    name = _CLASSES.get(kind) or "I" + kind.replace("_", "") + "Layer"
    found = {entry.lower(): entry for entry in dir(module)}.get(name.lower())
    return None if found is None else getattr(module, found)


def _plain(module: Any, value: Any) -> Any:
    if hasattr(type(value), "__members__"):
        return _DTYPES.get(value.name, value.name) if type(value) is module.DataType else value.name
    if isinstance(value, (module.Dims, module.Permutation)):
        return tuple(value) if len(value) >= 0 else None
    if isinstance(value, list):
        return tuple(value)
    if isinstance(value, module.ITensor):
        return value.name
    if isinstance(value, module.Weights):
        return raw_weights(module, value, _DTYPES.get(value.dtype.name, "")) or value
    return value


def _tensor(tensor: Any) -> Tensor:
    return Tensor(tensor.name, _DTYPES[tensor.dtype.name], _shape(_require_valid(tensor)))


def _shape(dims: Any) -> tuple[int, ...] | None:
    try:
        return tuple(dims)
    except ValueError:  # the rank is not known
        return None


def _require_valid(tensor: Any) -> Any:
    from ....errors import ConversionError

    try:
        return tensor.shape
    except RuntimeError as error:
        raise ConversionError(
            f"TensorRT cannot tell the shape of {tensor.name!r}: the network is not valid",
            hint="please report this; another opset (--set opset=...) may avoid it",
        ) from error
