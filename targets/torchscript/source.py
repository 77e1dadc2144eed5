"""A captured program as TorchScript source: one statement per node, every operator as captured.

Nothing is traced, so sizes stay symbolic and no operator is replaced. Operators
are written with all arguments that the program gives; `archive` compiles the
text and compares the overloads that TorchScript chose with the captured ones.
"""

from __future__ import annotations

import json
import keyword
import math
import operator
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from ...errors import ConversionError
from ...exporter.nodes import argument, tensor_value
from ...exporter.rules.common import CHECKS
from ..base import Unsupported
from ..unsupported import unsupported

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["Body", "find_unsupported", "write_body"]

# Libraries whose operators a process that loads the file can be expected to have.
_NAMESPACES = ("aten", "prims", "quantized", "torchvision")

# c10::ScalarType, c10::Layout and c10::MemoryFormat: what TorchScript stores for them.
_DTYPES = {
    torch.uint8: 0,
    torch.int8: 1,
    torch.int16: 2,
    torch.int32: 3,
    torch.int64: 4,
    torch.float16: 5,
    torch.float32: 6,
    torch.float64: 7,
    torch.complex64: 9,
    torch.complex128: 10,
    torch.bool: 11,
    torch.bfloat16: 15,
    torch.uint16: 27,
    torch.uint32: 28,
    torch.uint64: 29,
}
_FORMATS = {
    torch.contiguous_format: 0,
    torch.preserve_format: 1,
    torch.channels_last: 2,
    torch.channels_last_3d: 3,
}

# Second names of operators, which TorchScript replaces by the first
# (torch/csrc/jit/passes/normalize_ops.cpp).
_ALIASES = {
    "absolute": "abs",
    "clip": "clamp",
    "concat": "cat",
    "concatenate": "cat",
    "det": "linalg_det",
    "divide": "div",
    "true_divide": "div",
    "greater": "gt",
    "greater_equal": "ge",
    "less": "lt",
    "less_equal": "le",
    "multiply": "mul",
    "negative": "neg",
    "not_equal": "ne",
    "subtract": "sub",
    "swapaxes": "transpose.int",
    "swapdims": "transpose.int",
    **{f"arc{name}": f"a{name}" for name in ("cos", "cosh", "sin", "sinh", "tan", "tanh")},
}

_PYTHON: dict[Any, str] = {
    operator.add: "{} + {}",
    operator.sub: "{} - {}",
    operator.mul: "{} * {}",
    operator.truediv: "{} / {}",
    operator.floordiv: "{} // {}",
    operator.mod: "{} % {}",
    operator.pow: "{} ** {}",
    operator.neg: "-{}",
    operator.eq: "{} == {}",
    operator.ne: "{} != {}",
    operator.lt: "{} < {}",
    operator.le: "{} <= {}",
    operator.gt: "{} > {}",
    operator.ge: "{} >= {}",
    operator.and_: "{} and {}",
    operator.or_: "{} or {}",
    operator.getitem: "{}[{}]",
    torch.sym_max: "ops.prim.max({}, {})",
    torch.sym_min: "ops.prim.min({}, {})",
    torch.sym_float: "float({})",
    torch.sym_int: "int({})",
    torch.sym_not: "not {}",
    torch.sym_ite: "({1} if {0} else {2})",
    math.floor: "torch.floor({})",
    math.ceil: "torch.ceil({})",
    math.trunc: "int({})",
    torch.sym_sum: "",  # of a list
    torch._sym_sqrt: "torch.sqrt({})",  # type: ignore[attr-defined]
    round: "int(torch.round({}))",
    math.sqrt: "torch.sqrt({})",
}


@dataclass
class Body:
    """The statements of `forward`, and what is needed to compile and check them.

    `weights` maps the names that the program gives its tensors to attribute paths (`parameters`
    are those that are no buffers), `overloads` are the operators (`aten::add.Tensor`) that must
    come out, with the node of each.
    """

    arguments: list[str]
    lines: list[str]
    result: str
    weights: dict[str, str]
    parameters: frozenset[str]
    overloads: list[tuple[str, Node]]


def find_unsupported(program: ExportedProgram) -> list[Unsupported]:
    """Nodes that TorchScript has no form for."""
    return [unsupported(node, why) for node, why in _refusals(program.graph_module)]


def _refusals(module: torch.fx.GraphModule) -> Iterator[tuple[Node, str]]:
    for node in module.graph.nodes:
        if node.op != "call_function" or node.target in CHECKS:
            continue
        target: Any = node.target
        inner = _inlined(module, node)
        if inner is not None:
            yield from _refusals(inner)
        elif isinstance(target, torch._ops.OpOverload):
            if why := _refusal(node):
                yield node, why
        elif target not in _PYTHON:
            yield node, _why_not(target)


