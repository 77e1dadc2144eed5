"""Opens engines: on their GPU, or by the network that they were built from."""

from __future__ import annotations

from pathlib import Path

from ...errors import InputFileError, MissingRequirementError, UsageError
from ..base import Session, Signature
from .evaluating import NetworkSession
from .gpu import find_gpu
from .products import RTX, Product
from .recipe import Recipe

__all__ = ["demand_gpu", "known_device", "open_rtx", "rebuilt_alike"]


def open_rtx(path: Path, device: str, signature: Signature | None) -> Session:
    """A session on `NAME.rtx.engine`: "cpu" evaluates its network, "cuda" runs the engine.

    Raises:
        InputFileError: a file is missing, damaged, or of another export.
        MissingRequirementError: there is no GPU, or not one that the engine is for.
    """
    if known_device(device, RTX) == "cuda":
        demand_gpu(RTX)
        from .engine import EngineSession

        return EngineSession(RTX, path, signature)
    if not path.is_file():
        raise InputFileError(f"{path} does not exist", hint="name a .rtx.engine file")
    recipe = Recipe.read(path.with_name(path.name.removesuffix(".rtx.engine") + ".rtx.json"))
    if path.name not in recipe.files:
        raise InputFileError(
            f"the engine {path.name} was renamed: it was built as "
            f"{next(name for name in recipe.files if name.endswith('.engine'))}",
            hint="give all its files their names back, or export again",
        )
    recipe.demand_unchanged(path.parent)
    with path.open("rb") as file:
        if file.read(len(RTX.magic)) != RTX.magic:
            raise InputFileError(f"{path.name} is no engine of {RTX.title}", hint="export it again")
    if recipe.product != RTX.name:
        raise InputFileError(f"{path.name} is an engine of {recipe.product}, not of {RTX.name}")
    return NetworkSession(
        RTX,
        path.with_name(recipe.network),
        signature,
        {
            "precision": recipe.build.get("precision", "unknown"),
            "built for": ", ".join(recipe.build.get("compute_capabilities", ())) or "unknown",
            "built by": f"{recipe.product} {recipe.version}",
        },
    )


def rebuilt_alike(path: Path) -> str:
    """Build the network of `NAME.rtx.engine` again and compare: empty where the bytes are equal.

    Else what is to be known: builds were seen to be equal from process to process, and nothing
    else tells here that the engine is one of this network.
    """
    from .build import build
    from .options import Settings
    from .parse import parse
    from .profiles import ShapeRange

    recipe = Recipe.read(path.with_name(path.name.removesuffix(".rtx.engine") + ".rtx.json"))
    if recipe.version != RTX.version():
        return (
            f"the engine was built by {recipe.version} and {RTX.version()} is installed: it was "
            "not built again to compare"
        )
    facts = recipe.build
    try:
        profile = {
            name: ShapeRange(*(tuple(shapes[key]) for key in ("min", "opt", "max")))
            for name, shapes in facts["profile"].items()
        }
        settings = Settings(
            workspace=facts["workspace"],
            flags=tuple(facts["flags"]),
            compute_capabilities=tuple(facts["compute_capabilities"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise InputFileError(f"the recipe of {path.name} is damaged: {error}") from error
    again = build(parse(RTX, path.with_name(recipe.network)), profile, settings)
    if path.read_bytes() == bytes(again):
        return ""
    return (
        f"{path.name} is not what {RTX.title} {recipe.version} builds from its network here: it "
        "was changed after it was built, or this machine builds other bytes"
    )


def known_device(device: str, product: Product) -> str:
    """The device's kind.

    Raises:
        UsageError: it is not one of the product's, or not the first GPU.
    """
    kind, _, index = device.lower().partition(":")
    if kind not in ("cpu", "cuda"):
        raise UsageError(
            f"the {product.name} target does not know the device {device}",
            hint="choose cuda" + (" or cpu" if product is RTX else ""),
        )
    if index not in ("", "0"):
        raise UsageError(
            f"{product.title} engines are run on the first GPU, not on {device}",
            hint=f"make it the first: CUDA_VISIBLE_DEVICES={index}",
        )
    return kind


def demand_gpu(product: Product) -> None:
    """Engines run on a GPU.

    Raises:
        MissingRequirementError: CUDA's driver shows none.
    """
    if find_gpu() is None:
        raise MissingRequirementError(
            f"{product.title} engines run on an NVIDIA GPU, and this machine shows none",
            hint="run it on the device that it was built for",
        )
