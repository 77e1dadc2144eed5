"""The part of a training script that a model's definition needs.

People write the model and the training loop into one file without a main
guard. Importing it to get the class would train again. Where the top level of
a file does work (a loop, a `with`, a call for its effect), only the statements
that the wanted name depends on are kept: imports, sys.path changes, the
definitions and assignments it refers to, transitively.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

__all__ = ["ScriptSlice", "needed_by"]

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_WORK = (ast.For, ast.While, ast.With, ast.AsyncFor, ast.AsyncWith)
# Calls whose statements are settings, not work.
_SETTINGS = (
    "sys.path.",
    "warnings.",
    "logging.",
    "os.environ",
    "site.",
    "torch.set_",
    "torch.backends",
)


@dataclass(frozen=True)
class ScriptSlice:
    """`tree` to execute; `partial` if statements were left out, at lines `skipped`."""

    tree: ast.Module
    partial: bool
    skipped: tuple[int, ...] = ()


def needed_by(source: str, name: str) -> ScriptSlice:
    """The statements of `source` that defining `name` takes.

    The whole file is returned where its top level does no work of its own.

    Raises:
        SyntaxError: the source is not Python.
    """
    tree = ast.parse(source)
    if not any(_does_work(statement, tree) for statement in tree.body):
        return ScriptSlice(tree, partial=False)
    kept = _closure(tree.body, name)
    skipped = tuple(s.lineno for s in tree.body if s not in kept and not _is_main_guard(s))
    body = [statement for statement in tree.body if statement in kept]
    return ScriptSlice(ast.Module(body=body, type_ignores=[]), partial=True, skipped=skipped)


def _does_work(statement: ast.stmt, tree: ast.Module) -> bool:
    """Whether running this top-level statement is more than defining something."""
    if isinstance(statement, _WORK):
        return True
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        return not _is_setting(statement)
    if isinstance(statement, (ast.If, ast.Try)) and not _is_main_guard(statement):
        return any(_does_work(inner, tree) for inner in _inner_statements(statement))
    return isinstance(statement, ast.Assign) and _reads_own_function(statement, tree)


def _reads_own_function(statement: ast.Assign, tree: ast.Module) -> bool:
    """`history = train(model)`: the file's own function that loops, called for its value."""
    loops = {
        node.name
        for node in tree.body
        if isinstance(node, ast.FunctionDef)
        and any(
            isinstance(inner, ast.Attribute) and inner.attr == "backward"
            for inner in ast.walk(node)
        )
    }
    return any(
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in loops
        for node in ast.walk(statement)
    )


def _closure(body: list[ast.stmt], name: str) -> set[ast.stmt]:
    """Settings and `__future__` imports, and what `name` needs, to a fixed point."""
    kept = {s for s in body if _is_future(s) or _is_setting(s) or isinstance(s, _IMPORTS)}
    wanted = {name}
    for statement in kept:
        wanted |= _reads(statement)
    while True:
        found = {s for s in body if s not in kept and _defines(s) & wanted and _may_keep(s)}
        if not found:
            return kept
        kept |= found
        for statement in found:
            wanted |= _reads(statement)


def _may_keep(statement: ast.stmt) -> bool:
    if isinstance(statement, _WORK) or _is_main_guard(statement):
        return False
    return not isinstance(statement, ast.Expr)


def _defines(statement: ast.stmt) -> set[str]:
    """Names that a statement binds at the top level."""
    if isinstance(statement, _DEFINITIONS):
        return {statement.name}
    if isinstance(statement, _IMPORTS):
        return {(alias.asname or alias.name).partition(".")[0] for alias in statement.names}
    if isinstance(statement, (ast.If, ast.Try)):
        return set().union(*(_defines(inner) for inner in _inner_statements(statement)))
    stored = {
        node.id
        for node in _shallow(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    }
    owners = {_root_name(target) for target in _targets(statement)}
    return stored | {owner for owner in owners if owner}


def _targets(statement: ast.stmt) -> Iterable[ast.expr]:
    if isinstance(statement, ast.Assign):
        return statement.targets
    if isinstance(statement, (ast.AugAssign, ast.AnnAssign)):
        return [statement.target]
    return []


def _root_name(node: ast.expr) -> str | None:
    while isinstance(node, (ast.Attribute, ast.Subscript)):
        node = node.value
    return node.id if isinstance(node, ast.Name) else None


def _reads(statement: ast.stmt) -> set[str]:
    return {
        node.id
        for node in ast.walk(statement)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
    }


def _shallow(statement: ast.stmt) -> Iterable[ast.AST]:
    """The statement's nodes, without the bodies of functions and lambdas."""
    pending: list[ast.AST] = [statement]
    while pending:
        node = pending.pop()
        yield node
        if not isinstance(node, (*_DEFINITIONS, ast.Lambda)):
            pending += ast.iter_child_nodes(node)


def _inner_statements(statement: ast.If | ast.Try) -> list[ast.stmt]:
    inner = list(statement.body) + list(statement.orelse)
    if isinstance(statement, ast.Try):
        inner += [s for handler in statement.handlers for s in handler.body]
        inner += statement.finalbody
    return inner


def _is_future(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.module == "__future__"


def _is_setting(statement: ast.stmt) -> bool:
    """`sys.path.insert(...)`, `warnings.filterwarnings(...)`, `torch.set_num_threads(...)`."""
    if not isinstance(statement, ast.Expr) or not isinstance(statement.value, ast.Call):
        return False
    return ast.unparse(statement.value.func).startswith(_SETTINGS)


def _is_main_guard(statement: ast.stmt) -> bool:
    if not isinstance(statement, ast.If):
        return False
    names = {node.id for node in ast.walk(statement.test) if isinstance(node, ast.Name)}
    return "__name__" in names
