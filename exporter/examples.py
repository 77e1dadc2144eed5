"""Example values for a model's inputs: made from shapes, or read from files.

What comes out is a call, `(args, kwargs)`, ready for the module.
"""

from __future__ import annotations

import difflib
import inspect
import math
import zipfile
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from ..errors import InputFileError, UsageError
from .signature import FLOAT_DTYPES, InputRequest

__all__ = [
    "ExampleCall",
    "call_from_requests",
    "call_from_tensors",
    "make_tensor",
    "parameter_names",
    "read_tensors",
    "torch_dtype",
]


@dataclass(frozen=True)
class ExampleCall:
    """Arguments for one call of the module; `synthetic` when we made up the values."""

    args: tuple[Any, ...]
    kwargs: dict[str, Any]
    synthetic: bool


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of that name (`"float32"` -> `torch.float32`)."""
    dtype = getattr(torch, name, None)
    if not isinstance(dtype, torch.dtype):
        raise UsageError(f"unknown dtype {name!r}")
    return dtype


# Elements of an input: 4 GB in float32, beyond what an example is for.
_LARGEST_EXAMPLE = 1 << 30


def make_tensor(
    shape: Sequence[int],
    dtype: str,
    span: tuple[float, float] | None,
    generator: torch.Generator,
) -> torch.Tensor:
    """Random values: standard normal floats, or uniform within the inclusive range `span`.

    Integers without a range are 0 or 1, which nearly every index and mask accepts.
    """
    size = tuple(shape)
    kind = torch_dtype(dtype)
    if math.prod(size) > _LARGEST_EXAMPLE:
        raise UsageError(
            f"an input of shape {'x'.join(map(str, size))} does not fit into memory",
            hint="give a smaller example; dynamic axes may grow up to their maximum later",
        )
    if dtype == "bool":
        return torch.randint(0, 2, size, generator=generator).to(torch.bool)
    if kind.is_complex:
        return torch.randn(size, generator=generator, dtype=torch.complex64).to(kind)
    if dtype in FLOAT_DTYPES:
        if span is None:
            return torch.randn(size, generator=generator).to(kind)
        low, high = span
        return (torch.rand(size, generator=generator) * (high - low) + low).to(kind)
    low, high = (0, 1) if span is None else (int(span[0]), int(span[1]))
    return torch.randint(low, high + 1, size, generator=generator).to(kind)


def parameter_names(module: Callable[..., Any]) -> tuple[list[str], bool]:
    """Names of the module's parameters in order, and whether it takes any others by name."""
    schema = getattr(getattr(module, "forward", None), "schema", None)
    if schema is not None:  # TorchScript: the first argument is self
        return [argument.name for argument in schema.arguments[1:]], False
    signature = inspect.signature(getattr(module, "forward", module))
    names, open_ended = [], False
    for parameter in signature.parameters.values():
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            open_ended = True
        else:
            names.append(parameter.name)
    return names, open_ended


def call_from_requests(
    module: Callable[..., Any], requests: Sequence[InputRequest], *, seed: int = 0
) -> ExampleCall:
    """A call with made-up values of the shapes and dtypes asked for.

    Raises:
        UsageError: a name is unknown, or an input that the model needs is not given.
    """
    generator = torch.Generator().manual_seed(seed)
    tensors = []
    for request in requests:
        value = make_tensor(request.shape, request.dtype, request.range, generator)
        tensors.append((request.name, value))
    arguments = _arrange(module, tensors)
    _demand_all(module, requests)
    return ExampleCall((), arguments, synthetic=True)


def _demand_all(module: Callable[..., Any], requests: Sequence[InputRequest]) -> None:
    needed = _required_names(module)
    named = {request.name.partition(".")[0] for request in requests if request.name}
    positional = sum(request.name is None for request in requests)
    open_ = [n for n in needed if n not in named and not any(m.startswith(f"{n}_") for m in named)]
    missing = open_[positional:]
    if missing:
        example = " ".join(f"-i {name}=SHAPE" for name in needed)
        raise UsageError(
            f"no shape is given for the input {', '.join(missing)}",
            hint=f"give every input that forward() needs: {example}",
        )


def _required_names(module: Callable[..., Any]) -> list[str]:
    """Parameters without a default."""
    if getattr(getattr(module, "forward", None), "schema", None) is not None:
        return []  # TorchScript tells which one it misses
    signature = inspect.signature(getattr(module, "forward", module))
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return [
        p.name for p in signature.parameters.values() if p.kind in kinds and p.default is p.empty
    ]


def call_from_tensors(
    module: Callable[..., Any], tensors: Mapping[str, torch.Tensor]
) -> ExampleCall:
    """A call with the given values, by parameter name or dotted path."""
    return ExampleCall((), _arrange(module, list(tensors.items())), synthetic=False)


