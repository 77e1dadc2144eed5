"""Read what a TorchScript or torch.export archive would do, before torch loads it.

Both formats carry programs, and torch trusts them: `torch.export.load` evaluates
symbolic expressions and guards as Python, looks operators up by attribute path
and unpickles members; TorchScript can write files. Everything here works on the
archive's text, and refuses what a saved model has no need of.
"""

from __future__ import annotations

import ast
import json
import re
import token
import tokenize
from collections.abc import Iterable, Iterator, Mapping
from io import StringIO
from typing import Any, NoReturn

__all__ = ["RefusedError", "vet_payloads", "vet_program", "vet_script"]


class RefusedError(Exception):
    """The archive would do something that a model has no need of; says what."""


# Operators that touch files, other processes or Python.
_FILE_OPERATORS = frozenset({"save", "from_file", "load_tensor"})
_OPERATOR_NAMESPACES = frozenset(
    {
        *("aten", "prim", "prims", "quantized", "_quantized", "quantized_decomposed", "sparse"),
        *("mkldnn", "mkldnn_prepacked", "onednn", "torchvision", "torchaudio", "onnx", "image"),
    }
)
_HIGHER_ORDER = frozenset(
    {
        *("cond", "map", "map_impl", "scan", "while_loop", "associative_scan", "flex_attention"),
        *("wrap_with_set_grad_enabled", "wrap_with_autocast", "out_dtype", "invoke_subgraph"),
    }
)
_PYTHON_OPERATORS = frozenset(
    {
        *(
            f"_operator.{name}"
            for name in (
                *("eq", "ne", "le", "ge", "lt", "gt", "neg", "pos", "mul", "add", "sub", "mod"),
                *("floordiv", "pow", "truediv", "and_", "or_", "lshift", "rshift", "getitem"),
            )
        ),
        *("math.trunc", "math.floor", "math.ceil", "math.sqrt"),
        *(
            f"torch.{name}"
            for name in (
                *("sym_not", "sym_int", "sym_float", "sym_ite", "sym_max", "sym_min", "sym_sum"),
                *("sym_sqrt", "_sym_sqrt"),
            )
        ),
        *(f"torch.{name}" for name in ("sym_constrain_range_for_size", "sym_constrain_range")),
    }
)
_EXPRESSION_CALLS = frozenset(
    {
        *("Symbol", "Integer", "Float", "Rational", "Add", "Mul", "Pow", "Mod", "Max", "Min"),
        *("floor", "ceiling", "Abs", "sqrt", "log", "Eq", "Ne", "Lt", "Le", "Gt", "Ge"),
        *("Equality", "Unequality", "StrictLessThan", "StrictGreaterThan", "LessThan"),
        *("GreaterThan", "And", "Or", "Not", "Piecewise", "ExprCondPair", "Tuple"),
        *("FloorDiv", "ModularIndexing", "Where", "PythonMod", "CleanDiv", "CeilToInt"),
        *("FloorToInt", "CeilDiv", "LShift", "RShift", "PowByNatural", "FloatPow"),
        *("FloatTrueDiv", "IntTrueDiv", "IsNonOverlappingAndDenseIndicator", "TruncToFloat"),
        *("TruncToInt", "RoundToInt", "RoundDecimal", "ToFloat", "Identity"),
        *("BooleanTrue", "BooleanFalse", "Infinity", "NegativeInfinity", "IntInfinity"),
        *("NegativeIntInfinity", "Half", "One", "Zero", "NegativeOne"),
    }
)
_PLAIN_NODES = (
    *(ast.Expression, ast.Constant, ast.Name, ast.Load, ast.BinOp, ast.UnaryOp, ast.BoolOp),
    *(ast.Compare, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.keyword, ast.Tuple),
)
_GUARD_CALLS = frozenset({"size", "stride", "storage_offset", "dim", "ndimension", "isnan", "len"})
_NAME = re.compile(r"[A-Za-z_]\w*")
_QUALIFIED_NAME = re.compile(r"[\w.\-/:<>\[\]+* ]*")


def vet_program(text: str) -> None:
    """Vet a torch.export program (`models/NAME.json`).

    Raises:
        RefusedError: an operator, expression, guard, name or tree that could run code.
    """
    document = json.loads(text)
    for path, value in _strings(document, ()):
        _vet_string(path, value)


def _strings(value: Any, path: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], str]]:
    """Every string in a document with the keys that lead to it; keys count as names."""
    pending: list[tuple[tuple[str, ...], Any]] = [(path, value)]
    while pending:
        where, item = pending.pop()
        if isinstance(item, str):
            yield where, item
        elif isinstance(item, Mapping):
            for key, child in item.items():
                yield (*where, "name of a field"), key
                pending.append(((*where, key), child))
        elif isinstance(item, list):
            pending += [(where, child) for child in item]


def _vet_string(path: tuple[str, ...], value: str) -> None:
    key = path[-1] if path else ""
    if "metadata" in path or key in ("as_string", "as_strings"):
        return  # shown or passed as data, never evaluated
    if key in ("target", "as_operator") and "signature" not in path:
        _vet_operator(value)
    elif key == "expr_str":
        _vet_expression(value)
    elif key == "guards_code":
        _vet_guard(value)
    elif key in ("in_spec", "out_spec"):
        _vet_tree(value)
    elif key in ("name", "as_name", "forward_arg_names"):
        if value and not _NAME.fullmatch(value):
            _refuse(f"the name {value!r}")
    elif not _QUALIFIED_NAME.fullmatch(value):
        _refuse(f"{key or 'a string'} {value[:60]!r}")


