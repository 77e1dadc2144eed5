"""Let ceil-mode pooling keep a dynamic image size.

To find the output's size, torch's meta kernel asks whether the last window
would begin in the padding, `(out - 1) * stride >= in + pad`. For a symbolic
size that question becomes a guard, and torch.export's solver answers it with
far too little: it splits sizes into odd and even ones and accepts one half
(seen with torch 2.14 on MTCNN's PNet). For most layers the answer does not
depend on the size. With out = floor((in + 2 pad - d(k-1) - 1 + s-1) / s) + 1,

    (out - 1) s <= in + 2 pad - d(k-1) + s - 2,

so the window never begins in the padding if s < d(k-1) + 2 - pad, which holds
for the usual kernels. Only then is the question left out.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["ceil_mode_without_guards"]

_NAME = "pooling_output_shape_pad_lr"


@contextmanager
def ceil_mode_without_guards() -> Iterator[None]:
    """While active, tracing asks about the last pooling window only where it matters."""
    meta: Any = torch._meta_registrations
    original = getattr(meta, _NAME, None)
    if original is None:  # a torch that computes it elsewhere: nothing to do
        yield
        return

    def output_shape(
        size: Any, kernel: Any, pad_l: Any, pad_r: Any, stride: Any, dilation: Any, ceil_mode: bool
    ) -> Any:
        numbers = (kernel, pad_l, pad_r, stride, dilation)
        known = all(isinstance(n, int) for n in numbers)
        if ceil_mode and known and stride < dilation * (kernel - 1) + 2 - pad_r:
            reach = dilation * (kernel - 1) + 1
            return (size + pad_l + pad_r - reach + stride - 1) // stride + 1
        return original(size, kernel, pad_l, pad_r, stride, dilation, ceil_mode)

    setattr(meta, _NAME, output_shape)
    try:
        yield
    finally:
        setattr(meta, _NAME, original)
