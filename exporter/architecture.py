"""From an architecture specification to a module with untrained weights.

Four forms: `package.module:callable`, `path/to/file.py:callable`,
`torchvision:NAME` and `timm:NAME`, each optionally with literal arguments, as in
`timm:resnet18(num_classes=10)`. Nothing is ever downloaded.
"""

from __future__ import annotations

import contextlib
import os
import random
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import UsageError
from .locating import locate, require_callable
from .spec import Spec, parse, raised_at

__all__ = ["Architecture", "FactoryError", "build", "default_inputs"]


def build(spec: str, *, device: str = "cpu") -> nn.Module:
    """Build the module that `spec` names, with whatever weights its code gives it.

    Args:
        spec: one of the four forms. It may name a class, a function that returns a
            module, or a module instance.
        device: "cpu", or "meta" to build without memory; a factory that cannot
            build on meta raises whatever it raises there.

    Raises:
        UsageError: nothing of that name exists, or calling it raised.
    """
    return Architecture(spec).build(device)


class Architecture:
    """A located specification that can be built more than once (meta, then CPU).

    `notes` say what was done on the way, such as running only a part of a script.
    """

    def __init__(self, text: str) -> None:
        require_callable(text)
        self.spec = parse(text)
        with _settings_kept(dtype=False):
            located = locate(self.spec)
        self.target, self.notes = located.target, located.notes
        self.module = located.module

    def build(self, device: str = "cpu", *, seed: int = 0) -> nn.Module:
        if isinstance(self.target, nn.Module):
            if self.spec.called:
                raise UsageError(
                    f"--model {self.spec.text}: {self.spec.name} is a module already",
                    hint=f"leave the arguments out: --model {self.spec.place}:{self.spec.name}",
                )
            return self.target
        with _settings_kept(), _quiet_device(device):
            torch.manual_seed(seed)
            try:
                built = self._call()
            finally:
                # Inside the device's own context, which torch cannot leave otherwise.
                torch.set_default_device(None)
        if not isinstance(built, nn.Module):
            raise UsageError(
                f"--model {self.spec.text}: returned a {type(built).__name__}, not an nn.Module",
                hint="name a class or a function that returns the module",
            )
        return built

    def _call(self) -> Any:
        try:
            return self.target(*self.spec.args, **dict(self.spec.kwargs))
        except (UsageError, KeyboardInterrupt, SystemExit):
            raise
        except BaseException as error:
            raise FactoryError(self.spec, error) from error


class FactoryError(UsageError):
    """The user's factory raised; `cause` is its exception."""

    def __init__(self, spec: Spec, cause: BaseException) -> None:
        self.cause = cause
        where = raised_at(cause)
        text = str(cause).strip().splitlines()
        shown = f"{type(cause).__name__}: {text[0]}" if text else type(cause).__name__
        hint = "call it yourself to see the whole traceback"
        if isinstance(cause, TypeError) and "argument" in str(cause):
            hint = f"give its arguments: --model '{spec.place}:{spec.name}(NAME=VALUE)'"
        super().__init__(f"--model {spec.text} raised {shown}{where}", hint=hint)


@contextlib.contextmanager
def _settings_kept(*, dtype: bool = True) -> Iterator[None]:
    """Undo what the user's code sets for the whole process.

    That is the default device, the working folder, gradient mode, and the states of the random
    generators of torch, Python and NumPy; and the default dtype, unless a file sets
    it at its top level (`dtype=False`), where it is meant for the model's forward() too.
    """
    before = torch.get_default_device()
    kept, folder, grad = torch.get_default_dtype(), Path.cwd(), torch.is_grad_enabled()
    numbers, numpy = random.getstate(), sys.modules.get("numpy")
    drawn = numpy.random.get_state() if numpy else None
    try:
        with torch.random.fork_rng(devices=[]):
            yield
    finally:
        if torch.get_default_device() != before:
            torch.set_default_device(None if before.type == "cpu" else before)
        if dtype:
            torch.set_default_dtype(kept)
        torch.set_grad_enabled(grad)
        os.chdir(folder)
        random.setstate(numbers)
        if numpy:
            numpy.random.set_state(drawn)


@contextlib.contextmanager
def _quiet_device(device: str) -> Iterator[None]:
    if device == "cpu":
        yield
        return
    with torch.device(device):
        yield


def default_inputs(spec: Spec | None, module: nn.Module) -> tuple[str, ...]:
    """Input specifications that the library publishes for a model, else `()`."""
    size = _timm_size(module) or (_torchvision_size(spec) if spec else None)
    return ("2x" + "x".join(str(int(n)) for n in size),) if size else ()


def _timm_size(module: nn.Module) -> Sequence[int] | None:
    if not type(module).__module__.startswith("timm."):
        return None
    config = getattr(module, "pretrained_cfg", None) or getattr(module, "default_cfg", None)
    size = config.get("input_size") if isinstance(config, dict) else None
    return size if isinstance(size, (tuple, list)) and len(size) == 3 else None


def _torchvision_size(spec: Spec) -> Sequence[int] | None:
    """3 x crop x crop of a classification model's published weights."""
    if spec.place != "torchvision":
        return None
    from torchvision import models

    try:
        weights = models.get_model_weights(spec.name)
        transforms = getattr(next(iter(weights)).transforms, "keywords", {})
    except (ValueError, StopIteration):
        return None
    crop = transforms.get("crop_size")
    is_image = next(iter(weights)).__class__.__module__.count(".") == 2
    return (3, crop, crop) if isinstance(crop, int) and is_image else None
