"""Complex numbers inside a program as pairs of real ones, on a last axis of size 2.

Rotary embeddings are often written with `view_as_complex`, and no deployment format computes with
complex tensors throughout. All of a program's complex values are rewritten, or none: where one
operator is not known here (a matrix product, say), the target sees the program as it was.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch.fx import Node

from .nodes import Editor, argument, tensor_value

if TYPE_CHECKING:
    from torch.export import ExportedProgram

__all__ = ["complex_to_pairs"]

aten = torch.ops.aten


def complex_to_pairs(program: ExportedProgram) -> None:
    """Rewrite the program in place; its mappings of weights are replaced, not changed."""
    graph = program.graph_module.graph
    inputs = set(program.graph_signature.user_inputs)
    concerned = [
        node
        for node in graph.nodes
        if _is_complex(node) or any(map(_is_complex, node.all_input_nodes))
    ]
    if not concerned or not all(_is_known(node, inputs) for node in concerned):
        return
    weights = [node for node in concerned if node.op == "placeholder"]
    pairs = _Pairs(Editor(graph), concerned)
    _store(program, weights)
    for node in concerned:
        if node.op != "placeholder":
            pairs.rewrite(node)
    for node in reversed(concerned):
        if node.op != "placeholder":
            graph.erase_node(node)


def _is_complex(item: Any) -> bool:
    value = tensor_value(item)
    return value is not None and value.is_complex()


def _is_known(node: Node, inputs: set[str]) -> bool:
    if node.op == "placeholder":
        return node.name not in inputs
    if node.target in _SUMS:
        return all(map(_is_complex, node.args[:2])) and argument(node, "alpha") == 1
    if node.target is aten.mul.Tensor:
        return all(isinstance(item, (Node, int, float)) for item in node.args)
    if node.target is aten.div.Tensor:
        return isinstance(node.args[1], (Node, int, float)) and not _is_complex(node.args[1])
    if node.target in _OF_LISTS:
        return all(map(_is_complex, node.args[0]))  # type: ignore[arg-type]
    if node.target in _SUMS_ALONG:
        return argument(node, "dtype") is None and bool(argument(node, "dim"))
    return node.target in _RULES


def _store(program: ExportedProgram, weights: list[Node]) -> None:
    """Let complex weights be real ones with an axis more."""
    if not weights:
        return
    program._state_dict = dict(program.state_dict)
    program._constants = dict(program.constants)
    targets = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    for node in weights:
        fake: Any = node.meta["val"]
        with fake.fake_mode:
            node.meta["val"] = torch.view_as_real(fake.detach())
        target = targets[node.name]
        owner: Any = program._state_dict if target in program._state_dict else program._constants
        stored = owner[target]
        real = torch.view_as_real(stored.detach().resolve_conj())
        is_parameter = isinstance(stored, torch.nn.Parameter)
        owner[target] = torch.nn.Parameter(real, False) if is_parameter else real


class _Pairs:
    """The real node for each complex one."""

    def __init__(self, editor: Editor, concerned: list[Node]) -> None:
        self._editor = editor
        self._found: dict[Node, Node] = {n: n for n in concerned if n.op == "placeholder"}
        self._ranks = {n: n.meta["val"].dim() for n in concerned if _is_complex(n)}

    def rewrite(self, node: Node) -> None:
        """Make what stands for `node`; it takes the place of a real result at once."""
        result = self._exact(node, _RULES[node.target](self, node))
        if node in self._ranks:
            self._found[node] = result
        else:
            node.replace_all_uses_with(result)

    def _exact(self, node: Node, result: Node) -> Node:
        """`result` in the precision of `node`: pairs have an axis more, so they promote more."""
        wanted, found = node.meta["val"].dtype.to_real(), result.meta["val"].dtype
        if wanted == found:
            return result
        return self._editor.call(node, aten._to_copy.default, result, dtype=wanted)

    def call(self, node: Node, target: Any, *args: Any) -> Node:
        return self._editor.call(node, target, *args)

    def of(self, item: Any) -> Any:
        return self._found.get(item, item) if isinstance(item, Node) else item

    def has(self, item: Any) -> bool:
        return isinstance(item, Node) and item in self._ranks

    def parts(self, node: Node, item: Any) -> tuple[Node, Node]:
        """Real and imaginary part of a complex operand."""
        pair = self.of(item)
        return (
            self.call(node, aten.select.int, pair, -1, 0),
            self.call(node, aten.select.int, pair, -1, 1),
        )

    def join(self, node: Node, real: Node, imaginary: Node) -> Node:
        return self.call(node, aten.stack.default, [real, imaginary], -1)

    def axis(self, node: Node, item: Any, name: str, grown: int = 0) -> int:
        """A dim of `item`, counted from the front; `grown` axes are added by the operator."""
        dim = int(argument(node, name))
        return dim if dim >= 0 else dim + self._ranks[item] + grown


Rule = Callable[[_Pairs, Node], Node]


def _product(pairs: _Pairs, node: Node) -> Node:
    a, b = node.args
    if not (pairs.has(a) and pairs.has(b)):
        pair, factor = (a, b) if pairs.has(a) else (b, a)
        if isinstance(factor, Node) and factor.meta["val"].dim():
            factor = pairs.call(node, aten.unsqueeze.default, factor, -1)
        return pairs.call(node, aten.mul.Tensor, pairs.of(pair), factor)

    def times(left: Node, right: Node) -> Node:
        return pairs.call(node, aten.mul.Tensor, left, right)

    (ar, ai), (br, bi) = pairs.parts(node, a), pairs.parts(node, b)
    real = pairs.call(node, aten.sub.Tensor, times(ar, br), times(ai, bi))
    imaginary = pairs.call(node, aten.add.Tensor, times(ar, bi), times(ai, br))
    return pairs.join(node, real, imaginary)


def _quotient(pairs: _Pairs, node: Node) -> Node:
    pair, divisor = node.args
    if isinstance(divisor, Node) and divisor.meta["val"].dim():
        divisor = pairs.call(node, aten.unsqueeze.default, divisor, -1)
    return pairs.call(node, aten.div.Tensor, pairs.of(pair), divisor)


def _absolute(pairs: _Pairs, node: Node) -> Node:
    squares = [pairs.call(node, aten.mul.Tensor, p, p) for p in pairs.parts(node, node.args[0])]
    return pairs.call(node, aten.sqrt.default, pairs.call(node, aten.add.Tensor, *squares))


def _angle(pairs: _Pairs, node: Node) -> Node:
    real, imaginary = pairs.parts(node, node.args[0])
    return pairs.call(node, aten.atan2.default, imaginary, real)


def _each_alone(pairs: _Pairs, node: Node) -> Node:
    return pairs.call(node, node.target, pairs.of(node.args[0]))


def _of_list(grown: int) -> Rule:
    def rule(pairs: _Pairs, node: Node) -> Node:
        items: Any = node.args[0]
        dim = pairs.axis(node, items[0], "dim", grown)
        return pairs.call(node, node.target, [pairs.of(item) for item in items], dim)

    return rule


def _padded(pairs: _Pairs, node: Node) -> Node:
    borders: Any = node.args[1]
    number = argument(node, "value")  # of the real part; zeros stand for both
    if number:
        real, imaginary = pairs.parts(node, node.args[0])
        real = pairs.call(node, node.target, real, borders, number)
        imaginary = pairs.call(node, node.target, imaginary, borders, 0)
        return pairs.join(node, real, imaginary)
    return pairs.call(node, node.target, pairs.of(node.args[0]), [0, 0, *borders], 0)


def _along_list(pairs: _Pairs, node: Node) -> Node:
    """An operator on the dims in a list, whose other arguments stay."""
    target: Any = node.target
    source: Any = node.args[0]
    rank, args = source.meta["val"].dim(), []
    for entry in target._schema.arguments[1:]:
        value = argument(node, entry.name)
        if entry.name in ("dim", "dims"):
            value = [axis % rank for axis in value]
        if not entry.kwarg_only:
            args.append(value)
    return pairs.call(node, target, pairs.of(source), *args)


def _sum(pairs: _Pairs, node: Node) -> Node:
    return pairs.call(node, node.target, pairs.of(node.args[0]), pairs.of(node.args[1]))


def _polar(pairs: _Pairs, node: Node) -> Node:
    size, angle = node.args
    turned = [pairs.call(node, op, angle) for op in (aten.cos.default, aten.sin.default)]
    return pairs.join(node, *(pairs.call(node, aten.mul.Tensor, size, part) for part in turned))


def _conjugate(pairs: _Pairs, node: Node) -> Node:
    real, imaginary = pairs.parts(node, node.args[0])
    return pairs.join(node, real, pairs.call(node, aten.neg.default, imaginary))


def _same(pairs: _Pairs, node: Node) -> Node:
    result: Node = pairs.of(node.args[0])
    return result


def _along(*names: str, grown: int = 0) -> Rule:
    """An operator on the dims `names`, whose other arguments stay."""

    def rule(pairs: _Pairs, node: Node) -> Node:
        target: Any = node.target
        args = []
        for entry in target._schema.arguments:
            value = argument(node, entry.name)
            if entry.name in names:
                value = pairs.axis(node, node.args[0], entry.name, grown)
            args.append(value)
        return pairs.call(node, target, pairs.of(node.args[0]), *args[1:])

    return rule


def _sized(name: str, last: int) -> Rule:
    """An operator on a list of sizes, with `last` for the axis of the pair."""

    def rule(pairs: _Pairs, node: Node) -> Node:
        sizes = [*argument(node, name), last]
        return pairs.call(node, node.target, pairs.of(node.args[0]), sizes)

    return rule


def _permute(pairs: _Pairs, node: Node) -> Node:
    dims = [int(dim) % len(node.args[1]) for dim in node.args[1]]  # type: ignore[arg-type, union-attr]
    return pairs.call(node, node.target, pairs.of(node.args[0]), [*dims, len(dims)])


def _index(pairs: _Pairs, node: Node) -> Node:
    return pairs.call(node, node.target, pairs.of(node.args[0]), node.args[1])


_SUMS = (aten.add.Tensor, aten.sub.Tensor)
_OF_LISTS = (aten.cat.default, aten.stack.default)
_SUMS_ALONG = (aten.sum.dim_IntList, aten.mean.dim)

_RULES: dict[Any, Rule] = {
    aten.view_as_complex.default: _same,
    aten.view_as_real.default: _same,
    aten.polar.default: _polar,
    aten.complex.default: lambda pairs, node: pairs.join(node, *node.args),  # type: ignore[arg-type]
    aten.real.default: lambda pairs, node: pairs.parts(node, node.args[0])[0],
    aten.imag.default: lambda pairs, node: pairs.parts(node, node.args[0])[1],
    aten.mul.Tensor: _product,
    aten.div.Tensor: _quotient,
    aten.abs.default: _absolute,
    aten.angle.default: _angle,
    aten.neg.default: _each_alone,
    **dict.fromkeys(_SUMS, _sum),
    **dict.fromkeys((*_SUMS_ALONG, aten.flip.default), _along_list),
    aten.cat.default: _of_list(0),
    aten.stack.default: _of_list(1),
    aten.constant_pad_nd.default: _padded,
    **dict.fromkeys(
        (aten._conj.default, aten.conj.default, aten.conj_physical.default), _conjugate
    ),
    **dict.fromkeys((aten.clone.default, aten.contiguous.default, aten.detach.default), _same),
    **dict.fromkeys((aten.alias.default, aten.lift_fresh_copy.default), _same),
    **dict.fromkeys((aten.resolve_conj.default,), _same),
    aten.unsqueeze.default: _along("dim", grown=1),
    aten.squeeze.dim: _along("dim"),
    aten.select.int: _along("dim"),
    aten.slice.Tensor: _along("dim"),
    aten.index_select.default: _along("dim"),
    aten.transpose.int: _along("dim0", "dim1"),
    aten.flatten.using_ints: _along("start_dim", "end_dim"),
    aten.permute.default: _permute,
    aten.index.Tensor: _index,
    aten.expand.default: _sized("size", -1),
    aten.view.default: _sized("size", 2),
    aten.reshape.default: _sized("shape", 2),
    aten.repeat.default: _sized("repeats", 1),
}
