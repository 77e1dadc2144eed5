"""Finds what source files use of TensorRT's Python API: classes, members, enum names, calls.

Types are followed from the variables that `ROOTS` names, through assignments and through the
results that the recorded calls declare. What looks like TensorRT's and was not followed is
returned too, so that nothing is passed over in silence.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODULE = "(module)"

_COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.GeneratorExp, ast.DictComp)

# What docstrings call a class by its C++ name.
_ALIASES = {"nvonnxparser::IParserError": "ParserError"}


@dataclass(frozen=True)
class Use:
    """`owner.member`; for a call also how many arguments, and the names of named ones."""

    owner: str
    member: str
    where: str
    call: tuple[int, tuple[str, ...]] | None = None


@dataclass(frozen=True)
class Loose:
    """An attribute of something whose type is not known."""

    name: str
    where: str


class Finder:
    """Walks one file.

    Args:
        roots: types by variable or attribute name, such as {"config": "IBuilderConfig"}.
        calls: results of calls, as `record_api.py` writes them.
        surface: public members of classes.
    """

    def __init__(
        self, roots: Mapping[str, str], calls: Mapping[str, Any], surface: Mapping[str, Any]
    ) -> None:
        self._roots, self._calls, self._surface = roots, calls, surface
        self._scopes: list[dict[str, str | None]] = [{}]
        self._file = ""
        self.uses: list[Use] = []
        self.loose: list[Loose] = []
        self.met: set[str] = set()

    def read(self, path: Path) -> None:
        self._file = path.name
        self._visit(ast.parse(path.read_text(encoding="utf-8")))

    def _visit(self, node: ast.AST) -> None:
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            arguments = [*node.args.args, *node.args.kwonlyargs]
            self._scopes.append({arg.arg: None for arg in arguments if _typed(arg)})
            self._children(node)
            self._scopes.pop()
        elif isinstance(node, ast.ClassDef):
            for base in node.bases:
                self._type(base)
            for part in node.body:
                self._visit(part)
        elif isinstance(node, (ast.Assign, ast.NamedExpr)):
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            self._assign(target, node.value)
        elif isinstance(node, _COMPREHENSIONS):
            targets = [name for made in node.generators for name in ast.walk(made.target)]
            self._scopes.append({name.id: None for name in targets if isinstance(name, ast.Name)})
            self._children(node)
            self._scopes.pop()
        elif isinstance(node, ast.expr):
            self._type(node)
        else:
            self._children(node)

    def _children(self, node: ast.AST) -> None:
        for child in ast.iter_child_nodes(node):
            self._visit(child)

    def _assign(self, target: ast.expr, value: ast.expr) -> None:
        pairs = isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple)
        if pairs and len(target.elts) == len(value.elts):  # type: ignore[attr-defined]
            for one, other in zip(target.elts, value.elts, strict=True):  # type: ignore[attr-defined]
                self._assign(one, other)
            return
        found = self._type(value)
        if isinstance(target, ast.Name):
            # Who loads the module is one of ours, whose result is not known.
            if found is None and self._roots.get(target.id) == MODULE:
                found = self._root(target.id)
            self._scopes[-1][target.id] = found
        else:
            self._visit(target)

    def _type(self, node: ast.expr) -> str | None:
        """The TensorRT class of an expression's value; "class X" for X itself; else None."""
        if isinstance(node, ast.Name):
            for scope in reversed(self._scopes):
                if node.id in scope:
                    return scope[node.id]
            return self._root(node.id)
        if isinstance(node, ast.Attribute):
            return self._attribute(node)
        if isinstance(node, ast.Call):
            return self._call(node)
        if isinstance(node, (*_COMPREHENSIONS, ast.Lambda, ast.NamedExpr)):
            self._visit(node)
        else:
            self._children(node)
        return None

    def _root(self, name: str) -> str | None:
        if name in self._roots:
            self.met.add(name)
        return self._roots.get(name)

    def _attribute(self, node: ast.Attribute) -> str | None:
        owner = self._type(node.value)
        if owner is None:
            found = self._root(node.attr)
            if found is None:
                self.loose.append(Loose(node.attr, self._where(node)))
            return found
        self.uses.append(Use(owner.removeprefix("class "), node.attr, self._where(node)))
        return f"class {node.attr}" if owner == MODULE and node.attr in self._surface else None

    def _call(self, node: ast.Call) -> str | None:
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            self._visit(argument)
        owner, member, made = self._callee(node)
        if member is None:
            return None
        where = self._where(node)
        if not any(isinstance(argument, ast.Starred) for argument in node.args):
            names = tuple(keyword.arg or "" for keyword in node.keywords)
            self.uses.append(Use(owner, member, where, (len(node.args), names)))
        return made

    def _callee(self, node: ast.Call) -> tuple[str, str | None, str | None]:
        function = node.func
        known = self._type(function)
        if known is not None and known.startswith("class "):
            name = known.removeprefix("class ")
            return MODULE, name, name
        if isinstance(function, ast.Attribute):
            owner = self.uses[-1].owner if self.uses else ""
            if self.uses and self.uses[-1].where == self._where(function):
                member = function.attr
                key = member if owner == MODULE else f"{owner}.{member}"
                results = self._calls.get(key)
                made = results[0][1] if results else None
                return owner, member, _ALIASES.get(made, made)
        if isinstance(function, ast.Name) and function.id in ("getattr", "hasattr"):
            self._named(node)
        return "", None, None

    def _named(self, node: ast.Call) -> None:
        """`getattr(owner, "member")`; `hasattr` and a default ask, and do not demand."""
        owner, name = self._type(node.args[0]), node.args[1]
        demanded = isinstance(node.func, ast.Name) and node.func.id == "getattr"
        if owner and demanded and len(node.args) == 2 and isinstance(name, ast.Constant):
            self.uses.append(Use(owner.removeprefix("class "), name.value, self._where(node)))

    def _where(self, node: ast.expr) -> str:
        return f"{self._file}:{node.lineno}:{node.end_lineno}:{node.end_col_offset}"