def _why_not(target: Any) -> str:
    if isinstance(target, torch._ops.HigherOrderOperator):
        return "an operator that takes functions, which TorchScript operators cannot"
    return "no TorchScript operator"


def _refusal(node: Node) -> str:
    target: Any = node.target
    namespace = target.namespace
    if namespace not in _NAMESPACES:
        return f"an operator of the library {namespace}, which a process that loads the file lacks"
    known = torch._C._jit_get_schemas_for_operator(target._schema.name)
    if not any(schema.overload_name == target._schema.overload_name for schema in known):
        return "no TorchScript operator"
    try:
        for _ in _arguments(node, lambda item: "x", "x"):
            pass
    except _InexpressibleError as error:
        return str(error)
    return ""


class _InexpressibleError(Exception):
    """An argument that TorchScript source has no literal for."""


def _inlined(module: torch.fx.GraphModule, node: Node) -> torch.fx.GraphModule | None:
    """The sub-graph of a wrapper that does nothing at inference: grad mode, autocast off."""
    kind = str(node.target)
    if kind == "wrap_with_set_grad_enabled":
        body: Any = node.args[1]
    elif kind == "wrap_with_autocast" and node.args[2] is False:
        body = node.args[4]
    else:
        return None
    found: Any = getattr(module, body.target)
    return found if isinstance(found, torch.fx.GraphModule) else None


def write_body(program: ExportedProgram, input_names: list[str]) -> Body:
    """Statements for a flat program (`flat_program`).

    Raises:
        ConversionError: a weight is no tensor.
    """
    return _Writer(program).body(input_names)


class _Writer:
    def __init__(self, program: ExportedProgram) -> None:
        self._program = program
        self._names: dict[Node, str] = {}
        self._taken = {*keyword.kwlist, "self", "torch", "ops", "annotate", "inf", "nan"}
        self._taken |= {"int", "float", "bool", "len", "range", "print", "str", "list", "Tensor"}
        self._lines: list[str] = []
        self._overloads: list[tuple[str, Node]] = []
        self._device = ""

    def body(self, input_names: list[str]) -> Body:
        module, signature = self._program.graph_module, self._program.graph_signature
        placeholders = {n.name: n for n in module.graph.nodes if n.op == "placeholder"}
        arguments = []
        for spec, name in zip(
            (s for s in signature.input_specs if s.target is None), input_names, strict=True
        ):
            arguments.append(self._name(placeholders[spec.arg.name], name))
        weights = self._weights(placeholders)
        anchor = arguments[0] if arguments else next(iter(weights.values()), None)
        self._device = f"ops.prim.device({anchor})" if anchor else 'torch.device("cpu")'
        for spec in signature.input_specs:
            if spec.target is not None:
                node = placeholders[spec.arg.name]
                if node.users:
                    self._lines.append(f"{self._name(node)} = {weights[spec.target]}")
        self._statements(module)
        outputs: Any = module.graph.output_node().args[0]
        values = [self._value(item) for item in outputs]
        result = values[0] if len(values) == 1 else f"({', '.join(values)})"
        parameters = frozenset(signature.parameters)
        return Body(arguments, self._lines, result, weights, parameters, self._overloads)

    def _weights(self, placeholders: dict[str, Node]) -> dict[str, str]:
        weights: dict[str, str] = {}
        for spec in self._program.graph_signature.input_specs:
            target = spec.target
            if target is None or not placeholders[spec.arg.name].users:
                continue
            value = self._program.state_dict.get(target, self._program.constants.get(target))
            if not isinstance(value, torch.Tensor):
                raise ConversionError(
                    f"the constant {target} is no tensor, and TorchScript files hold tensors",
                    hint="rewrite that part of the model with tensors",
                )
            weights[target] = _attribute_path(target)
        return weights

    def _name(self, node: Node, wish: str | None = None) -> str:
        base = "".join(c if c.isalnum() and c.isascii() else "_" for c in wish or node.name)
        base = f"v{base}" if not base or base[0].isdigit() else base
        name, number = base, 0
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        self._names[node] = name
        return name

    def _statements(self, module: torch.fx.GraphModule) -> None:
        for node in module.graph.nodes:
            if node.op != "call_function" or node.target in CHECKS:
                continue
            inner = _inlined(module, node)
            if inner is not None:
                self._inline(inner, node)
                continue
            target: Any = node.target
            if isinstance(target, torch._ops.OpOverload):
                text = self._call(node)
            else:
                text = self._arithmetic(node)
            self._lines.append(f"{self._name(node)} = {text}" if node.users else text)

    def _arithmetic(self, node: Node) -> str:
        """Sizes and numbers computed from them, by Python's rules."""
        target: Any = node.target
        operands: Any = node.args[0] if target is torch.sym_sum else node.args
        texts = [self._value(item, nested=True) for item in operands]
        if target is torch.sym_sum:
            return " + ".join(texts)
        text = _PYTHON[target].format(*texts)
        whole = isinstance(node.meta.get("val"), torch.SymInt)
        return f"int({text})" if target is operator.pow and whole else text  # else a float

    def _inline(self, inner: torch.fx.GraphModule, node: Node) -> None:
        count = sum(1 for n in inner.graph.nodes if n.op == "placeholder")
        given = node.args[len(node.args) - count :]
        for place, value in zip(
            (n for n in inner.graph.nodes if n.op == "placeholder"), given, strict=True
        ):
            self._lines.append(f"{self._name(place)} = {self._value(value)}")
        self._statements(inner)
        results: Any = inner.graph.output_node().args[0]
        values = ", ".join(self._value(item) for item in results)
        if node.users:
            self._lines.append(f"{self._name(node)} = ({values},)")

    def _call(self, node: Node) -> str:
        target: Any = node.target
        schema = target._schema
        namespace, _, name = schema.name.partition("::")
        if not _scalar_for_tensor(node):
            overload = "" if _resizes_to_size(node) else schema.overload_name
            known = f"aten::{_ALIASES[name]}" if name in _ALIASES else schema.name
            self._overloads.append((f"{known}.{overload}".rstrip("."), node))
        library = "torch" if namespace == "aten" else f"ops.{namespace}"
        if keyword.iskeyword(name):
            raise ConversionError(f"{schema.name} cannot be written as TorchScript source")
        return f"{library}.{name}({', '.join(_arguments(node, self._value, self._device))})"

    def _value(self, item: Any, nested: bool = False) -> str:
        if isinstance(item, Node):
            return self._names[item]
        text = _literal(item)
        return f"({text})" if nested and text.startswith("-") else text


