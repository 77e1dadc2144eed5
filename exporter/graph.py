"""The graph IR that every target starts from: captured once, never changed.

A `Graph` is torch's `ExportedProgram` with the user's names, dynamic dims and
the record of where it came from. Invariants that targets may rely on:

- the program never writes to a placeholder: where the model writes to an
  input, the program has been made functional and the new value is an output
  whose spec says `mutates`; a model that writes to a buffer is refused;
- in-place operators (`relu_`, `add_`) on intermediate values may remain;
- `inputs[i]` belongs to the placeholder node named `input_nodes[i]`, and
  `outputs[i]` is the value of the node named `output_nodes[i]` (the same node
  may serve several outputs, or be a placeholder);
- weights are shared with the loaded checkpoint (often a file mapping): read
  them, never write, never copy them all.
"""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from .calling import CallStructure
from .lines import user_line
from .signature import Dim, TensorSpec

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["Attempt", "Graph", "Origin", "Provenance", "node_origin"]


@dataclass(frozen=True)
class Attempt:
    """One capture strategy that was tried; `error` is None for the one that worked."""

    strategy: str
    seconds: float
    error: str | None = None


@dataclass(frozen=True)
class Provenance:
    """Where a graph came from."""

    source_sha256: str | None
    architecture: str | None
    torch_version: str
    attempts: tuple[Attempt, ...]

    @property
    def strategy(self) -> str:
        return self.attempts[-1].strategy if self.attempts else "loaded"


@dataclass(frozen=True)
class Origin:
    """Where in the user's code a node was written: module path and `file:line`."""

    module: str
    location: str


@dataclass(frozen=True)
class Graph:
    """A captured model. See the module docstring for what targets may rely on.

    `precision` is "fp32" as captured (whatever dtypes the model has), "fp16" or "bf16"
    for a copy that `exporter.precision` made.
    """

    program: ExportedProgram
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    input_nodes: tuple[str, ...]
    output_nodes: tuple[str, ...]
    call: CallStructure
    provenance: Provenance
    notes: tuple[str, ...] = ()
    precision: str = "fp32"

    @property
    def dims(self) -> dict[str, Dim]:
        """Dynamic dims of the inputs by name."""
        return {dim.name: dim for spec in self.inputs for dim in spec.dims}

    def run(
        self, inputs: Mapping[str, torch.Tensor], watch: Iterable[str] = ()
    ) -> dict[str, torch.Tensor]:
        """Evaluate the graph eagerly, as captured, on CPU.

        Args:
            inputs: a tensor for every input, by name.
            watch: names of nodes whose values are wanted too.

        Returns:
            Outputs by name, and the watched nodes' values by node name.
        """
        values = _Recorder(self.program, set(watch) | set(self.output_nodes)).run_on(
            {
                node: inputs[spec.name]
                for node, spec in zip(self.input_nodes, self.inputs, strict=True)
            }
        )
        named = {
            spec.name: torch.as_tensor(values[node])
            for node, spec in zip(self.output_nodes, self.outputs, strict=True)
        }
        return named | {name: values[name] for name in watch}

    def copy_program(self) -> ExportedProgram:
        """A program whose graph may be rewritten; tensors are shared, not copied."""
        program = copy.copy(self.program)
        module = self.program.graph_module
        program._graph_module = _copy_graph_module(module)
        program._graph_signature = copy.deepcopy(self.program.graph_signature)
        return program

    def fingerprint(self) -> str:
        """SHA-256 over nodes, signature and the tensors' identities (not their bytes).

        Equal before and after a conversion, or the target broke its promise.
        """
        digest = hashlib.sha256()
        digest.update(str(self.program.graph_signature).encode())
        for name, module in self.program.graph_module.named_modules():
            if isinstance(module, torch.fx.GraphModule):
                digest.update(f"{name}:{module.graph}".encode())
        for name, tensor in sorted(self.tensors().items()):
            digest.update(f"{name}:{tensor.data_ptr()}:{tensor._version}".encode())
        return digest.hexdigest()

    def save(self, path: str | Path) -> Path:
        """Write the graph and its weights as `.graph.pt2`; see `graph_file.save_graph`."""
        from .graph_file import save_graph

        return save_graph(self, path)

    @staticmethod
    def load(path: str | Path) -> Graph:
        """Read a graph that `save` wrote; see `graph_file.load_graph`."""
        from .graph_file import load_graph

        return load_graph(path)

    def tensors(self) -> dict[str, torch.Tensor]:
        """Weights, buffers and tensor constants by their qualified name."""
        tensors: dict[str, torch.Tensor] = dict(self.program.state_dict)
        for name, value in self.program.constants.items():
            if isinstance(value, torch.Tensor):
                tensors[name] = value
        return tensors


def placeholder_tensors(program: ExportedProgram) -> dict[str, torch.Tensor]:
    """Weight, buffer or constant behind each placeholder node, by node name."""
    tensors: dict[str, torch.Tensor] = {}
    for spec in program.graph_signature.input_specs:
        target = spec.target
        if target is None:
            continue
        if target in program.state_dict:
            tensors[spec.arg.name] = program.state_dict[target]
        elif isinstance(program.constants.get(target), torch.Tensor):
            tensors[spec.arg.name] = program.constants[target]
    return tensors


def node_origin(node: torch.fx.Node, root: Path | None = None) -> Origin:
    """Module path and innermost user line of a node; `location` is relative to `root`.

    Lines inside site-packages are passed over where a line of the user's exists.
    """
    stack = node.meta.get("nn_module_stack") or {}
    module = next((str(path) for path, _ in reversed(list(stack.values())) if path), "")
    return Origin(module, user_line(node.meta.get("stack_trace") or "", root))


def _copy_graph_module(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Copy the graph and its sub-graphs, sharing every tensor and keeping every name."""
    memo: dict[int, Any] = {}
    for tensor in (*module.parameters(), *module.buffers()):
        memo[id(tensor)] = tensor
    for child in module.modules():
        for value in vars(child).values():
            if isinstance(value, torch.Tensor):
                memo[id(value)] = value
    twin = copy.deepcopy(module, memo)
    # Copying renames nodes that are called like a Python builtin (`input`), which
    # torch.export allows; the signature and `Graph.input_nodes` go by these names.
    for ours, theirs in zip(module.modules(), twin.modules(), strict=True):
        if isinstance(ours, torch.fx.GraphModule) and isinstance(theirs, torch.fx.GraphModule):
            for node, copied in zip(ours.graph.nodes, theirs.graph.nodes, strict=True):
                copied.name = node.name
            theirs.recompile()
    return twin


class _Recorder(torch.fx.Interpreter):
    """Evaluates a program's graph and keeps the values of the wanted nodes."""

    def __init__(self, program: ExportedProgram, wanted: set[str]) -> None:
        super().__init__(program.graph_module)
        self._weights = placeholder_tensors(program)
        self._wanted = wanted
        self._kept: dict[str, Any] = {}
        self._given: Mapping[str, torch.Tensor] = {}

    def run_on(self, given: Mapping[str, torch.Tensor]) -> dict[str, Any]:
        self._given = given
        with torch.no_grad():
            self.run()
        return self._kept

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.op == "placeholder":
            value = self._placeholder(n)
        elif n.op == "output":
            return None
        else:
            value = super().run_node(n)
        if n.name in self._wanted:
            self._kept[n.name] = value
        return value

    def _placeholder(self, node: torch.fx.Node) -> Any:
        if node.name in self._given:
            return self._given[node.name]
        return self._weights.get(node.name)
