"""Which function computes each MIL operator. What is not here is unverified, never guessed."""

from __future__ import annotations

from .activation import OPERATORS as _ACTIVATION
from .binary import OPERATORS as _BINARY
from .call import Operator
from .compression import OPERATORS as _COMPRESSION
from .control import OPERATORS as _CONTROL
from .convolution import OPERATORS as _CONVOLUTION
from .gathering import OPERATORS as _GATHERING
from .linear import OPERATORS as _LINEAR
from .normalization import OPERATORS as _NORMALIZATION
from .ordering import OPERATORS as _ORDERING
from .pooling import OPERATORS as _POOLING
from .random import OPERATORS as _RANDOM
from .rearranging import OPERATORS as _REARRANGING
from .recurrent import OPERATORS as _RECURRENT
from .reduction import OPERATORS as _REDUCTION
from .resizing import OPERATORS as _RESIZING
from .shaping import OPERATORS as _SHAPING
from .slicing import OPERATORS as _SLICING
from .unary import OPERATORS as _UNARY

__all__ = ["OPERATORS"]

OPERATORS: dict[str, Operator] = {
    "const": lambda call: call.value("val"),
    **_UNARY,
    **_ACTIVATION,
    **_BINARY,
    **_REDUCTION,
    **_LINEAR,
    **_NORMALIZATION,
    **_RANDOM,
    **_CONVOLUTION,
    **_POOLING,
    **_RESIZING,
    **_REARRANGING,
    **_RECURRENT,
    **_SHAPING,
    **_SLICING,
    **_GATHERING,
    **_ORDERING,
    **_CONTROL,
    **_COMPRESSION,
}
