"""LSTM, GRU and RNN: coremltools translates them from TorchScript, where they are called otherwise.

Its translations (9.0) are registered as `lstm`, `gru` and so on, and name several outputs. A
captured program has `lstm.input`, whose one value is a tuple.
"""

from __future__ import annotations

import copy
from typing import Any

__all__ = ["register_recurrent"]

_OUTPUTS = {"lstm": 3, "gru": 2, "rnn_tanh": 2, "rnn_relu": 2}


def register_recurrent() -> None:
    """Add translations of the captured forms to coremltools; call it once."""
    from coremltools.converters.mil import register_torch_op
    from coremltools.converters.mil.frontend.torch.torch_op_registry import _TORCH_OPS_REGISTRY

    for name, outputs in _OUTPUTS.items():
        translation = _TORCH_OPS_REGISTRY.get_func(name)
        if translation is not None:
            register_torch_op(_captured(name, translation, outputs), torch_alias=[f"{name}.input"])


def _captured(name: str, translation: Any, outputs: int) -> Any:
    def translate(context: Any, node: Any) -> None:
        inner = copy.copy(node)
        inner.outputs = [f"{node.name}_{index}" for index in range(outputs)]
        translation(context, inner)
        context.add(tuple(context[each] for each in inner.outputs), torch_name=node.name)

    translate.__name__ = f"isomorph_{name}"
    return translate
