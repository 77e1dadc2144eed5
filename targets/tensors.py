"""What sessions on torch itself share: arrays to tensors and back, and exact float32."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from ..errors import MissingRequirementError, UsageError
from ..exporter.signature import TensorSpec
from .cuda import CUDA_REMEDY
from .feed import checked_feed
from .tf32 import tf32_allowed

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["as_arrays", "as_tensors", "exact_float32", "torch_device"]


def torch_device(device: str, format_name: str) -> torch.device:
    """`cpu`, `cuda` or `cuda:N` as torch's device.

    Raises:
        UsageError: another device.
        MissingRequirementError: this torch has no such GPU.
    """
    kind, _, index = device.lower().partition(":")
    if kind not in ("cpu", "cuda") or (index and not index.isdigit()):
        raise UsageError(
            f"the {format_name} target does not know the device {device}",
            hint="choose cpu or cuda",
        )
    if kind == "cpu":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise MissingRequirementError(
            f"the installed torch {torch.__version__} finds no CUDA device", hint=CUDA_REMEDY
        )
    if int(index or 0) >= torch.cuda.device_count():
        raise MissingRequirementError(
            f"there is no {device}: torch finds {torch.cuda.device_count()} GPU(s)",
            hint="choose one that is there",
        )
    return torch.device("cuda", int(index or 0))


def as_tensors(
    inputs: Mapping[str, NDArray[Any]], specs: tuple[TensorSpec, ...], device: torch.device
) -> list[torch.Tensor]:
    """Tensors in the order of `specs`, which share nothing with the caller's arrays.

    bfloat16 comes as float32, since numpy has none of its own, or as an extension's.

    Raises:
        UsageError: a name, dtype or shape does not fit `specs`.
    """
    given = tuple(
        replace(spec, dtype="float32") if spec.dtype == "bfloat16" else spec for spec in specs
    )
    wide = {
        name: array.astype("float32") if str(getattr(array, "dtype", "")) == "bfloat16" else array
        for name, array in inputs.items()
    }
    feed = checked_feed(wide, given)
    return [
        torch.from_numpy(feed[spec.name].copy()).to(device, getattr(torch, spec.dtype))
        for spec in specs
    ]


def as_arrays(
    values: Iterable[torch.Tensor], specs: tuple[TensorSpec, ...]
) -> dict[str, NDArray[Any]]:
    """Copies of output tensors by name; bfloat16 as float32."""
    arrays = {}
    for spec, value in zip(specs, values, strict=True):
        wide = value.float() if value.dtype == torch.bfloat16 else value
        plain = wide.detach().resolve_conj().resolve_neg().cpu().contiguous()
        arrays[spec.name] = plain.numpy().copy()
    return arrays


@contextmanager
def exact_float32() -> Iterator[None]:
    """Float32 products in float32: no TF32 on GPUs, no bfloat16 on CPUs; restored afterwards.

    TF32 is on where `tf32_allowed`.
    """
    settings = _precision_settings()
    before = [setting.fp32_precision for setting in settings]
    on_gpu = "tf32" if tf32_allowed() else "ieee"
    try:
        for index, setting in enumerate(settings):
            setting.fp32_precision = on_gpu if index < _OF_CUDA else "ieee"
        yield
    finally:
        for setting, value in zip(settings, before, strict=True):
            setting.fp32_precision = value


# How many of `_precision_settings` are a GPU's.
_OF_CUDA = 3


def _precision_settings() -> list[Any]:
    backends: Any = torch.backends
    cuda = [backends.cuda.matmul, backends.cudnn.conv, backends.cudnn.rnn]
    return [*cuda, backends.mkldnn.matmul, backends.mkldnn.conv, backends.mkldnn.rnn]
