"""Attention in a form that OpenVINO's CPU plug-in computes rightly."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import openvino

__all__ = ["guard_attention"]


def guard_attention(model: openvino.Model) -> tuple[str, ...]:
    return ()
