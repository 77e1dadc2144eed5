"""The one builder: a parsed network, profiles and settings to a serialised engine.

It serves `tensorrt` 10 and 11 and `tensorrt_rtx`; what only some have is asked for by attribute.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ...errors import DestinationError, InputFileError, UsageError
from .failures import build_failure
from .interrupts import interrupts_kept
from .logger import collected_errors
from .options import Settings
from .parse import Origin, ParsedNetwork
from .profiles import ShapeRange
from .trusted import remember

__all__ = ["build"]


def build(
    parsed: ParsedNetwork,
    profile: Mapping[str, ShapeRange],
    settings: Settings,
    origin: Origin = lambda node: "",
) -> memoryview:
    """Build an engine and return its bytes.

    The timing cache of `settings` is read before, if it is there, and written after.

    Raises:
        UsageError: the product does not know a compute capability or a flag.
        ConversionError: the builder refuses a layer, which is named with its origin; or the
            GPU's memory is too small.
        MissingRequirementError: the settings need a GPU or a library that is not here.
        InputFileError: the timing cache cannot be read, or is of another GPU or version.
        DestinationError: the timing cache cannot be written.
    """
    module = parsed.module
    with collected_errors() as errors:
        config = parsed.builder.create_builder_config()
        _configure(module, parsed.product.title, config, settings)
        cache = _timing_cache(config, settings)
        refused = _add_profile(parsed.builder, config, profile)
        with interrupts_kept():
            engine = (
                None if refused else parsed.builder.build_serialized_network(parsed.network, config)
            )
    if engine is None:
        raise build_failure(parsed, errors, settings, origin)
    if cache is not None and settings.timing_cache is not None:
        _keep(cache, Path(settings.timing_cache))
    if "VERSION_COMPATIBLE" in settings.flags:
        remember(engine)
    return memoryview(engine)


def _configure(module: Any, title: str, config: Any, settings: Settings) -> None:
    flags = module.BuilderFlag
    # On by default, and it rounds the factors of float32 products to 10 bits.
    config.clear_flag(flags.TF32)
    for name in settings.flags:
        if not hasattr(flags, name):
            raise UsageError(f"{title} {module.__version__} has no {name}")
        config.set_flag(getattr(flags, name))
    if settings.workspace is not None:
        config.set_memory_pool_limit(module.MemoryPoolType.WORKSPACE, settings.workspace)
    if settings.optimization_level is not None:
        config.builder_optimization_level = settings.optimization_level
    if settings.hardware_compatibility != "NONE":
        config.hardware_compatibility_level = getattr(
            module.HardwareCompatibilityLevel, settings.hardware_compatibility
        )
    # The engine inspector tells the layers' precisions only where they were kept.
    config.profiling_verbosity = module.ProfilingVerbosity.DETAILED
    if settings.compute_capabilities:
        _aim_at(module, title, config, settings.compute_capabilities)


def _aim_at(module: Any, title: str, config: Any, names: tuple[str, ...]) -> None:
    known = [
        name for name in module.ComputeCapability.__members__ if name not in ("NONE", "CURRENT")
    ]
    for name in names:
        if name not in known:
            raise UsageError(
                f"{title} {module.__version__} does not build for {name}",
                hint=f"it knows sm={','.join(k.removeprefix('SM') for k in known)}",
            )
    config.num_compute_capabilities = len(names)
    for index, name in enumerate(names):
        config.set_compute_capability(getattr(module.ComputeCapability, name), index)


def _timing_cache(config: Any, settings: Settings) -> Any:
    """Timings of earlier builds; None where none are to be kept."""
    if settings.timing_cache is None:
        return None
    path = Path(settings.timing_cache)
    try:
        kept = path.read_bytes() if path.exists() else b""
    except OSError as error:
        raise InputFileError(f"the timing cache {path} cannot be read: {error}") from error
    cache = config.create_timing_cache(kept)
    if cache is None or not config.set_timing_cache(cache, ignore_mismatch=False):
        raise InputFileError(
            f"{path} is no timing cache of this TensorRT and this GPU",
            hint="delete it, or name another file: --set timing_cache=...",
        )
    return cache


def _keep(cache: Any, path: Path) -> None:
    try:
        path.write_bytes(memoryview(cache.serialize()))
    except OSError as error:
        raise DestinationError(f"the timing cache {path} cannot be written: {error}") from error


def _add_profile(builder: Any, config: Any, profile: Mapping[str, ShapeRange]) -> bool:
    """Whether the profile is refused."""
    if not profile:
        return False
    made = builder.create_optimization_profile()
    for name, shapes in profile.items():
        made.set_shape(name, shapes.min, shapes.opt, shapes.max)
    return bool(config.add_optimization_profile(made) < 0)
