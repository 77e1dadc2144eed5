"""What to write for `--input`, guessed from a model's first layer."""

from __future__ import annotations

import torch
from torch import nn

from .examples import parameter_names

__all__ = ["suggest_input"]


def suggest_input(module: torch.nn.Module) -> str:
    """A hint with an example that fits the first layer where its sizes are known."""
    names, _ = parameter_names(module)
    takes = f"; forward() takes {', '.join(names)}" if names else ""
    for layer in module.modules():
        if text := _for_layer(layer):
            rest = "".join(f" -i {name}=SHAPE" for name in names[1:])
            first = f"{names[0]}={text}" if rest else text
            return f"give it with --input, for example -i {first}{rest}{takes}"
    return f"give it with --input, for example -i 1x3x224x224{takes}"


def _for_layer(layer: nn.Module) -> str | None:
    if isinstance(layer, nn.Linear):
        return f"1x{layer.in_features}"
    if isinstance(layer, nn.Conv2d):
        return f"1x{layer.in_channels}x224x224"
    if isinstance(layer, nn.Conv1d):
        return f"1x{layer.in_channels}x1000"
    if isinstance(layer, nn.Conv3d):
        return f"1x{layer.in_channels}x16x112x112"
    if isinstance(layer, nn.Embedding):
        return f"1x16:int64:0..{layer.num_embeddings - 1}"
    if isinstance(layer, (nn.LSTM, nn.GRU, nn.RNN)):
        return f"1x10x{layer.input_size}"
    return None
