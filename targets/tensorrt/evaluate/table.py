"""Which function computes each layer type. What is not here is unverified, never guessed."""

from __future__ import annotations

from .call import Operator
from .casting import OPERATORS as _CASTING
from .convolution import OPERATORS as _CONVOLUTION
from .elementwise import OPERATORS as _ELEMENTWISE
from .indexing import OPERATORS as _INDEXING
from .normalization import OPERATORS as _NORMALIZATION
from .pooling import OPERATORS as _POOLING
from .products import OPERATORS as _PRODUCTS
from .quantizing import OPERATORS as _QUANTIZING
from .reduction import OPERATORS as _REDUCTION
from .resizing import OPERATORS as _RESIZING
from .shaping import OPERATORS as _SHAPING
from .slicing import OPERATORS as _SLICING

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Operator] = {
    **_SHAPING,
    **_SLICING,
    **_CASTING,
    **_INDEXING,
    **_CONVOLUTION,
    **_ELEMENTWISE,
    **_NORMALIZATION,
    **_POOLING,
    **_PRODUCTS,
    **_QUANTIZING,
    **_REDUCTION,
    **_RESIZING,
}
