"""torch's own ATen-to-ONNX translations: the public exporter, and a faster way into it.

The public `torch.onnx.export` retraces every program before it translates it
and builds a registry of all operators: three of the four seconds that an
ordinary network takes. `translate` calls the translation alone, which only
private names of torch offer. They are used in this file and nowhere else, and
`fast_path_available` says whether this torch has them in the form we know;
without them everything goes through the public function.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import TYPE_CHECKING, Any

from ...exporter.quiet import quiet_loggers

if TYPE_CHECKING:
    import onnx_ir as ir
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = [
    "Registry",
    "export_public",
    "fast_path_available",
    "has_complex_operand",
    "optimize",
    "translate",
]

# They log about names and outputs, which we set ourselves.
_CHATTER = ("torch.onnx", "onnxscript", "onnx_ir")

_Translations = Mapping[Any, Callable[..., Any]]


@cache
def fast_path_available() -> bool:
    """Whether this torch has the private functions that `translate` calls, as we know them."""
    try:
        from onnxscript._framework_apis import torch_2_9
        from torch.onnx._internal.exporter import _core, _fx_passes, _registration
        from torch.onnx._internal.exporter._torchlib import _torchlib_registry
        from torch.onnx._internal.fx.passes import type_promotion

        expected = {
            _core._exported_program_to_onnx_program: {"exported_program", "registry", "lower"},
            _fx_passes.insert_type_promotion_nodes: {"graph_module"},
            _registration.ONNXRegistry._register: {"self", "target", "onnx_decomposition"},
            _registration.ONNXRegistry.register_op: {"self", "target", "function", "is_complex"},
            _registration._get_overload: {"qualified_name"},
            _torchlib_registry.get_torchlib_ops: set(),
            torch_2_9.get_torchlib_ops: set(),
            type_promotion.get_type_promotion_rule: {"node", "type_promotion_table"},
        }
        fields = set(inspect.signature(_registration.OnnxDecompMeta).parameters)
    except (ImportError, AttributeError, ValueError):
        return False
    needed = {"onnx_function", "fx_target", "signature", "is_custom", "is_complex"}
    return needed <= fields and all(
        set(inspect.signature(function).parameters) == names for function, names in expected.items()
    )


class Registry:
    """Which operators the installed torchlib translates; built once, without signatures."""

    def __init__(self, custom: _Translations, opset: int) -> None:
        from onnxscript._framework_apis.torch_2_9 import get_torchlib_ops
        from torch.onnx._internal.exporter._torchlib import _torchlib_registry

        self._custom = custom
        self._opset = max(opset, _BASE_OPSET)
        self._own: dict[Any, list[Any]] = {}
        for meta in _torchlib_registry.get_torchlib_ops():
            if meta.opset_introduced > self._opset:
                continue
            self._own.setdefault(_key(meta.fx_target), []).append(meta)
        self._library: dict[str, list[Any]] = {}
        for entry in get_torchlib_ops():
            self._library.setdefault(entry.qualified_name, []).append(entry)

    def has(self, target: Any) -> bool:
        """Whether an operator (overload or Python operator) has a translation."""
        return target in self._custom or _key(target) in self._own or _name(target) in self._library

    def takes(self, node: Node) -> bool:
        """Whether a node can be translated as it is, complex operands considered."""
        target = node.target
        if target is operator.getitem or target in self._custom:
            return True
        entries = (*self._own.get(_key(target), ()), *self._library.get(_name(target), ()))
        complex_operands = has_complex_operand(node)
        return any(bool(entry.is_complex) is complex_operands for entry in entries)

    def restricted_to(self, targets: Iterable[Any]) -> Any:
        """torch's registry object with the translations of `targets` only."""
        from torch.onnx._internal.exporter import _registration

        registry = _registration.ONNXRegistry()
        registry._opset_version = self._opset
        for target in dict.fromkeys(targets):
            for meta in self._own.get(_key(target), ()):
                registry._register(meta.fx_target, meta)
            for entry in self._library.get(_name(target), ()):
                meta = _registration.OnnxDecompMeta(
                    onnx_function=entry.function,
                    fx_target=target,
                    signature=None,
                    is_complex=entry.is_complex,
                )
                registry._register(target, meta)
        registry._cleanup_registry_based_on_opset_version()
        for target, function in self._custom.items():
            registry.register_op(target, function)
        return registry


def translate(program: ExportedProgram, registry: Registry, opset: int) -> ir.Model | None:
    """Translate a program as it is; None if some node needs the public exporter.

    The program is changed (type promotion); pass a copy.
    """
    from torch.onnx._internal.exporter import _core, _fx_passes

    nodes = [node for node in program.graph.nodes if node.op != "placeholder"]
    if any(node.op not in ("call_function", "output") for node in nodes):
        return None
    if not all(registry.takes(node) for node in nodes if node.op == "call_function"):
        return None
    _write_float_scalars(node for node in nodes if node.op == "call_function")
    if _needs_promotion(node for node in nodes if node.op == "call_function"):
        with _faked_sizes():
            _fx_passes.insert_type_promotion_nodes(program.graph_module)
    calls = [node for node in program.graph.nodes if node.op == "call_function"]
    if not all(registry.takes(node) for node in calls):
        return None
    known = registry.restricted_to(node.target for node in calls)
    with quiet_loggers(*_CHATTER):
        model = _core._exported_program_to_onnx_program(program, registry=known).model
    _convert_opset(model, opset)
    return model


