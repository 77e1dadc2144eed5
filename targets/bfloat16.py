"""bfloat16 as numpy can hold it: float32 values outside, 16-bit patterns at a runtime's border."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = ["from_bits", "to_bits"]


def to_bits(values: NDArray[Any]) -> NDArray[Any]:
    """uint16 patterns of a float32 array's values, rounded to nearest (ties to even).

    Args:
        values: float32, any shape.
    """
    import numpy as np

    bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(values.shape)
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    # Rounding must not carry a NaN's pattern into that of an infinity.
    return np.where(np.isnan(values), (bits >> 16) | 0x40, rounded).astype(np.uint16)


def from_bits(bits: NDArray[Any]) -> NDArray[Any]:
    """float32 array of the values whose bfloat16 patterns are given as uint16; exact."""
    import numpy as np

    return (bits.astype(np.uint32) << 16).view(np.float32)
