"""Ways to trace a module into an `ExportedProgram`, tried in order.

A failure is data: it is kept with its strategy, and when none works the first
one is told in the user's words, with torch's suggestions translated.
"""

from __future__ import annotations

import contextlib
import functools
import io
import logging
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

from ..errors import ConversionError, first_line
from .graph import Attempt
from .guard_trials import demand_same_results
from .guards import Broken, demand_checks, drop_size_checks
from .quiet import quiet_loggers
from .rewrites.attention import plain_attention
from .rewrites.linspace import linspace_of_any_length
from .rewrites.pooling import ceil_mode_without_guards
from .rewrites.recurrent import whole_recurrent_operators
from .signature import Dim

__all__ = ["try_strategies"]


def try_strategies(
    module: torch.nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    leaves: Sequence[Any],
    names: Sequence[str],
    axes: Mapping[str, Mapping[int, Dim]],
) -> tuple[ExportedProgram, tuple[Attempt, ...]]:
    """The program from the first strategy that works, and every attempt up to it.

    `names` and `leaves` are the call's leaves; `axes` the dynamic dims by name and axis.

    Raises:
        ConversionError: no strategy works; says why and what to change.
    """
    torch_dims = _torch_dims(axes)
    free = {
        id(leaf): {axis: torch_dims[dim.name] for axis, dim in axes[name].items()}
        for name, leaf in zip(names, leaves, strict=True)
        if isinstance(leaf, torch.Tensor) and axes.get(name)
    }
    attempts: list[Attempt] = []
    errors: list[BaseException] = []
    dims = [axes.get(name, {}) for name in names]
    checked = functools.partial(_trace_checked, dims=dims)
    strategies = _strategies(module)
    while strategies:
        strategy, run = strategies.pop(0)
        start = time.perf_counter()
        try:
            with (
                _quiet(),
                torch.no_grad(),
                plain_attention(),
                whole_recurrent_operators(),
                ceil_mode_without_guards(),
                linspace_of_any_length(),
            ):
                program = run(module, args, kwargs, free)
                if strategy == "torch.export":
                    _try_guards(module, args, kwargs, free, program, dims)
        except Exception as error:
            if isinstance(error, Broken) and not errors:
                raise _refused_sizes(error, error.remedy) from error
            errors.append(error)
            attempts.append(Attempt(strategy, time.perf_counter() - start, first_line(error)))
            if strategy == "torch.export" and _is_unproven(error):
                strategies.insert(0, ("torch.export with sizes tried", checked))
            continue
        attempts.append(Attempt(strategy, time.perf_counter() - start))
        return program, tuple(attempts)
    raise _capture_error(attempts, errors)


AxisMap = Mapping[int, Mapping[int, Any]]
_Strategy = Callable[[Any, tuple[Any, ...], dict[str, Any], AxisMap], ExportedProgram]


def _strategies(module: torch.nn.Module) -> list[tuple[str, _Strategy]]:
    if isinstance(module, torch.jit.ScriptModule):
        return [("torchscript", _from_torchscript)]
    return [
        ("torch.export", functools.partial(_trace, strict=False)),
        ("torch.export strict", functools.partial(_trace, strict=True)),
    ]


def _trace(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], axes: AxisMap, *, strict: bool
) -> ExportedProgram:
    shapes = _dynamic_shapes(module, args, kwargs, axes)
    return torch.export.export(module, args, kwargs, dynamic_shapes=shapes, strict=strict)


def _is_unproven(error: BaseException) -> bool:
    """Whether torch's solver could not prove what the program assumes of sizes."""
    text = str(error)
    return "satisfy the generated guard" in text and "specialized it" not in text


def _trace_asserting(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], axes: AxisMap
) -> ExportedProgram:
    return torch.export.export(
        module,
        args,
        kwargs,
        dynamic_shapes=_dynamic_shapes(module, args, kwargs, axes),
        strict=False,
        prefer_deferred_runtime_asserts_over_guards=True,
    )


def _try_guards(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    axes: AxisMap,
    program: ExportedProgram,
    dims: Sequence[Mapping[int, Dim]],
) -> None:
    """torch leaves guards untried for dims with a step: see `guard_trials`."""
    stepped = any(dim.step > 1 for found in dims for dim in found.values())
    if stepped and getattr(program, "_guards_code", None):
        try:
            asserting = _trace_asserting(module, args, kwargs, axes)
        except Exception:  # noqa: BLE001 - then only validation can tell
            return
        demand_same_results(module, (args, kwargs), program, asserting, dims)


def _trace_checked(
    module: Any,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    axes: AxisMap,
    *,
    dims: Sequence[Mapping[int, Dim]],
) -> ExportedProgram:
    """Traced with assertions in place of guards; they are tried on the sizes asked for, and go.

    `dims` are the user's, for each leaf of the call.
    """
    program = _trace_asserting(module, args, kwargs, axes)
    demand_checks(program, dims)
    drop_size_checks(program)
    return program


def _from_torchscript(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], axes: AxisMap
) -> ExportedProgram:
    """TorchScript has no public way into torch.export; this is torch's own converter.

    What it makes has free sizes of its own choosing, so it is traced once more with ours.
    """
    from torch._export.converter import TS2EPConverter

    names = [argument.name for argument in module.forward.schema.arguments[1:]]
    ordered = (*args, *(kwargs[name] for name in names[len(args) :] if name in kwargs))
    converted = TS2EPConverter(module, ordered, {}).convert().module()
    return torch.export.export(
        converted, ordered, dynamic_shapes=_dynamic_shapes(converted, ordered, {}, axes)
    )