def export_public(program: ExportedProgram, custom: _Translations, opset: int) -> Any:
    """torch's public exporter, optimisation left to the caller; returns its ONNXProgram."""
    import torch

    with quiet_loggers(*_CHATTER):
        return torch.onnx.export(
            program,
            (),
            opset_version=opset,
            custom_translation_table=dict(custom),
            dynamo=True,
            optimize=False,
            verbose=False,
        )


def optimize(model: ir.Model) -> None:
    """Constant folding and fusions of the onnx libraries, in place, as torch applies them."""
    import torch

    with quiet_loggers(*_CHATTER), _exact_identities():
        torch.onnx.ONNXProgram(model, None).optimize()


@contextmanager
def _exact_identities() -> Iterator[None]:
    """While active, onnxscript's patterns take a number for 0 or 1 only if it is exactly that.

    Its matcher allows 1e-5 (relative) and 1e-8 (absolute): `x + 1e-12` became `x`, and what
    was kept from dividing by zero did so (seen with onnxscript 0.7.2).
    """
    from onnxscript.rewriter import _matcher

    matcher: Any = _matcher.SimplePatternMatcher
    match = matcher._match_constant

    def exact(self: Any, pattern: Any, value: Any) -> bool:
        if not match(self, pattern, value):
            return False
        wanted = pattern.value
        if not isinstance(wanted, (int, float)) or not float(wanted).is_integer():
            return True
        found = value.const_value.numpy().item()
        return bool(found == wanted) or bool(self.fail(f"{found} is not exactly {wanted}"))

    matcher._match_constant = exact
    try:
        yield
    finally:
        matcher._match_constant = match


# The opset that torchlib's translations are written in.
_BASE_OPSET = 18


def _convert_opset(model: ir.Model, opset: int) -> None:
    from onnxscript import version_converter

    version_converter.convert_version(model, opset, fallback=True)


def _key(target: Any) -> Any:
    return target.name() if hasattr(target, "_schema") else target


def _name(target: Any) -> str:
    """The name torchlib registers an operator under."""
    import math

    if hasattr(target, "_schema"):
        return str(target.name())
    name = getattr(target, "__name__", str(target))
    if getattr(operator, name, None) is target:
        return f"_operator::{name}"
    if getattr(math, name, None) is target:
        return f"math::{name}"
    return name


def has_complex_operand(node: Node) -> bool:
    """Whether a node takes a complex tensor."""
    import torch

    values = (source.meta.get("val") for source in node.all_input_nodes)
    return any(isinstance(value, torch.Tensor) and value.is_complex() for value in values)


def _needs_promotion(calls: Iterable[Node]) -> bool:
    """Whether any node mixes dtypes in a way that ONNX operators would not."""
    from torch.onnx._internal.fx.passes import type_promotion

    table: Any = None
    for node in calls:
        if not _mixes_dtypes(node):
            continue
        table = table or type_promotion.TypePromotionTable()
        if type_promotion.get_type_promotion_rule(node, table) is not None:
            return True
    return False


def _mixes_dtypes(node: Node) -> bool:
    """Whether operands differ in dtype from each other or from the result (comparisons apart)."""
    import torch

    result = node.meta.get("val")
    if not isinstance(result, torch.Tensor):
        return False
    dtypes = {
        value.dtype
        for item in node.all_input_nodes
        if isinstance(value := item.meta.get("val"), torch.Tensor)
    }
    numbers = [item for _, item in _scalars(node)]
    if len(dtypes) != 1:
        return True
    operands = dtypes.pop()
    if result.dtype not in (operands, torch.bool) or operands == torch.bool:
        return True
    if operands.is_floating_point:
        return any(type(number) is not float for number in numbers)
    return any(not isinstance(number, int) or isinstance(number, bool) for number in numbers)


def _write_float_scalars(calls: Iterable[Node]) -> None:
    """`x * 2` as `x * 2.0` for a float tensor `x`: the promotion that needs no retrace."""
    import torch

    for node in calls:
        schema = getattr(node.target, "_schema", None)
        result = node.meta.get("val")
        if schema is None or not isinstance(result, torch.Tensor):
            continue
        operands = [item.meta.get("val") for item in node.all_input_nodes]
        if not operands or not all(
            isinstance(value, torch.Tensor) and value.is_floating_point() for value in operands
        ):
            continue
        for where, number in _scalars(node):
            if type(number) is not int:
                continue
            if isinstance(where, str):
                node.update_kwarg(where, float(number))
            else:
                node.update_arg(where, float(number))


def _scalars(node: Node) -> Iterator[tuple[int | str, Any]]:
    """Numbers that take part in arithmetic, with their position or name; not axes and sizes."""
    schema = getattr(node.target, "_schema", None)
    for index, entry in enumerate(schema.arguments if schema is not None else ()):
        if str(entry.type) not in ("number", "Tensor", "Optional[number]"):
            continue
        where: int | str = entry.name if entry.name in node.kwargs else index
        if isinstance(where, int) and where >= len(node.args):
            continue
        item: Any = node.kwargs[where] if isinstance(where, str) else node.args[where]
        value = item.meta.get("val") if hasattr(item, "meta") else item
        if isinstance(value, (int, float)) or type(value).__name__ in ("SymInt", "SymFloat"):
            yield where, value


@contextmanager
def _faked_sizes() -> Iterator[None]:
    """As torch's exporter does: sizes 0 and 1 are ordinary sizes."""
    from torch.fx.experimental import _config

    config: Any = _config
    with config.patch(backed_size_oblivious=True):
        yield