def _typed(argument: ast.arg) -> bool:
    """Whether a parameter is declared to be one of our own objects, or Python's."""
    return argument.annotation is not None and ast.unparse(argument.annotation) != "Any"


def has_module(path: Path) -> bool:
    """Whether a file takes, keeps or loads TensorRT's module or a network of it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.arg) and node.arg in ("module", "trt", "network", "parsed"):
            if not _typed(node) or "ParsedNetwork" in ast.unparse(node.annotation or node):
                return True
        elif isinstance(node, ast.Attribute) and node.attr == "load":
            if isinstance(node.value, ast.Name) and node.value.id == "product":
                return True
        elif isinstance(node, ast.Attribute) and ast.unparse(node) == "parsed.module":
            return True
    return False


def upper_strings(path: Path) -> Iterator[str]:
    """String constants that look like names of enum members, but for those of `__all__`."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    exported = [
        name
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
        for name in ast.walk(node)
    ]
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in exported:
            text = node.value
            if text.isidentifier() and text.isupper() and text[0].isalpha() and len(text) > 1:
                yield text


def layer_attributes(path: Path) -> Iterator[str]:
    """Names of attributes that an evaluator's function reads of its layer, or ignores."""
    readers = {"value", "weights", "integer", "number", "flag", "integers", "axes", "choice"}
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)):
            continue
        base = node.func.value
        if isinstance(base, ast.Name) and base.id == "call":
            named = node.args if node.func.attr == "ignore" else node.args[:1]
            if node.func.attr in {*readers, "ignore"}:
                for argument in named:
                    if isinstance(argument, ast.Constant) and isinstance(argument.value, str):
                        yield argument.value
