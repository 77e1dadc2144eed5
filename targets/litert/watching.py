"""Values inside a `.tflite` file, as LiteRT computes them."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ...errors import ConversionError, UsageError, first_line
from ..watching import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WatchedModel"]

Arrays = Mapping[str, "NDArray[Any]"]


class WatchedModel:
    """A file with further outputs, or parts of it run by themselves.

    A value that is an output must be written by whoever computes it, so the XNNPACK delegate
    keeps the operators that it has in the file. (The interpreter's own way of keeping all values
    does without the delegate, and then other kernels compute.)

    Args:
        content: the file's bytes.
        inputs, outputs: tensor indices by name.
        threads: those that the session has.
    """

    def __init__(
        self,
        content: bytes,
        inputs: Mapping[str, int],
        outputs: Mapping[str, int],
        threads: int,
    ) -> None:
        from ai_edge_litert import schema_py_generated as schema

        self._schema = schema
        self._model: Any = schema.ModelT.InitFromPackedBuf(content)
        self._graph: Any = self._model.subgraphs[0]
        self._outputs = dict(outputs)
        self._threads = threads
        self._kinds = {
            code: name for name, code in vars(schema.BuiltinOperator).items() if name.isupper()
        }
        self._maker = {
            int(tensor): number
            for number, operator in enumerate(self._graph.operators)
            for tensor in operator.outputs
        }
        self._index = dict(inputs)
        self._depending = self._followed(set(inputs.values()))
        used = Counter(self._text(tensor) for tensor in self._depending)
        for tensor in self._depending:
            text = self._text(tensor)
            unique = used[text] == 1 and text not in inputs
            self._index[text if unique else f"{text}#{tensor}"] = tensor
        self._names = {tensor: name for name, tensor in self._index.items()}

    def _followed(self, known: set[int]) -> list[int]:
        """Tensors that depend on an input, in the order in which they are computed."""
        found: dict[int, None] = {}
        for operator in self._graph.operators:
            if any(int(t) in known or int(t) in found for t in operator.inputs):
                found.update(dict.fromkeys(int(t) for t in operator.outputs))
        return list(found)

    def _text(self, tensor: int) -> str:
        return str((self._graph.tensors[tensor].name or b"").decode("utf-8", "replace"))

    def values(self) -> tuple[Value, ...]:
        """Of the main subgraph; what runs inside loops and branches belongs to their operator."""
        return tuple(self._value(tensor) for tensor in self._depending)

    def _value(self, tensor: int) -> Value:
        number = self._maker[tensor]
        operator = self._graph.operators[number]
        code = self._model.operatorCodes[operator.opcodeIndex]
        kind = self._kinds.get(max(code.builtinCode, code.deprecatedBuiltinCode), "unknown")
        if code.customCode:
            kind = code.customCode.decode("utf-8", "replace")
        sources = (self._names.get(int(t)) for t in operator.inputs)
        inputs = tuple(dict.fromkeys(name for name in sources if name is not None))
        # Operators have no names in this format; viewers number them.
        return Value(self._names[tensor], kind, f"{number} ({self._names[tensor]})", inputs)

    def run(self, inputs: Arrays, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The outputs and `names`."""
        wanted = [*self._outputs.values(), *map(self._known, names)]
        operators = self._graph.operators
        found = self._run(operators, self._graph.inputs, wanted, inputs)
        named = {name: found[tensor] for name, tensor in self._outputs.items()}
        return {**named, **{name: found[self._index[name]] for name in names}}

    def replay(self, given: Arrays, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The values of `names` from those of `given` alone."""
        known = {self._known(name) for name in given}
        wanted = [self._known(name) for name in names]
        needed = set(self._needed(known, wanted, given))
        operators = [o for n, o in enumerate(self._graph.operators) if n in needed]
        read = {int(t) for o in operators for t in o.inputs}
        taken = [name for name in given if self._index[name] in read]
        computed = [tensor for tensor in wanted if tensor not in known]
        entries = [self._index[name] for name in taken]
        found = self._run(operators, entries, computed, {name: given[name] for name in taken})
        return {n: given[n] if n in given else found[self._index[n]] for n in names}

    def _needed(self, known: set[int], wanted: Sequence[int], given: Arrays) -> Iterator[int]:
        """Numbers of the operators between."""
        pending = [tensor for tensor in wanted if tensor not in known]
        seen: set[int] = set()
        while pending:
            tensor = pending.pop()
            number = self._maker.get(tensor)
            if number is None and tensor in self._names:
                raise UsageError(
                    f"{self._names[tensor]} is computed from more than {', '.join(given)}"
                )
            if number is None or number in seen:
                continue
            seen.add(number)
            yield number
            pending += [t for t in map(int, self._graph.operators[number].inputs) if t not in known]

    def _known(self, name: str) -> int:
        if name not in self._index:
            raise UsageError(f"the file computes no {name}")
        return self._index[name]

    def _run(
        self, operators: Sequence[Any], inputs: Sequence[int], outputs: Sequence[int], feed: Arrays
    ) -> dict[int, NDArray[Any]]:
        """Values of `outputs`, by tensor."""
        import numpy as np
        from ai_edge_litert.interpreter import Interpreter

        if not outputs:
            return {}
        try:
            interpreter: Any = Interpreter(
                model_content=self._part(operators, inputs, outputs), num_threads=self._threads
            )
            interpreter.allocate_tensors()
            for name, array in feed.items():
                interpreter.set_tensor(self._index[name], np.ascontiguousarray(array))
            interpreter.invoke()
            return {
                tensor: np.array(interpreter.get_tensor(tensor))
                for tensor in dict.fromkeys(outputs)
            }
        except (RuntimeError, ValueError) as error:
            raise ConversionError(
                f"LiteRT does not run a part of this file: {first_line(error)}",
                hint="its kernels do not take that operator by itself",
            ) from error

    def _part(
        self, operators: Sequence[Any], inputs: Sequence[int], outputs: Sequence[int]
    ) -> bytes:
        """A file with these operators, and the weights that they read."""
        import flatbuffers

        graph = copy.copy(self._graph)
        graph.operators = list(operators)
        graph.inputs = [int(tensor) for tensor in inputs]
        graph.outputs = list(dict.fromkeys(outputs))
        model = copy.copy(self._model)
        model.subgraphs = [graph, *self._model.subgraphs[1:]]
        model.signatureDefs, model.metadata, model.metadataBuffer = None, None, None
        if len(operators) < len(self._graph.operators):
            model.buffers = self._buffers(operators)
        builder = flatbuffers.Builder(1024)
        builder.Finish(model.Pack(builder), b"TFL3")
        return bytes(builder.Output())

    def _buffers(self, operators: Sequence[Any]) -> list[Any]:
        """Weights of the operators, nothing in the place of others; inner graphs keep theirs."""
        read = {int(t) for operator in operators for t in operator.inputs if t >= 0}
        kept = {self._graph.tensors[tensor].buffer for tensor in read}
        for inner in self._model.subgraphs[1:]:
            kept |= {tensor.buffer for tensor in inner.tensors}
        empty = self._schema.BufferT()
        return [
            buffer if number in kept else empty for number, buffer in enumerate(self._model.buffers)
        ]
