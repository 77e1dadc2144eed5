"""The passes of coremltools that are run: its default ones, but for those that change values."""

from __future__ import annotations

from typing import Any

from .quiet import coremltools

__all__ = ["sound_passes"]

# coremltools 9.0 writes a product and a sum per channel (a group norm's weight and bias, a scaled
# image) as a batch norm of variance 1, and leaves its epsilon at 1e-5: values become smaller by
# 5e-6 of themselves, some forty units in the last place of float32.
_UNSOUND = ("common::fuse_elementwise_to_batchnorm",)


def sound_passes() -> Any:
    """A `PassPipeline` for `coremltools.convert`."""
    pipeline = coremltools().PassPipeline()
    pipeline.remove_passes(_UNSOUND)
    return pipeline
