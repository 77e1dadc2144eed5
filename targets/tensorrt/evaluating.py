"""A session that computes the network an engine was built from, on a machine without its GPU."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from ... import __version__
from ...errors import ConversionError, UsageError
from ...exporter.signature import Dim, TensorSpec
from ..base import Evidence, Signature
from ..closing import Closing
from ..feed import checked_feed
from ..watching import Value
from .parse import parse

if TYPE_CHECKING:
    import torch
    from numpy.typing import NDArray

    from .evaluate.network import Layer, Network, Tensor
    from .products import Product

__all__ = ["NetworkSession"]


class NetworkSession(Closing):
    """Evaluates the network that `product`'s parser makes of an ONNX file.

    Args:
        product: whose parser to use.
        path: the ONNX file.
        signature: the model's border; None: what the network declares.
        details: more that the evidence is to say.

    Raises:
        ConversionError: the parser refuses the file, or its border is not the model's.
    """

    def __init__(
        self,
        product: Product,
        path: Path,
        signature: Signature | None,
        details: Mapping[str, Any],
    ) -> None:
        from .evaluate.network import read_network

        self.path = path
        parsed = parse(product, path)
        self._network: Network | None = read_network(parsed.module, parsed.network, parsed)
        network = self._network
        if signature is None:
            signature = Signature(
                tuple(map(_spec, network.inputs)), tuple(map(_spec, network.outputs))
            )
        self.inputs, self.outputs = signature.inputs, signature.outputs
        _require_border(product, network, signature)
        self.evidence = Evidence(
            kind="evaluated",
            runtime="isomorph evaluator (network)",
            version=__version__,
            device="cpu",
            details={
                "parser": f"{product.name} {product.version() or parsed.module.__version__}",
                "network": len(network.layers),
                "engine": "not run: that takes its GPU",
                **details,
            },
        )

    def run(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
        """Outputs by name for `inputs` by name.

        Raises:
            UsageError: a name, dtype or shape does not fit.
            UnverifiableError: a layer that the evaluator does not know.
            ConversionError: the network contradicts itself.
        """
        from .evaluate.interpreter import run_network

        found = run_network(self._opened(), self._given(inputs))
        return {spec.name: _array(found[spec.name]) for spec in self.outputs}

    def values(self) -> tuple[Value, ...]:
        """What can be watched; see `Watching`. A node is the ONNX node that a layer is of."""
        from .evaluate.parts import computed

        return tuple(
            Value(tensor.name, layer.kind, _node(layer), sources)
            for layer, tensor, sources in computed(self._opened())
            if hasattr(np, tensor.dtype) or tensor.dtype in ("bfloat16", "bool")
        )

    def run_watching(
        self, inputs: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """Outputs, and the values of `names`; see `Watching`."""
        from .evaluate.parts import watch_network

        found = watch_network(self._opened(), self._given(inputs), names)
        return {name: _array(value) for name, value in found.items()}

    def replay(
        self, given: Mapping[str, NDArray[Any]], names: Sequence[str]
    ) -> dict[str, NDArray[Any]]:
        """The values of `names` from those of `given` alone; see `Watching`."""
        from .evaluate.parts import run_part

        network = self._opened()
        declared = {tensor.name: tensor for tensor in network.inputs}
        declared |= {tensor.name: tensor for layer in network.layers for tensor in layer.outputs}
        if unknown := [name for name in (*given, *names) if name not in declared]:
            raise UsageError(f"the network computes no {', '.join(unknown)}")
        tensors = {name: _tensor(array, declared[name].dtype) for name, array in given.items()}
        found = run_part(network, tensors, names)
        return {name: _array(value) for name, value in found.items()}

    def _opened(self) -> Network:
        if self._network is None:
            raise UsageError(f"the session on {self.path.name} is closed")
        return self._network

    def _given(self, inputs: Mapping[str, NDArray[Any]]) -> dict[str, torch.Tensor]:
        feed = checked_feed(inputs, self.inputs)
        return {
            spec.name: _tensor(array, spec.dtype)
            for spec, array in zip(self.inputs, feed.values(), strict=True)
        }

    def close(self) -> None:
        """Release the network and its weights."""
        self._network = None


def _require_border(product: Product, network: Network, signature: Signature) -> None:
    """The network must take and return what the model does, under the same names and dtypes.

    Raises:
        ConversionError: the parser changed a dtype that TensorRT does not have.
    """
    for specs, tensors in (
        (signature.inputs, network.inputs),
        (signature.outputs, network.outputs),
    ):
        declared = {tensor.name: tensor.dtype for tensor in tensors}
        for spec in specs:
            if declared.get(spec.name) != spec.dtype:
                made = declared.get(spec.name, "nothing")
                raise ConversionError(
                    f"{product.title} has no {spec.dtype} at its border: it makes {made} of "
                    f"{spec.name}",
                    hint="cast to a dtype that it has (float32, float16, bfloat16, int64, int32, "
                    "bool) in the model",
                )


def _spec(tensor: Tensor) -> TensorSpec:
    shape = tuple(
        Dim(f"{tensor.name}_{axis}", min=0) if size < 0 else size
        for axis, size in enumerate(tensor.shape or ())
    )
    return TensorSpec(tensor.name, tensor.dtype, shape)


def _node(layer: Layer) -> str:
    found = re.search(r"\[ONNX Layer: ([^\]]*)\]", layer.source)
    return layer.name if found is None else found[1]


def _tensor(array: NDArray[Any], dtype: str) -> torch.Tensor:
    import torch

    tensor = torch.from_numpy(array.copy())
    return tensor.to(torch.bfloat16) if dtype == "bfloat16" else tensor


def _array(tensor: torch.Tensor) -> NDArray[Any]:
    import torch

    value = tensor.to(torch.float32) if tensor.dtype == torch.bfloat16 else tensor
    array: NDArray[Any] = value.contiguous().numpy()
    return array
