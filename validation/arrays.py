"""Tensors as numpy arrays, bfloat16 included."""

from __future__ import annotations

import tempfile
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import MissingRequirementError

__all__ = ["Shelf", "dtype_name", "to_numpy"]


def to_numpy(tensor: torch.Tensor) -> NDArray[Any]:
    """A CPU array with the tensor's values, sharing its memory (and strides) where it can."""
    tensor = tensor.detach().cpu().resolve_conj().resolve_neg()
    if tensor.dtype is torch.bfloat16:
        try:
            import ml_dtypes
        except ImportError as error:
            raise MissingRequirementError(
                "numpy has no bfloat16 of its own", hint="pip install ml_dtypes"
            ) from error
        return tensor.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return tensor.numpy()


def dtype_name(array: NDArray[Any]) -> str:
    """An array's dtype under torch's name, such as "float32" or "bool"."""
    return str(array.dtype)


class Shelf:
    """Keeps arrays until the report is written: in memory up to a budget, then in a file.

    The truth of every case and output is needed when the artifact has run; for
    a model with large outputs that would be more than the model itself.
    """

    def __init__(self, budget_bytes: int = 256 * 2**20) -> None:
        self._left = budget_bytes

    def keep(self, array: NDArray[Any]) -> NDArray[Any]:
        """An array equal to `array` that owns its values."""
        if array.nbytes <= self._left:
            self._left -= array.nbytes
            return np.array(array, copy=True, order="C")
        with tempfile.TemporaryFile() as file:
            stored = np.memmap(file, dtype=array.dtype, mode="w+", shape=array.shape)
            stored[...] = array
        return stored
