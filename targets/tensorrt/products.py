"""The two products: which module each is, and what it is called."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import Any

from ...errors import MissingRequirementError
from ..packages import importable, installed_version

__all__ = ["RTX", "TENSORRT", "Product", "parsers"]


@dataclass(frozen=True)
class Product:
    """TensorRT or TensorRT for RTX. Their engines are different formats.

    name: the target's name; module: what is imported; title: as the vendor writes it.
    distributions: which of them carries the version. magic: what its engines begin with.
    """

    name: str
    title: str
    module: str
    distributions: tuple[str, ...]
    remedy: str
    magic: bytes

    def installed(self) -> bool:
        """Whether the module could be imported; imports nothing."""
        return importable(self.module)

    def version(self) -> str | None:
        return installed_version(*self.distributions)

    def load(self) -> Any:
        """The module.

        Raises:
            MissingRequirementError: it is not installed, or does not load.
        """
        if not self.installed():
            raise MissingRequirementError(f"{self.title} is not installed", hint=self.remedy)
        try:
            return importlib.import_module(self.module)
        except (ImportError, OSError) as error:
            first = next(iter(str(error).splitlines()), type(error).__name__)
            raise MissingRequirementError(
                f"{self.title} is installed and does not load: {first}", hint=self.remedy
            ) from error


TENSORRT = Product(
    name="tensorrt",
    title="TensorRT",
    module="tensorrt",
    distributions=("tensorrt", "tensorrt-cu13", "tensorrt-cu12"),
    remedy='pip install "isomorph[tensorrt]"',
    # The number that its messages expect, little-endian: "incompatible serialization version
    # (.. != 1953657958)".
    magic=b"ftrt",
)
RTX = Product(
    name="tensorrt-rtx",
    title="TensorRT for RTX",
    module="tensorrt_rtx",
    distributions=("tensorrt-rtx-cu13", "tensorrt-rtx-cu12", "tensorrt-rtx"),
    remedy='pip install "isomorph[tensorrt-rtx]"',
    magic=b"vtrt",  # measured with 1.7
)


def parsers() -> tuple[Product, ...]:
    """Installed products whose parser works on a machine without a GPU, the best first."""
    return tuple(product for product in (RTX,) if product.installed())
