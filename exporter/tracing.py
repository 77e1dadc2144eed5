"""`isomorph.trace`: a source to a `Graph`, and nothing more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..progress import Progress
from .source import Request, in_eval_mode, open_source

if TYPE_CHECKING:
    import torch

    from .graph import Graph

__all__ = ["trace"]


def trace(
    source: str | Path | torch.nn.Module,
    *,
    model: str | None = None,
    args: tuple[Any, ...] = (),
    kwargs: Mapping[str, Any] | None = None,
    inputs: Mapping[str, Any] | Sequence[str | Path] | str | Path | None = None,
    dynamic: Mapping[str, str] | None = None,
    trust: bool = False,
    allow: Sequence[str] = (),
    progress: Progress | None = None,
) -> Graph:
    """Capture a model as a `Graph`; arguments as for `isomorph.export`.

    Raises:
        InputFileError: the checkpoint is refused or unreadable.
        UsageError: the request does not fit the model.
        ConversionError: the model cannot be captured.
    """
    request = Request(model, tuple(args), kwargs, inputs, dynamic, trust, tuple(allow))
    with in_eval_mode(source):
        opened = open_source(source, request, progress)
    graph = opened.capture.graph
    if opened.fingerprint is None:
        return graph
    digest = opened.fingerprint.hexdigest()
    return replace(graph, provenance=replace(graph.provenance, source_sha256=digest))