def _refuse(what: str) -> NoReturn:
    raise RefusedError(what)


def _vet_operator(target: str) -> None:
    if not target or target in _PYTHON_OPERATORS:
        return
    parts = target.split(".")
    if parts[:2] != ["torch", "ops"] or not all(_NAME.fullmatch(part) for part in parts):
        _refuse(f"the function {target}")
    if len(parts) < 4:
        _refuse(f"the function {target}")
    namespace, name = parts[2], parts[3]
    if namespace == "higher_order":
        if name not in _HIGHER_ORDER or len(parts) != 4:
            _refuse(f"the operator {target}")
    elif namespace not in _OPERATOR_NAMESPACES or name in _FILE_OPERATORS or len(parts) > 5:
        _refuse(f"the operator {target}")


def _vet_expression(text: str) -> None:
    """A sympy expression: arithmetic over symbols, and calls of sympy's own functions."""
    for node in ast.walk(_parsed(text)):
        if isinstance(node, ast.Call):
            if not isinstance(node.func, ast.Name) or node.func.id not in _EXPRESSION_CALLS:
                _refuse(f"the expression {text[:80]}")
        elif not isinstance(node, _PLAIN_NODES):
            _refuse(f"the expression {text[:80]}")
        elif isinstance(node, ast.Constant) and isinstance(node.value, (str, bytes)):
            # sympy parses strings handed to most functions; only names may pass.
            if not isinstance(node.value, str) or not re.fullmatch(
                r"\w{1,40}|[\d.eE+-]+", node.value
            ):
                _refuse(f"the expression {text[:80]}")
        elif isinstance(node, ast.Name) and node.id.startswith("__"):
            _refuse(f"the expression {text[:80]}")


def _vet_guard(text: str) -> None:
    """A guard: comparisons of sizes and values of inputs, as in `L['x'].size()[0] >= 2`."""
    for node in ast.walk(_parsed(text)):
        allowed: bool
        if isinstance(node, ast.Call):
            name = node.func.attr if isinstance(node.func, ast.Attribute) else None
            name = node.func.id if isinstance(node.func, ast.Name) else name
            allowed = name in _GUARD_CALLS or name in _EXPRESSION_CALLS
        elif isinstance(node, ast.Attribute):
            allowed = not node.attr.startswith("_")
        elif isinstance(node, ast.Name):
            allowed = node.id in ("L", "math", "torch", "len") or node.id in _EXPRESSION_CALLS
        else:
            allowed = isinstance(node, (*_PLAIN_NODES, ast.Subscript))
        if not allowed:
            _refuse(f"the guard {text[:80]}")


def _parsed(text: str) -> ast.AST:
    try:
        return ast.parse(text.strip(), mode="eval")
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        _refuse(f"the expression {text[:80]!r}, which is no expression")


def _vet_tree(text: str) -> None:
    """A pytree specification: nested types whose contexts are plain values."""
    try:
        found = json.loads(text) if text else None
    except ValueError:
        _refuse(f"the argument tree {text[:60]!r}")
    for path, value in _strings(found, ()):
        if value.startswith(("[", "{", '"')):
            _vet_tree(value)
        elif value in ("__enum__", "default_factory_module") or "__" in value:
            _refuse(f"the argument tree's {value!r}, which imports a module")
        elif not re.fullmatch(r"[\w.\- ]*", value):
            _refuse(f"the argument tree's {'.'.join(path)} {value[:60]!r}")


def vet_payloads(text: str) -> None:
    """Vet a weights or constants table of a torch.export archive.

    Raises:
        RefusedError: it holds an object that torch unpickles without restriction.
    """
    for entry in json.loads(text).get("config", {}).values():
        name = str(entry.get("path_name"))
        if not re.fullmatch(r"(weight|tensor)_\w+", name):
            _refuse(f"the object {name}")


def vet_script(name: str, text: str) -> None:
    """Vet one source member of a TorchScript archive.

    Raises:
        RefusedError: it names an operator that touches files, Python or other processes.
    """
    words = _words(text)
    for index, word in enumerate(words):
        before = words[index - 1] if index else ""
        two_before = words[index - 2] if index > 1 else ""
        if before == "." and word in _FILE_OPERATORS:
            _refuse(f"a call of {two_before}.{word} in {name}")
        if before == "^":
            _refuse(f"a call of the Python function {word} in {name}")
        if word.startswith(("rpc_", "_rpc_")):
            _refuse(f"a call of {word} in {name}")
        if before == "." and two_before == "ops" and word not in _OPERATOR_NAMESPACES:
            _refuse(f"an operator of the library {word} in {name}")
        if words[index : index + 2] == ["classes", "."]:
            library = words[index + 2] if index + 2 < len(words) else ""
            if library not in ("quantized", "sparse", "xnnpack"):
                _refuse(f"a native class of the library {library} in {name}")


def _words(text: str) -> list[str]:
    """Names and operators of TorchScript source, without strings and comments."""
    kept: list[str] = []
    lines: Iterable[tokenize.TokenInfo] = tokenize.generate_tokens(StringIO(text).readline)
    try:
        for found in lines:
            if found.type in (token.NAME, token.OP, token.ERRORTOKEN):
                kept.append(found.string)
    except (tokenize.TokenError, SyntaxError, IndentationError):
        _refuse("source that cannot be read")
    return kept
