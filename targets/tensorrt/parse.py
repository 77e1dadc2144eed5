"""ONNX to a TensorRT network; what the parser refuses is named."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...errors import ConversionError
from .failures import plain_reason
from .logger import collected_errors, logger_of
from .products import Product

__all__ = ["Origin", "ParsedNetwork", "parse"]

Origin = Callable[[str], str]
"""Where an ONNX node came from, "module, file:line"; empty where that is not known."""


@dataclass(frozen=True)
class ParsedNetwork:
    """A network, and the builder and parser that own its memory."""

    product: Product
    module: Any
    builder: Any
    network: Any
    parser: Any
    path: Path


def parse(product: Product, path: Path, origin: Origin = lambda node: "") -> ParsedNetwork:
    """Parse the ONNX file at `path`, external data beside it included.

    Raises:
        ConversionError: the parser refuses a node, which is named with its origin.
        MissingRequirementError: the product is not installed.
    """
    module = product.load()
    logger = logger_of(module)
    with collected_errors() as errors:
        # Operators that TensorRT itself implements as plug-ins are found only after this.
        module.init_libnvinfer_plugins(logger, "")
        builder = module.Builder(logger)
        network = builder.create_network(_creation_flags(module))
        parser = module.OnnxParser(network, logger)
        done = parser.parse_from_file(str(path))
    if not done:
        raise _refusal(product, parser, errors, path, origin)
    return ParsedNetwork(product, module, builder, network, parser, path)


def _creation_flags(module: Any) -> int:
    """Strongly typed: the only kind from TensorRT 11 on, a flag on 10."""
    flags: Any = module.NetworkDefinitionCreationFlag
    strongly = getattr(flags, "STRONGLY_TYPED", None)
    return 0 if strongly is None else 1 << int(strongly)


def _refusal(
    product: Product, parser: Any, errors: list[str], path: Path, origin: Origin
) -> ConversionError:
    told = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        node, operator = error.node_name(), error.node_operator()
        if not node:
            node, operator = _unnamed(errors, path)
        where = ", ".join(part for part in (node, origin(node)) if part)
        what = operator + (f" ({where})" if where else "")
        told.append(": ".join(part for part in (what, _reason(error.desc())) if part))
    reasons = list(dict.fromkeys(told)) or [errors[-1] if errors else "no reason given"]
    return ConversionError(
        f"{product.title}'s parser refuses {'; '.join(reasons[:5])}",
        hint="rewrite that part of the model, or try another opset (--set opset=...)",
    )


def _unnamed(errors: list[str], path: Path) -> tuple[str, str]:
    """Node and operator where the parser names only the function in which it failed.

    The node is empty where the file has several of that operator.
    """
    text = "\n".join(errors)
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    if constants := re.findall(r"Failed to import initializer: (\S+)", text):
        users = [node for node in graph.node if constants[-1] in node.input]
        return (users[0].name, users[0].op_type) if users else ("", "")
    found = re.search(r"In function import(\w+):", text)
    if found is None:
        return "", ""
    names = [node.name for node in graph.node if node.op_type == found[1]]
    return names[0] if len(names) == 1 else "", found[1]


def _reason(text: str) -> str:
    """The parser's words without C++ conditions that say nothing to a reader."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    # "Invalid Node" only repeats the name; what is wrong with it stands in the next line.
    telling = [line for line in lines if not line.startswith("Invalid Node")] or lines
    first = plain_reason(telling[0]) if telling else ""
    if "Failed to import initializer" in first:
        return "a constant of a dtype that TensorRT does not have"
    return "the operator is not supported" if first in ("", "false") else first