def _arguments(node: Node, value: Callable[[Any], str], device: str) -> Iterator[str]:
    """The call's arguments as source, in the order of the schema."""
    target: Any = node.target
    declared = list(target._schema.arguments)
    given: dict[str, Any] = {
        entry.name: item for entry, item in zip(declared, node.args, strict=False)
    } | dict(node.kwargs)
    makes_tensor = not any("Tensor" in str(entry.type) for entry in declared)
    for position, entry in enumerate(declared):
        name, kind = entry.name, str(entry.type)
        if name == "device" and (given.get(name) is not None or makes_tensor):
            text = device  # of the input, so that the file runs wherever it is loaded
        elif name not in given:
            continue
        else:
            text = _typed(given[name], kind, name, value)
        by_position = position < len(node.args) and not entry.kwarg_only
        yield text if by_position else f"{name}={text}"


def _typed(item: Any, kind: str, name: str, value: Callable[[Any], str]) -> str:
    if isinstance(item, (list, tuple)):
        inner = [_typed(part, "", name, value) for part in item]
        text = f"[{', '.join(inner)}]"
        if "List[Optional[Tensor]]" in kind:
            return f"annotate(List[Optional[Tensor]], {text})"
        if not item:
            element = kind[kind.index("List[") :].rstrip("]") + "]" if "List[" in kind else ""
            return f"annotate({element}, [])" if element else text
        return text
    if kind in ("float", "Optional[float]") and isinstance(item, int):
        return value(float(item))
    return value(item)


def _literal(item: Any) -> str:
    if item is None or isinstance(item, (bool, int)):
        return str(item)
    if isinstance(item, float):
        if math.isnan(item):
            return "nan"
        return ("inf" if item > 0 else "-inf") if math.isinf(item) else repr(item)
    if isinstance(item, str):
        return json.dumps(item)
    if isinstance(item, torch.dtype) and item in _DTYPES:
        return str(_DTYPES[item])
    if isinstance(item, torch.memory_format):
        return str(_FORMATS[item])
    if item is torch.strided:
        return "0"
    raise _InexpressibleError(f"TorchScript has no literal for {item!r}")


def _scalar_for_tensor(node: Node) -> bool:
    """Whether a Python number stands for a tensor, for which TorchScript has a sister overload."""
    target: Any = node.target
    return any(
        str(entry.type) == "Tensor" and item is not None and tensor_value(item) is None
        for entry, item in zip(target._schema.arguments, node.args, strict=False)
    )


def _resizes_to_size(node: Node) -> bool:
    """A resize told a size alone: TorchScript takes the plain overload, which is the same then."""
    target: Any = node.target
    if target._schema.overload_name != "vec" or "upsample" not in target._schema.name:
        return False
    return argument(node, "output_size") is not None and argument(node, "scale_factors") is None


def _attribute_path(target: str) -> str:
    path = "self"
    for part in target.split("."):
        plain = part.isidentifier() and part.isascii() and not keyword.iskeyword(part)
        path = f"{path}.{part}" if plain else f"getattr({path}, {json.dumps(part)})"
    return path
