"""One set of inputs to try."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import torch

__all__ = ["MASKED_KINDS", "Case", "Noise"]

Noise = Literal["usual", "edge", "constant", "exact"]

# Kinds of cases in which whole rows may be masked.
MASKED_KINDS = ("mask-true", "mask-false", "mask-row")


@dataclass(frozen=True)
class Case:
    """Inputs to try.

    `kind` groups the cases whose noise is alike: floors pool within a kind.
    `inputs` maps every input's name to a tensor; a 4-D one may be strided
    (channels_last), and then the eager model gets it so.
    `generator` is the name of what made it, see `generators.GENERATORS`.
    `noise` says how rounding is imitated when the floor is measured, see `validation.noise`.
    """

    name: str
    kind: str
    inputs: Mapping[str, torch.Tensor]
    description: str
    generator: str = ""
    noise: Noise = "usual"
