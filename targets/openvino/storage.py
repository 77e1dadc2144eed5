"""An OpenVINO model as files that are the same for the same model."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING
from xml.etree import ElementTree

from ...errors import first_line
from ..probing import demand_writable

if TYPE_CHECKING:
    import openvino

__all__ = ["save"]


def save(model: openvino.Model, path: Path) -> tuple[Path, Path]:
    """Write `path` and the `.bin` beside it, weights as they are in the model.

    Returns:
        Both paths, the `.xml` first.

    Raises:
        OSError: the folder cannot be written or is full.
    """
    import openvino

    weights = path.with_suffix(".bin")
    try:
        openvino.save_model(model, str(path), compress_to_fp16=False)
    except RuntimeError as error:
        # A full or read-only disk is a RuntimeError as well; find out which it was.
        demand_writable(path)
        raise OSError(f"OpenVINO could not write {path.name}: {first_line(error)}") from error
    tree = ElementTree.parse(path)
    _clean(tree.getroot())
    ElementTree.indent(tree, " ")
    tree.write(path, encoding="utf-8", xml_declaration=True)
    return path, weights


def _clean(net: ElementTree.Element) -> None:
    """Drop versions and conversion settings, and what names took from process-wide counters."""
    for info in net.findall("rt_info"):
        net.remove(info)
    for layer in net.iter("layer"):
        for info in layer.findall("rt_info"):
            for attribute in info.findall("attribute[@name='fused_names']"):
                info.remove(attribute)
            if len(info) == 0:
                layer.remove(info)
        if re.search(r"_\d+$", layer.get("name", "")) and layer.get("type") not in _BORDER:
            layer.set("name", f"{layer.get('type')}_{layer.get('id')}")


_BORDER = ("Parameter", "Result")
