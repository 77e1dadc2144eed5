"""The user's own samples: from files or mappings to inputs that fit the graph."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from ..errors import UsageError
from .examples import read_tensors, torch_dtype
from .signature import Dim, TensorSpec

__all__ = ["MAX_SAMPLES", "as_tensors", "demand_fit", "load_samples", "with_tensors"]

# Each sample costs six runs of the model; more than this from one file adds time, not insight.
MAX_SAMPLES = 16


def load_samples(
    data: Sequence[str | Path | Mapping[str, Any]], specs: Sequence[TensorSpec]
) -> tuple[list[dict[str, torch.Tensor]], list[str]]:
    """Samples that fit `specs`, and notes on what was left out or converted.

    A file may hold one sample, or many along a leading axis.

    Raises:
        UsageError: unknown or missing names, or shapes and dtypes that do not fit.
        InputFileError: a file that cannot be read.
    """
    samples: list[dict[str, torch.Tensor]] = []
    notes: list[str] = []
    for entry in data:
        mapping = isinstance(entry, Mapping)
        label = "the given data" if mapping else Path(str(entry)).name
        tensors = as_tensors(entry) if isinstance(entry, Mapping) else read_tensors(entry)
        found = _split(_named(tensors, specs, label), specs, label)
        if len(found) > MAX_SAMPLES:
            notes.append(f"{label} holds {len(found)} samples; the first {MAX_SAMPLES} are used")
        samples += found[:MAX_SAMPLES]
    return samples, notes


def as_tensors(values: Mapping[str, Any]) -> dict[str, torch.Tensor]:
    """Arrays, numbers or tensors as CPU tensors."""
    return {
        name: value.detach().cpu() if isinstance(value, torch.Tensor) else torch.as_tensor(value)
        for name, value in values.items()
    }


def with_tensors(tree: Any) -> Any:
    """A nested structure with tensors in place of its numpy arrays."""
    import numpy as np
    from torch.utils import _pytree as pytree

    return pytree.tree_map(
        lambda leaf: torch.from_numpy(leaf) if isinstance(leaf, np.ndarray) else leaf, tree
    )


def demand_fit(
    tensors: Mapping[str, torch.Tensor], specs: Sequence[TensorSpec], label: str
) -> None:
    """Raise unless there is a tensor for every input, of its dtype and shape.

    Raises:
        UsageError: with all that is expected and all that is found.
    """
    problems = _misnamed(tensors, specs)
    for spec in specs:
        value = tensors.get(spec.name)
        if value is None:
            continue
        if value.dtype != torch_dtype(spec.dtype):
            problems.append(f"{spec.name} is {_dtype_text(value)}, not {spec.dtype}")
        if not _fits(value.shape, spec.shape):
            problems.append(f"{spec.name} is {_size_text(value.shape)}, not {_shape_text(spec)}")
    if problems:
        raise _misfit(problems, tensors, specs, label)


def _named(
    tensors: Mapping[str, torch.Tensor], specs: Sequence[TensorSpec], label: str
) -> dict[str, torch.Tensor]:
    """The tensors by the inputs' names, in their dtypes."""
    named = {name.replace(".", "_"): value for name, value in tensors.items()}
    problems = _misnamed(named, specs)
    for spec in specs:
        if spec.name not in named:
            continue
        value = named[spec.name]
        if _is_of_kind(value, torch_dtype(spec.dtype)):
            named[spec.name] = value.to(torch_dtype(spec.dtype))
        else:
            problems.append(f"{spec.name} is {_dtype_text(value)}, not {spec.dtype}")
    if problems:
        raise _misfit(problems, tensors, specs, label)
    return named


def _misnamed(tensors: Mapping[str, torch.Tensor], specs: Sequence[TensorSpec]) -> list[str]:
    known = [spec.name for spec in specs]
    return [
        *(f"{name!r} is no input of the model" for name in tensors if name not in known),
        *(f"there is no {name}" for name in known if name not in tensors),
    ]


def _is_of_kind(value: torch.Tensor, wanted: torch.dtype) -> bool:
    """Widths may differ (numpy makes float64 and int32), kinds may not."""
    if value.dtype == wanted:
        return True
    return (
        value.is_floating_point() == wanted.is_floating_point
        and value.is_complex() == wanted.is_complex
        and torch.bool not in (value.dtype, wanted)
    )


def _split(
    tensors: Mapping[str, torch.Tensor], specs: Sequence[TensorSpec], label: str
) -> list[dict[str, torch.Tensor]]:
    if all(_fits(tensors[s.name].shape, s.shape) for s in specs):
        return [dict(tensors)]
    counts = {tensors[s.name].shape[0] for s in specs if tensors[s.name].dim()}
    if len(counts) == 1:
        (count,) = counts
        if all(_fits(tensors[s.name].shape[1:], s.shape) for s in specs):
            return [{n: t[i] for n, t in tensors.items()} for i in range(count)]
        one = [(1, *tensors[s.name].shape[1:]) for s in specs]
        if all(_fits(shape, s.shape) for shape, s in zip(one, specs, strict=True)):
            return [{n: t[i : i + 1] for n, t in tensors.items()} for i in range(count)]
    problems = [
        f"{s.name} is {_size_text(tensors[s.name].shape)}, not {_shape_text(s)}"
        for s in specs
        if not _fits(tensors[s.name].shape, s.shape)
    ]
    raise _misfit(problems, tensors, specs, label)


def _misfit(
    problems: Sequence[str],
    tensors: Mapping[str, torch.Tensor],
    specs: Sequence[TensorSpec],
    label: str,
) -> UsageError:
    """All that is expected and all that is found, so that nobody repairs one thing at a time."""
    expected = ", ".join(f"{s.name} {s.dtype} {_shape_text(s)}" for s in specs) or "nothing"
    found = (
        ", ".join(f"{n} {_dtype_text(v)} {_size_text(v.shape)}" for n, v in tensors.items())
        or "nothing"
    )
    known = [spec.name for spec in specs]
    unknown = [name for name in tensors if name.replace(".", "_") not in known]
    near = {name: difflib.get_close_matches(name, known, 1) for name in unknown}
    meant = ", ".join(f"{match[0]} for {name}" for name, match in near.items() if match)
    return UsageError(
        f"{label} does not fit the model: {'; '.join(problems)}\n"
        f"expected: {expected}\nfound:    {found}",
        hint=f"did you mean {meant}?"
        if meant
        else "a file holds one sample, or many along a first axis that all its inputs have; an "
        "axis varies with --dynamic",
    )


def _dtype_text(value: torch.Tensor) -> str:
    return str(value.dtype).removeprefix("torch.")


def _size_text(shape: Sequence[int]) -> str:
    return "x".join(map(str, shape)) or "scalar"


def _fits(shape: Sequence[int], wanted: Sequence[int | Dim]) -> bool:
    if len(shape) != len(wanted):
        return False
    sizes: dict[str, int] = {}
    for size, want in zip(shape, wanted, strict=True):
        if isinstance(want, int):
            if size != want:
                return False
        elif (
            size < want.min
            or (want.max is not None and size > want.max)
            or size % want.step
            or sizes.setdefault(want.name, size) != size
        ):
            return False
    return True


def _shape_text(spec: TensorSpec) -> str:
    def text(size: int | Dim) -> str:
        if isinstance(size, int):
            return str(size)
        return f"{size.name}({size.min}..{'' if size.max is None else size.max})"

    return "x".join(text(size) for size in spec.shape) or "scalar"
