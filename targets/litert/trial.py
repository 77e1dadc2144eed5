"""Whether LiteRT's interpreter takes a file: its kernels refuse what the converter writes."""

from __future__ import annotations

__all__ = ["refusal"]


def refusal(content: bytes) -> str | None:
    """The interpreter's message when it refuses the file; None when it takes it."""
    from ai_edge_litert.interpreter import Interpreter

    try:
        Interpreter(model_content=content, num_threads=1).allocate_tensors()
    except (RuntimeError, ValueError) as error:
        return str(error)
    return None
