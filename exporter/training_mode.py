"""Whether a module was left in training mode, where some part of it behaves otherwise then."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from torch import nn

__all__ = ["training_notes"]


def training_notes(module: nn.Module) -> tuple[str, ...]:
    """A note if evaluation mode changes what `module` computes; call it before `eval()`."""
    kinds = dict.fromkeys(_kind(part) for part in module.modules() if _depends_on_mode(part))
    if not kinds:
        return ()
    found = ", ".join(kinds)
    return (f"the module was in training mode ({found}); it was captured in eval mode",)


def _kind(part: Any) -> str:
    name = getattr(part, "original_name", None)  # of a TorchScript module
    return name if isinstance(name, str) else type(part).__name__


def _depends_on_mode(part: Any) -> bool:
    from torch.nn.modules.batchnorm import _NormBase
    from torch.nn.modules.dropout import _DropoutNd

    if not part.training:
        return False
    if isinstance(part, _DropoutNd):
        return part.p > 0
    if isinstance(part, _NormBase):
        return bool(part.track_running_stats)
    if getattr(part, "dropout", None) and type(part).__module__.startswith("torch.nn."):
        return isinstance(part.dropout, float)  # attention, recurrent layers
    kind = _kind(part)
    if kind == "RReLU" or (hasattr(part, "original_name") and _by_name(kind)):
        return True
    code = getattr(getattr(type(part), "forward", None), "__code__", None)
    own = not type(part).__module__.startswith("torch.")
    return own and code is not None and "training" in code.co_names


def _by_name(kind: str) -> bool:
    return "Dropout" in kind or kind.startswith("BatchNorm")
