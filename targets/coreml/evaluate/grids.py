"""Points on a row of pixels, and the values there.

The points of each sampling mode are those in the documentation of the MIL operator
`resize_bilinear`; Apple's comments on `SamplingMode` in the Core ML model format
(NeuralNetwork.proto) extend them to an interval within the row.
"""

from __future__ import annotations

import torch

from .call import Call

__all__ = ["SAMPLING_MODES", "grid", "interpolated", "refuse_infinite"]

SAMPLING_MODES = (
    "STRICT_ALIGN_CORNERS",
    "ALIGN_CORNERS",
    "DEFAULT",
    "OFFSET_CORNERS",
    "UNALIGN_CORNERS",
)


def grid(mode: str, extent: float, count: int) -> torch.Tensor:
    """`count` points, float64, in the interval [0, extent]; a row of n pixels has extent n - 1.

    With one point, STRICT_ALIGN_CORNERS and DEFAULT put it at 0, as does TensorFlow's
    ResizeBilinear, which the documentation says they equal; OFFSET_CORNERS puts it at half its
    spacing, the quotient in its documented formula being of equal factors.
    """
    steps = torch.arange(count, dtype=torch.float64)
    if mode == "ALIGN_CORNERS" and count == 1:
        points = torch.full((1,), extent / 2, dtype=torch.float64)
    elif mode in ("STRICT_ALIGN_CORNERS", "ALIGN_CORNERS"):
        points = steps * extent / max(count - 1, 1)
    elif mode == "DEFAULT":
        # (X - X / N) / (N - 1) = X / N
        points = steps * (extent + 1) / count
    elif mode == "OFFSET_CORNERS":
        points = (steps + 0.5) * max(1.0, extent) / count
    else:
        points = (steps + 0.5) * (extent + 1) / count - 0.5
    return points.clamp(0, extent)


def interpolated(x: torch.Tensor, dim: int, points: torch.Tensor) -> torch.Tensor:
    """Float32 `x` between its pixels along `dim`, at `points`, none of them outside."""
    size = x.shape[dim]
    low = points.floor().long().clamp(0, size - 1)
    high = (low + 1).clamp(max=size - 1)
    weight = (points - low).to(x.dtype)
    weight = weight.reshape(-1, *[1] * (x.dim() - 1 - dim % x.dim()))
    below, above = x.index_select(dim, low), x.index_select(dim, high)
    return below * (1 - weight) + above * weight


def refuse_infinite(call: Call, x: torch.Tensor) -> None:
    """Interpolation at a pixel may or may not multiply its neighbour by 0."""
    if x.is_floating_point() and not bool(torch.isfinite(x).all()):
        call.refuse("interpolation between values that are not finite")
