"""Do the sizes that a program assumes hold for every size that was asked for?

torch.export refuses a program whose assumptions ("guards") its solver cannot prove, and some
that always hold, such as t//2 <= t, are beyond it. Traced with assertions in place of guards
the program tells its assumptions, and they are tried here, size by size.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from .signature import Dim

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

__all__ = ["Broken", "broken_checks", "demand_checks", "drop_size_checks"]

# How many combinations of sizes are tried; a range with fewer sizes is tried whole.
_TRIALS = 1024


@dataclass
class Broken(Exception):  # noqa: N818 - it is told as a `ConversionError`
    """An assumption that fails: in the user's dims, at which sizes, and what sizes are fine."""

    condition: str
    sizes: str
    remedy: str
    at: dict[str, int]

    def __str__(self) -> str:
        return f"it assumes {self.condition}, which fails for {self.sizes}"


def demand_checks(program: ExportedProgram, axes: Sequence[Mapping[int, Dim]]) -> None:
    """Try the program's assertions on sizes of its inputs.

    Ranges of up to 1024 sizes are tried whole. Of larger ones, and of several dims together, the
    smallest sizes, the bounds, and those around powers of two and around every number in the
    assertion are tried, which is no proof, but all that such formulas (`//`, `%`, comparisons)
    turn on.

    Args:
        axes: the dims of each input, by axis.

    Raises:
        Broken: an assertion fails for some size.
    """
    if found := broken_checks(program, axes):
        raise found[0]


def broken_checks(program: ExportedProgram, axes: Sequence[Mapping[int, Dim]]) -> list[Broken]:
    """Each assertion that fails for some size, with the first such size; see `demand_checks`."""
    conditions = _conditions(program)
    found: list[Broken] = []
    dims = _dims(program, axes) if conditions else {}
    for condition in conditions:
        symbols = sorted(condition.free_symbols, key=str)
        if not all(symbol in dims for symbol in symbols):
            continue  # of a size that depends on values: torch derived it from the operator
        for sizes in _trials(condition, symbols, dims):
            if not _holds(condition, dict(zip(symbols, sizes, strict=True))):
                found.append(_broken(condition, conditions, symbols, sizes, dims))
                break
    return found


def drop_size_checks(program: ExportedProgram) -> None:
    """Erase the assertions on sizes of inputs, and what was computed for them alone."""
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    graph = program.graph_module.graph
    for node in _assertions(program):
        value = getattr(node.args[0], "meta", {}).get("val")
        if value is not None and not free_unbacked_symbols(value):
            graph.erase_node(node)
    graph.eliminate_dead_code()
    program.graph_module.recompile()


def _assertions(program: ExportedProgram) -> list[Node]:
    import torch

    kind = torch.ops.aten._assert_scalar.default
    return [node for node in program.graph_module.graph.nodes if node.target is kind]


def _conditions(program: ExportedProgram) -> list[Any]:
    """The asserted formulas (sympy), each once."""
    found: dict[str, Any] = {}
    for node in _assertions(program):
        value = getattr(node.args[0], "meta", {}).get("val")
        expression = getattr(getattr(value, "node", None), "expr", None)
        if expression is not None and expression.free_symbols:
            found.setdefault(str(expression), expression)
    return list(found.values())


def _dims(program: ExportedProgram, axes: Sequence[Mapping[int, Dim]]) -> dict[Any, Dim]:
    """The user's dim for each symbol; the symbol stands for the size divided by the step."""
    import sympy
    from torch.export.graph_signature import InputKind

    values = {node.name: node.meta.get("val") for node in program.graph_module.graph.nodes}
    inputs = [
        spec.arg.name
        for spec in program.graph_signature.input_specs
        if spec.kind is InputKind.USER_INPUT
    ]
    dims: dict[Any, Dim] = {}
    for name, found in zip(inputs, axes, strict=True):
        for axis, dim in found.items():
            size = values[name].shape[axis]
            expression = None if isinstance(size, int) else size.node.expr
            for symbol in expression.free_symbols if expression is not None else ():
                if expression in (symbol, sympy.Integer(dim.step) * symbol):
                    dims[symbol] = dim
    return dims


def _trials(condition: Any, symbols: Sequence[Any], dims: Mapping[Any, Dim]) -> Any:
    """Sizes to try, in the order of `symbols`."""
    import sympy

    share = int(_TRIALS ** (1 / len(symbols)))
    atoms = {abs(int(n)) for n in condition.atoms(sympy.Integer)} - {0} | {1}
    numbers = sorted({n // m for n in atoms for m in atoms})  # 2*t != 1000 turns on 500
    return itertools.product(*(_sizes(dims[symbol], share, numbers) for symbol in symbols))


def _sizes(dim: Dim, count: int, numbers: Sequence[int]) -> list[int]:
    low = -(-dim.min // dim.step)
    high = (1 << 31 if dim.max is None else dim.max) // dim.step
    if high - low < count:
        return list(range(low, high + 1))
    near = [*numbers, high, *(1 << power for power in range(4, 31, 3))]
    chosen = {size + offset for size in near for offset in (-1, 0, 1)}
    chosen |= set(range(low, low + max(count // 2, 4)))
    return sorted(size for size in chosen if low <= size <= high)


def _holds(condition: Any, sizes: Mapping[Any, int]) -> bool:
    from torch.utils._sympy.interp import sympy_interp
    from torch.utils._sympy.reference import PythonReferenceAnalysis

    try:
        return bool(sympy_interp(PythonReferenceAnalysis, dict(sizes), condition))
    except ArithmeticError:  # t % (t//8) for t = 4
        return False


def _broken(
    condition: Any,
    conditions: Sequence[Any],
    symbols: Sequence[Any],
    sizes: Sequence[int],
    dims: Mapping[Any, Dim],
) -> Broken:
    import sympy

    names = {
        s: sympy.Symbol(dims[s].name if dims[s].step == 1 else f"({dims[s].name}/{dims[s].step})")
        for s in symbols
    }
    at = {dims[s].name: size * dims[s].step for s, size in zip(symbols, sizes, strict=True)}
    told = ", ".join(f"{name} = {size}" for name, size in at.items())
    remedy = _remedy(conditions, symbols[0], dims[symbols[0]]) if len(symbols) == 1 else ""
    formula = condition.subs(names)
    sign = getattr(formula, "rel_op", None)
    text = f"{formula.lhs} {sign} {formula.rhs}" if sign else str(formula)
    return Broken(text, told, remedy, at)


def _remedy(conditions: Sequence[Any], symbol: Any, dim: Dim) -> str:
    """The range for which all assertions on the symbol alone hold, if it is one range."""
    alone = [c for c in conditions if c.free_symbols == {symbol}]
    tried = sorted({size for c in alone for (size,) in _trials(c, [symbol], {symbol: dim})})
    fine = [size for size in tried if all(_holds(c, {symbol: size}) for c in alone)]
    if not fine or fine != [size for size in tried if fine[0] <= size <= fine[-1]]:
        return ""
    opened = dim.max is None and fine[-1] == tried[-1]
    high = "" if opened else fine[-1] * dim.step
    return f"{dim.name} works for {fine[0] * dim.step}..{high}"
