"""Values inside an ONNX file, as ONNX Runtime computes them."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..watching import Value

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["WatchedFile"]

Arrays = Mapping[str, "NDArray[Any]"]


class WatchedFile:
    """An ONNX file taken apart: outputs added, or parts of it run by themselves.

    Args:
        path: the file; external data is read with it.
        settings: makes ONNX Runtime's session options, those of the session that is watched.
        left_out: ONNX Runtime's optimisers that are to be off.
    """

    def __init__(self, path: Path, settings: Any, left_out: Sequence[str]) -> None:
        import onnx

        self._model = onnx.load(str(path))
        self._settings = settings
        self._left_out = list(left_out)
        graph = self._model.graph
        self._constants = {tensor.name for tensor in graph.initializer}
        self._producers = {name: node for node in graph.node for name in node.output if name}
        self._inputs = [i.name for i in graph.input if i.name not in self._constants]

    def values(self) -> tuple[Value, ...]:
        """Of the outermost graph; what runs inside loops and branches belongs to their node."""
        return tuple(
            Value(name, node.op_type, node.name, tuple(dict.fromkeys(self._sources(node))))
            for node in self._model.graph.node
            for name in node.output
            if name
        )

    def _sources(self, node: Any) -> Iterator[str]:
        """Values that a node reads, those that its sub-graphs take from outside among them."""
        for name in node.input:
            if name in self._producers or name in self._inputs:
                yield name
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                for inner in graph.node:
                    yield from self._sources(inner)

    def run(self, inputs: Arrays, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """The outputs and `names`; see `Watching.run_watching`."""
        wanted = [output.name for output in self._model.graph.output]
        wanted += [name for name in names if name not in wanted]
        return self._run(self._part(self._inputs, wanted, self._model.graph.node), inputs, wanted)

    def replay(self, given: Arrays, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """`names` from `given` alone; see `Watching.replay`."""
        return self._run(self.part(given, names), given, list(names))

    def part(self, given: Arrays, names: Sequence[str]) -> Any:
        """The operators between, as a model of their own."""
        needed: dict[int, Any] = {}
        pending = [name for name in names if name not in given]
        while pending:
            node = self._producers.get(pending.pop())
            if node is None or id(node) in needed:
                continue
            needed[id(node)] = node
            pending += [name for name in self._sources(node) if name not in given]
        nodes = [node for node in self._model.graph.node if id(node) in needed]
        return self._part(list(given), names, nodes, given)

    def _part(
        self,
        inputs: Sequence[str],
        outputs: Sequence[str],
        nodes: Sequence[Any],
        given: Arrays | None = None,
    ) -> Any:
        import onnx
        from onnx import helper

        whole = self._model.graph
        read = {name for node in nodes for name in _all_inputs(node)} | set(outputs)
        known = {value.name: value for value in whole.input}
        declared = [
            known[name] if given is None or name in known else _described(name, given[name])
            for name in inputs
            if given is None or name in read
        ]
        graph = helper.make_graph(
            nodes,
            "part",
            declared,
            [onnx.ValueInfoProto(name=name) for name in outputs],
            [tensor for tensor in whole.initializer if tensor.name in read],
        )
        model = helper.make_model(
            graph,
            opset_imports=self._model.opset_import,
            functions=list(self._model.functions),
        )
        model.ir_version = self._model.ir_version
        return model

    def _run(self, model: Any, feed: Arrays, names: list[str]) -> dict[str, NDArray[Any]]:
        import onnx
        import onnxruntime

        taken = {value.name for value in model.graph.input}
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            # A protobuf ends at 2 GiB: weights go beside it, as for any large model.
            path = str(Path(folder) / "part.onnx")
            big = model.ByteSize() > 1_000_000_000
            onnx.save(model, path, save_as_external_data=big)
            session = onnxruntime.InferenceSession(
                path,
                self._settings(),
                providers=["CPUExecutionProvider"],
                disabled_optimizers=self._left_out,
            )
        computed = session.run(names, {k: v for k, v in feed.items() if k in taken})
        return dict(zip(names, computed, strict=True))


def _all_inputs(node: Any) -> Iterator[str]:
    """Every name that a node or its sub-graphs read."""
    yield from node.input
    for attribute in node.attribute:
        for graph in (attribute.g, *attribute.graphs):
            for inner in graph.node:
                yield from _all_inputs(inner)
            yield from (output.name for output in graph.output)


def _described(name: str, array: NDArray[Any]) -> Any:
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, list(array.shape))
