"""Faults put into the written bytes of ONNX files; knows nothing of how parity is judged."""

from . import arithmetic, layout, weights
from .network import GRADED, KINDS, Fault, inject

__all__ = ["GRADED", "KINDS", "Fault", "arithmetic", "inject", "layout", "weights"]
