"""What operators that go element by element share: dtypes, rounding, and refusals."""

from __future__ import annotations

from collections.abc import Callable, Collection

import torch

from .call import Call

__all__ = [
    "FLOATS",
    "INT32",
    "NUMBERS",
    "image",
    "narrowed",
    "of_dtype",
    "per_channel",
    "refuse_nan",
    "rounded",
    "scalar",
]

FLOATS = (torch.float16, torch.float32)
NUMBERS = (*FLOATS, torch.int32)
INT32 = torch.iinfo(torch.int32)


def of_dtype(call: Call, name: str, dtypes: Collection[torch.dtype]) -> torch.Tensor:
    """A tensor argument; a dtype that the documentation does not list is refused."""
    found = call.tensor(name)
    if found.dtype not in dtypes:
        call.refuse(f"{name} of {str(found.dtype).removeprefix('torch.')}")
    return found


def image(call: Call) -> torch.Tensor:
    """`x` of rank 4, [batch, channels, height, width], with pixels."""
    x = of_dtype(call, "x", FLOATS)
    if x.dim() != 4:
        raise call.damaged(f"x has rank {x.dim()}, not 4")
    if not x.numel():
        call.refuse("an empty image")
    return x


def scalar(call: Call, name: str, like: torch.Tensor) -> torch.Tensor:
    """A number, float32 where `like` is float, so that a float16 result is rounded only once.

    Until iOS 16 it is of the dtype of `like`; since then some operators document their own.
    """
    found = call.tensor(name)
    if found.numel() != 1:
        raise call.damaged(f"{name} has {found.numel()} values where one belongs")
    if like.dtype not in FLOATS:
        return found.reshape(())
    return found.reshape(()).float()


def per_channel(call: Call, name: str, x: torch.Tensor) -> torch.Tensor:
    """One value per channel (axis 1) of `x`, float32, shaped to broadcast against it."""
    found = call.tensor(name)
    if tuple(found.shape) != (x.shape[1],):
        raise call.damaged(f"{name} is of shape {list(found.shape)}, not [{x.shape[1]}]")
    return found.float().reshape(-1, *[1] * (x.dim() - 2))


def rounded(x: torch.Tensor, function: Callable[[torch.Tensor], torch.Tensor]) -> torch.Tensor:
    """`function` of a float tensor, computed in float32 and rounded once to the dtype of `x`."""
    return function(x.float()).to(x.dtype)


def refuse_nan(call: Call, *tensors: torch.Tensor) -> None:
    """Comparisons that document no NaN."""
    if any(t.is_floating_point() and bool(torch.isnan(t).any()) for t in tensors):
        call.refuse("NaN in what it compares")


def narrowed(call: Call, wide: torch.Tensor, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """int64 values as `dtype`; what becomes of those that leave its range is not documented."""
    bounds = torch.iinfo(dtype)
    if wide.numel() and (int(wide.min()) < bounds.min or int(wide.max()) > bounds.max):
        call.refuse(f"a value outside {str(dtype).removeprefix('torch.')}")
    return wide.to(dtype)
