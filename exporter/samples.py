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

__all__ = ["MAX_SAMPLES", "as_tensors", "load_samples", "with_tensors"]

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


def _named(
    tensors: Mapping[str, torch.Tensor], specs: Sequence[TensorSpec], label: str
) -> dict[str, torch.Tensor]:
    known = {spec.name: spec for spec in specs}
    named: dict[str, torch.Tensor] = {}
    for name, value in tensors.items():
        flat = name.replace(".", "_")
        if flat not in known:
            near = difflib.get_close_matches(flat, known, 3)
            raise UsageError(
                f"{label} holds {name!r}, which is no input of the model",
                hint=f"did you mean {', '.join(near)}?"
                if near
                else f"the model's inputs are {', '.join(known)}",
            )
        named[flat] = _to_dtype(value, known[flat], label)
    missing = [name for name in known if name not in named]
    if missing:
        raise UsageError(f"{label} lacks the input {', '.join(missing)}")
    return named


def _to_dtype(value: torch.Tensor, spec: TensorSpec, label: str) -> torch.Tensor:
    """Widths may differ (numpy makes float64 and int32), kinds may not."""
    wanted = torch_dtype(spec.dtype)
    if value.dtype == wanted:
        return value
    same_kind = value.is_floating_point() == wanted.is_floating_point and (
        value.is_complex() == wanted.is_complex
    )
    if not same_kind or torch.bool in (value.dtype, wanted):
        raise UsageError(
            f"{label}: input {spec.name} is {str(value.dtype).removeprefix('torch.')}, "
            f"the model takes {spec.dtype}"
        )
    return value.to(wanted)


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
    told = "; ".join(
        f"{s.name} is {'x'.join(map(str, tensors[s.name].shape)) or 'scalar'}, "
        f"the model takes {_shape_text(s)}"
        for s in specs
        if not _fits(tensors[s.name].shape, s.shape)
    )
    raise UsageError(f"{label} does not fit: {told}")


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
