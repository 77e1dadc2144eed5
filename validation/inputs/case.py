"""One set of inputs to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

__all__ = ["Case", "Noise"]

Noise = Literal["usual", "edge", "constant", "exact"]


@dataclass(frozen=True)
class Case:
    """Inputs to try.

    `kind` groups the cases whose noise is alike: floors pool within a kind.
    `inputs` maps every input's name to a tensor; a 4-D one may be strided
    (channels_last), and then the eager model gets it so.
    `generator` is the name of what made it, see `generators.GENERATORS`.
    `masked`: a whole row may be masked, of which a model makes NaN as often as not.
    `noise` says how rounding is imitated when the floor is measured, see `validation.noise`.
    """

    name: str
    kind: str
    inputs: Mapping[str, torch.Tensor]
    description: str
    generator: str = ""
    noise: Noise = "usual"
    masked: bool = False