def _dynamic_shapes(
    module: Any, args: tuple[Any, ...], kwargs: dict[str, Any], axes: AxisMap
) -> Any:
    """torch.export's `dynamic_shapes` for the tensors (by identity) that have free axes."""
    if not axes:
        return None
    shapes = torch.export.ShapesCollection()
    for leaf in pytree.tree_leaves((args, kwargs)):
        if id(leaf) in axes:
            shapes[leaf] = axes[id(leaf)]
    return shapes.dynamic_shapes(module, args, kwargs)


def _torch_dims(axes: Mapping[str, Mapping[int, Dim]]) -> dict[str, Any]:
    dims = {dim.name: dim for found in axes.values() for dim in found.values()}
    result: dict[str, Any] = {}
    for name, dim in dims.items():
        if dim.step == 1:
            result[name] = torch.export.Dim(name, min=dim.min, max=dim.max)
            continue
        low = -(-dim.min // dim.step)
        high = None if dim.max is None else dim.max // dim.step
        result[name] = dim.step * torch.export.Dim(f"_{name}", min=low, max=high)
    return result


_SIZES_HINT = (
    "raise the minimum or lower the maximum of that dim; a size that shrinks to 1 "
    "inside the model is often the reason"
)


def _refused_sizes(broken: Broken, remedy: str) -> ConversionError:
    return ConversionError(
        f"the model does not work for every size that --dynamic asks for: {broken}",
        hint=remedy or _SIZES_HINT,
    )


def _capture_error(attempts: Sequence[Attempt], errors: Sequence[BaseException]) -> ConversionError:
    # Tried size by size torch tells only what is really in the way.
    first = next((e for e in errors[1:] if _is_unproven(e)), errors[0])
    broken = next((e for e in errors if isinstance(e, Broken)), None)
    text = str(first)
    static = re.findall(
        r"You marked (\w+) as dynamic but your code specialized it to be a constant \((\d+)\)", text
    )
    if static:
        told = ", ".join(f"{name} (fixed to {size})" for name, size in static)
        return ConversionError(
            f"a requested dynamic axis came out static: {told}",
            hint="leave it out of --dynamic, or change the code that fixes it "
            f"({_code_line(first) or 'a reshape, a loop or a comparison of sizes'})",
        )
    fixes = re.search(r"Suggested fixes:\n((?:  .*\n?)+)", text)
    suggestion = _translate_fixes(fixes[1]) if fixes else ""
    if "Constraints violated" in text and broken is not None:
        return _refused_sizes(broken, broken.remedy or suggestion)
    if "Constraints violated" in text and suggestion:
        return ConversionError(
            "the model does not work for every size that --dynamic asks for: "
            + " ".join(line.strip(" -") for line in text.splitlines()[1:2]),
            hint=suggestion,
        )
    if "Constraints violated" in text:
        guard = re.search(r"generated guard (.+)|with the generated guard: (.+)", text)
        told = " ".join(text.splitlines()[1:2]).strip(" -") if guard is None else guard[0]
        return ConversionError(
            f"the model does not work for every size that --dynamic asks for: {told}",
            hint=_SIZES_HINT,
        )
    where = _code_line(first)
    if "data-dependent" in text.lower():
        place = f" ({where})" if where else ""
        return ConversionError(
            f"forward() decides by a tensor's values, which a graph cannot{place}",
            hint="use torch.where or torch.cond for a branch on values, and keep sizes independent "
            "of them (.item(), bool(), int() of a tensor read its value)",
        )
    tried = "; ".join(f"{a.strategy}: {a.error}" for a in attempts)
    return ConversionError(
        f"the model cannot be captured{f' ({where})' if where else ''}: {tried}",
        hint="torch.export must be able to trace forward(): replace branches on tensor values "
        "with torch.where or torch.cond, and calls into other libraries with torch operators",
    )


def _translate_fixes(fixes: str) -> str:
    """torch's suggestions in the words of `--dynamic`."""
    lines = [line.strip() for line in fixes.splitlines() if line.strip()]
    options = []
    for line in lines:
        if match := re.fullmatch(r"(\w+) = (\d+)\*_(\w+)", line):
            options.append(
                f"{match[1]} must be a multiple of {match[2]}: end its --dynamic with "
                f":MIN..MAX:{match[2]}"
            )
        elif match := re.fullmatch(r"(\w+) = Dim\('(\w+)'(?:, min=(\d+))?(?:, max=(\d+))?\)", line):
            if not match[1].startswith("_"):
                options.append(f"{match[1]} works for {match[3] or 1}..{match[4] or ''}")
        elif re.fullmatch(r"\w+ = \w+", line):  # other formulas are the solver's guesses
            options.append(line)
    return "; ".join(options)


def _code_line(error: BaseException) -> str:
    """The user's line that torch names, as file:line."""
    frames = re.findall(r'File "([^"]+)", line (\d+), in forward', str(error))
    own = [f for f in frames if "site-packages" not in f[0] and not f[0].startswith("<")]
    if not own:
        return ""
    return f"{own[-1][0].rpartition('/')[2]}:{own[-1][1]}"


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """torch.export warns, logs and prints about code that is not the user's to change."""
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
        quiet_loggers("torch._guards", "torch.export", "torch.fx", level=logging.CRITICAL),
    ):
        warnings.simplefilter("ignore")
        yield
