"""What TensorRT's builder says when it fails, as one message with cause and remedy."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from ...errors import ConversionError, IsomorphError, MissingRequirementError

if TYPE_CHECKING:
    from .options import Settings
    from .parse import Origin, ParsedNetwork

__all__ = ["build_failure", "onnx_node", "own_errors", "plain_reason", "says_out_of_memory"]

_OUT_OF_MEMORY = (
    *("out of memory", "OutOfMemory", "insufficient memory", "Requested amount of GPU"),
    "GPU memory allocation",
)
_NOISE = tuple(
    re.compile(pattern)
    for pattern in (
        r"\s*In \w+ at \S+:\d+\)?",
        r"^\[?[\w.]+::\w+::\d+\]\s*",
        r"^\w+::\w+: ",
        r"Error Code \d+: ",
        r"^(API Usage|Internal) Error \(",
        r"^Serialization \(Serialization assertion .*? failed\.?\s*",
        r"^Assertion (failed: |.*? failed\. )",
    )
)
_NO_GPU = ("CUDA_SUCCESS", "cudaError 35", "no CUDA-capable device", "CUDA driver version")


def build_failure(
    parsed: ParsedNetwork, errors: Sequence[str], settings: Settings, origin: Origin
) -> IsomorphError:
    """The error for a build that gave no engine.

    Args:
        errors: what TensorRT's logger heard while it built, in order.
        origin: where an ONNX node came from.
    """
    title = parsed.product.title
    own = own_errors(errors)
    text = own[-1] if own else "it gives no reason"
    if any(map(says_out_of_memory, errors)):
        return ConversionError(
            f"{title} ran out of GPU memory while building: {plain_reason(text)}",
            hint="allow it less scratch memory (--set workspace=1024, in MiB), close other "
            "programs on the GPU, or lower the largest size of a dynamic dim",
        )
    where = "; ".join(dict.fromkeys(_places(parsed, own, origin)))
    if "FP32 GEMM is not supported" in text:
        return ConversionError(
            f"{title} has no float32 matrix product for SM75 (Turing): "
            f"{where or plain_reason(text)}",
            hint="use --precision fp16, or leave 75 out of --set sm=...",
        )
    if any(sign in text for sign in _NO_GPU):
        return MissingRequirementError(
            f"{title} needs a GPU for this build: {plain_reason(text)}",
            hint="build on a machine with a GPU, or leave out "
            + (", ".join(flag.lower() for flag in settings.flags) or "the options that need one"),
        )
    return ConversionError(
        f"{title} does not build {where or 'the network'}: {plain_reason(text)}",
        hint="rewrite that part of the model, or export to ONNX and run it on ONNX Runtime",
    )


def _places(parsed: ParsedNetwork, errors: Sequence[str], origin: Origin) -> Iterator[str]:
    """Layers that the messages name, each with where it came from."""
    network = parsed.network
    layers = {}
    for index in range(network.num_layers):
        layer = network.get_layer(index)
        layers[layer.name] = (layer.type.name, layer.metadata)
    for text in errors:
        # Longest first: `node_add_1` must not be taken for `node_add`.
        for name in sorted(layers, key=len, reverse=True):
            if name and re.search(rf"(?<![\w.]){re.escape(name)}(?![\w.])", text):
                kind, source = layers[name]
                node = onnx_node(source) or name
                parts = (node, origin(node))
                yield f"{kind} ({', '.join(part for part in parts if part)})"
                break


def onnx_node(source: str) -> str:
    """The ONNX node that a layer's metadata names first; empty where it names none."""
    found = re.search(r"\[ONNX Layer: ([^\]|]+)", source)
    return found[1].strip() if found else ""


def own_errors(errors: Sequence[str]) -> list[str]:
    """What was heard, without what only follows from the lack of a GPU while an error is told."""
    return [text for text in errors if "catchCudaError" not in text] or list(errors)


def says_out_of_memory(text: str) -> bool:
    """Whether a message of TensorRT's means that the GPU's memory did not suffice."""
    return any(sign in text for sign in _OUT_OF_MEMORY)


def plain_reason(text: str) -> str:
    """TensorRT's words without C++ conditions, file names, line numbers and classes of errors."""
    text = " ".join(text.split())
    for noise in _NOISE:
        text = noise.sub("", text)
    # Assertions: the sentence in quotes says more than the condition before it.
    if found := re.search(r'&&\s*"([^"]+)"', text):
        text = found[1]
    condition, colon, rest = text.partition(": ")
    if colon and re.search(r"&&|==|->", condition):
        text = rest
    # The opening bracket went with the class of the error.
    if text.count(")") > text.count("("):
        text = text.rstrip().removesuffix(")")
    return text.strip()[:300]
