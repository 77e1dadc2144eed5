"""Values inside an OpenVINO model, as OpenVINO computes them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import UsageError
from ..bfloat16 import from_bits, to_bits
from ..watching import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WatchedModel"]

_BORDER = ("Parameter", "Result", "Constant")

Arrays = Mapping[str, "NDArray[Any]"]


class WatchedModel:
    """A model with results added, or parts of it run by themselves.

    OpenVINO fuses no operator whose value is asked for, so watching may change what is computed.

    Args:
        model: as it was read; it is not changed.
        compiled: compiles a model as that of the session was.
    """

    def __init__(self, model: Any, compiled: Callable[[Any], Any]) -> None:
        self._model = model
        self._compiled = compiled
        self._ports = dict(_named_ports(model))
        self._names = {_key(port): name for name, port in self._ports.items()}

    def values(self) -> tuple[Value, ...]:
        """Of the outermost graph, those that depend on an input."""
        return tuple(
            Value(
                name,
                port.get_node().get_type_name(),
                port.get_node().get_friendly_name(),
                tuple(dict.fromkeys(self._sources(port.get_node()))),
            )
            for name, port in self._ports.items()
            if port.get_node().get_type_name() != "Parameter"
        )

    def _sources(self, node: Any) -> Iterator[str]:
        for source in node.input_values():
            if _key(source) in self._names:
                yield self._names[_key(source)]

    def run(self, inputs: Sequence[Any], names: Sequence[str]) -> list[Any]:
        """The outputs and then the values of `names`, for what OpenVINO takes as `inputs`."""
        import openvino

        twin = self._model.clone()
        ports = dict(_named_ports(twin))
        added = [_result(self._port(ports, name)) for name in names]
        model = openvino.Model([*twin.get_results(), *added], twin.get_parameters(), "watched")
        found = self._compiled(model)(inputs, share_inputs=False)
        return [_array(found[i], port) for i, port in enumerate(model.outputs)]

    def replay(self, given: Arrays, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The values of `names` from those of `given` alone."""
        import openvino

        known = {name: given[name] for name in names if name in given}
        wanted = [name for name in names if name not in given]
        if not wanted:
            return known
        twin = self._model.clone()
        ports = dict(_named_ports(twin))
        targets = [self._port(ports, name) for name in wanted]
        parameters, tensors = [], []
        for name, array in given.items():
            port = self._port(ports, name)
            parameter = openvino.op.Parameter(
                port.get_element_type(), openvino.PartialShape(list(array.shape))
            )
            port.replace(parameter.output(0))
            parameters.append(parameter)
            tensors.append(_tensor(array, port.get_element_type()))
        try:
            model = openvino.Model([_result(port) for port in targets], parameters, "part")
        except RuntimeError as error:
            raise UsageError(
                f"{', '.join(wanted)} depends on more than {', '.join(given)}"
            ) from error
        found = self._compiled(model)(tensors, share_inputs=False)
        values = {name: _array(found[i], model.output(i)) for i, name in enumerate(wanted)}
        return {**known, **values}

    def _port(self, ports: Mapping[str, Any], name: str) -> Any:
        if name not in ports:
            raise UsageError(f"the model computes no {name}")
        return ports[name]


def _named_ports(model: Any) -> Iterator[tuple[str, Any]]:
    """Every value that depends on an input, in order, the inputs among them.

    Nodes need not have names of their own, so a value that shares one is numbered.
    """
    depending: set[tuple[str, int]] = set()
    taken: set[str] = set()
    for node in model.get_ordered_ops():
        kind = node.get_type_name()
        if kind in ("Constant", "Result") or not (
            kind == "Parameter" or any(_key(v) in depending for v in node.input_values())
        ):
            continue
        for port in node.outputs():
            depending.add(_key(port))
            base = node.get_friendly_name()
            name = base if len(node.outputs()) == 1 else f"{base}.{port.get_index()}"
            count = 1
            while name in taken:
                count += 1
                name = f"{base}#{count}"
            taken.add(name)
            yield name, port


def _key(port: Any) -> tuple[str, int]:
    """What a value is known by within one model: OpenVINO numbers its nodes uniquely."""
    return port.get_node().get_name(), port.get_index()


def _result(port: Any) -> Any:
    from openvino import opset13 as ops

    return ops.result(port)


def _tensor(array: NDArray[Any], kind: Any) -> Any:
    """What OpenVINO takes; bfloat16, which numpy lacks, as a tensor of its bits."""
    import numpy as np
    import openvino

    if kind != openvino.Type.bf16:
        return np.ascontiguousarray(array, kind.to_dtype())
    tensor = openvino.Tensor(kind, openvino.Shape(array.shape))
    tensor.data.view("uint16")[...] = to_bits(array)
    return tensor


def _array(found: NDArray[Any], port: Any) -> NDArray[Any]:
    import openvino

    half = port.get_element_type() == openvino.Type.bf16
    return from_bits(found.view("uint16")) if half else found.copy()
