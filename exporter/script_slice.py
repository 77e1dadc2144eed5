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

__all__ = ["ScriptSlice", "defined_in", "needed_by"]

_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
_IMPORTS = (ast.Import, ast.ImportFrom)
_WORK = (ast.For, ast.While, ast.With, ast.AsyncFor, ast.AsyncWith)
# Methods that train, write over files, read the command line or start something.
_WORKING_METHODS = frozenset(
    {
        *("backward", "fit", "train_on_batch", "step", "save", "save_pretrained", "dump"),
        *("run", "launch", "main", "load_state_dict", "mkdir", "makedirs"),
    }
)
_SETTINGS = (
    *("sys.path.", "warnings.", "logging.", "os.environ", "site.", "torch.set_"),
    *("torch.backends", "matplotlib.use"),
)


@dataclass(frozen=True)
class ScriptSlice:
    """`tree` to execute; `partial` if statements were left out."""

    tree: ast.Module
    partial: bool


def defined_in(source: str) -> list[str]:
    """The public classes, then functions, that a file's top level defines; nothing is run.

    Raises:
        SyntaxError: the source is not Python.
    """
    body = ast.parse(source).body
    classes = [node.name for node in body if isinstance(node, ast.ClassDef)]
    functions = [node.name for node in body if isinstance(node, ast.FunctionDef)]
    return [name for name in (*classes, *functions) if not name.startswith("_")]


def needed_by(source: str, name: str, *, always: bool = False) -> ScriptSlice:
    """The statements of `source` that defining `name` takes.

    The whole file is returned where its top level does no work of its own, unless
    `always` asks for the part.

    Raises:
        SyntaxError: the source is not Python.
    """
    tree = ast.parse(source)
    own = _OwnNames.of(tree)
    if not always and not any(_does_work(statement, own) for statement in tree.body):
        return ScriptSlice(tree, partial=False)
    statements = [one for statement in tree.body for one in _one_name_each(statement)]
    kept = _closure(statements, name)
    body: list[ast.stmt] = []
    for statement in statements:
        if statement in kept:
            body.append(statement)
        elif isinstance(statement, _IMPORTS):
            body.append(_tolerated(statement))
    return ScriptSlice(ast.Module(body=body, type_ignores=[]), partial=True)


def _one_name_each(statement: ast.stmt) -> list[ast.stmt]:
    """`import a, b` as two statements: the model may need only one of them."""
    if not isinstance(statement, ast.Import):
        return [statement]
    return [ast.copy_location(ast.Import(names=[alias]), statement) for alias in statement.names]


def _does_work(statement: ast.stmt, own: _OwnNames) -> bool:
    """Whether running this top-level statement is more than defining something."""
    if isinstance(statement, _WORK):
        return True
    if isinstance(statement, (ast.If, ast.Try)) and not _is_main_guard(statement):
        return any(_does_work(inner, own) for inner in _inner_statements(statement))
    if isinstance(statement, ast.Expr):
        return any(_call_works(node, own.functions) for node in _calls(statement))
    if isinstance(statement, (ast.Assign, ast.AnnAssign)):
        return any(_call_works(node, own.trainers) for node in _calls(statement))
    return False


@dataclass(frozen=True)
class _OwnNames:
    """Functions the file defines, and those among them that train."""

    functions: frozenset[str]
    trainers: frozenset[str]

    @staticmethod
    def of(tree: ast.Module) -> _OwnNames:
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        trainers = [node for node in functions if any(_trains(inner) for inner in ast.walk(node))]
        return _OwnNames(
            frozenset(node.name for node in functions), frozenset(node.name for node in trainers)
        )


def _trains(node: ast.AST) -> bool:
    return isinstance(node, ast.Attribute) and node.attr in ("backward", "fit")


def _calls(statement: ast.stmt) -> Iterable[ast.Call]:
    return (node for node in _shallow(statement) if isinstance(node, ast.Call))


def _call_works(call: ast.Call, own: frozenset[str]) -> bool:
    """A call of one of `own`, or of a method that trains, saves or runs something."""
    if isinstance(call.func, ast.Name):
        return call.func.id in own
    return isinstance(call.func, ast.Attribute) and call.func.attr in _WORKING_METHODS


def _closure(body: list[ast.stmt], name: str) -> set[ast.stmt]:
    """Settings and `__future__` imports, and what `name` needs, to a fixed point."""
    kept = {s for s in body if _is_future(s) or _is_setting(s) or _is_star(s)}
    wanted = {name}
    for statement in kept:
        wanted |= _reads(statement)
    while True:
        found = {s for s in body if s not in kept and _wanted(s, wanted)}
        if not found:
            return kept
        kept |= found
        for statement in found:
            wanted |= _reads(statement)


def _tolerated(statement: ast.stmt) -> ast.stmt:
    """An import nobody refers to may register things, or be of the training only: try it."""
    handler = ast.ExceptHandler(
        type=ast.Name(id="ImportError", ctx=ast.Load()), name=None, body=[ast.Pass()]
    )
    tried = ast.Try(body=[statement], handlers=[handler], orelse=[], finalbody=[])
    return ast.fix_missing_locations(ast.copy_location(tried, statement))


def _wanted(statement: ast.stmt, names: set[str]) -> bool:
    """Whether a statement defines one of `names`, or builds one up (`layers.append(...)`)."""
    if isinstance(statement, ast.With):
        return bool(_defines(statement) & names) and _only_reads(statement)
    if isinstance(statement, _WORK) or _is_main_guard(statement):
        return False
    if isinstance(statement, ast.Expr):
        call = statement.value
        if not isinstance(call, ast.Call) or not isinstance(call.func, ast.Attribute):
            return False
        return _root_name(call.func) in names and not _call_works(call, frozenset())
    return bool(_defines(statement) & names)


def _only_reads(statement: ast.With) -> bool:
    """A `with open(...) as file:` that fills variables, as a configuration is read."""
    plain = all(isinstance(s, (ast.Assign, ast.AnnAssign, ast.Pass)) for s in statement.body)
    return plain and not any(_call_works(call, frozenset()) for call in _calls(statement))


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


def _is_star(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.ImportFrom) and statement.names[0].name == "*"


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