def _arrange(
    module: Callable[..., Any], tensors: Sequence[tuple[str | None, torch.Tensor]]
) -> dict[str, Any]:
    """Keyword arguments from named (or positional) tensors."""
    names, open_ended = parameter_names(module)
    taken = {name.partition(".")[0] for name, _ in tensors if name}
    free = [name for name in names if name not in taken]
    arguments: dict[str, Any] = {}
    for name, value in tensors:
        if name is None:
            if not free:
                raise UsageError(
                    f"{len(tensors)} inputs are given but the model takes {len(names)}",
                    hint=_takes(names),
                )
            name = free.pop(0)
        path = _resolve(name, names, open_ended)
        _place(arguments, path, value, name)
    arguments = {key: _finish(value) for key, value in arguments.items()}
    order = {name: position for position, name in enumerate(names)}
    return dict(sorted(arguments.items(), key=lambda item: order.get(item[0], len(order))))


def _resolve(name: str, names: Sequence[str], open_ended: bool) -> list[str]:
    """`opts.bias` or `opts_bias` -> ["opts", "bias"]; a parameter's own name wins."""
    if name in names:
        return [name]
    path = name.split(".")
    if path[0] in names:
        return path
    for parameter in sorted(names, key=len, reverse=True):
        if name.startswith(f"{parameter}_"):
            return [parameter, name[len(parameter) + 1 :]]
    if open_ended:
        return path
    near = difflib.get_close_matches(name, names, 3)
    raise UsageError(
        f"the model has no input {name!r}",
        hint=f"did you mean {', '.join(near)}?" if near else _takes(names),
    )


def _takes(names: Sequence[str]) -> str:
    return f"its inputs are {', '.join(names)}" if names else "it takes no inputs"


def _place(arguments: dict[str, Any], path: list[str], value: torch.Tensor, name: str) -> None:
    *parents, last = path
    place = arguments
    for key in parents:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            raise UsageError(f"input {name!r} lies inside another input that is a tensor")
    if last in place:
        raise UsageError(f"input {name!r} is given twice")
    place[last] = value


def _finish(value: Any) -> Any:
    """Dicts whose keys are 0, 1, 2 ... are tuples."""
    if not isinstance(value, dict):
        return value
    items = {key: _finish(item) for key, item in value.items()}
    if items and set(items) == {str(i) for i in range(len(items))}:
        return tuple(items[str(i)] for i in range(len(items)))
    return items


def read_tensors(path: str | Path) -> dict[str, torch.Tensor]:
    """Named tensors from `.npz`, `.safetensors` or `.pt` (a dict; loaded without running code).

    Raises:
        InputFileError: missing, unreadable, or not a file of named tensors.
    """
    path = Path(path)
    if not path.is_file():
        raise InputFileError(
            f"{path} {'is a directory' if path.is_dir() else 'does not exist'}",
            hint="give a .npz, .safetensors or .pt file of named arrays",
        )
    readers = {".npz": _read_npz, ".safetensors": _read_safetensors}
    reader = readers.get(path.suffix, _read_torch)
    try:
        tensors = reader(path)
    except InputFileError:
        raise
    except Exception as error:  # a damaged file can raise anything
        raise InputFileError(
            f"{path} cannot be read as {path.suffix or 'a torch file'}: {_first_line(error)}",
            hint="give a .npz, .safetensors or .pt file of named arrays",
        ) from error
    if not tensors:
        raise InputFileError(f"{path} holds no arrays")
    return tensors


def _first_line(error: BaseException) -> str:
    return (str(error).strip() or type(error).__name__).splitlines()[0]


def _read_npz(path: Path) -> dict[str, torch.Tensor]:
    import numpy as np

    if not zipfile.is_zipfile(path):
        raise InputFileError(f"{path} is no .npz file", hint="write it with numpy.savez")
    with np.load(path, allow_pickle=False) as file:
        return {name: torch.from_numpy(np.array(file[name])) for name in file.files}


def _read_safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    return dict(load_file(path))


def _read_torch(path: Path) -> dict[str, torch.Tensor]:
    loaded = torch.load(path, weights_only=True, map_location="cpu")
    if isinstance(loaded, torch.Tensor):
        raise InputFileError(
            f"{path} holds a tensor without a name", hint='save a dict: {"x": tensor}'
        )
    if not isinstance(loaded, dict):
        raise InputFileError(f"{path} holds a {type(loaded).__name__}, not a dict of tensors")
    flat: dict[str, torch.Tensor] = {}
    _flatten("", loaded, flat)
    return flat


def _flatten(prefix: str, value: Any, into: dict[str, torch.Tensor]) -> None:
    if isinstance(value, torch.Tensor):
        into[prefix] = value
    elif isinstance(value, dict):
        for key, item in value.items():
            _flatten(f"{prefix}.{key}" if prefix else str(key), item, into)
    elif isinstance(value, (list, tuple)):
        for index, item in enumerate(value):
            _flatten(f"{prefix}.{index}" if prefix else str(index), item, into)
