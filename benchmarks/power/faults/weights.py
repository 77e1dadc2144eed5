"""Faults in what the file holds: weights, biases, buffers, constants."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx
from numpy.typing import NDArray

from .network import Network, Place, kind

_MATRICES = ("Conv", "ConvTranspose", "Gemm", "MatMul")


def _matrices(net: Network) -> list[Place]:
    return net.weights(*_MATRICES)


def _value(net: Network, node: onnx.NodeProto, slot: int) -> NDArray[Any]:
    value = net.constant(node, slot)
    assert value is not None
    return value.copy()


def rounded(value: NDArray[Any], bits: int) -> NDArray[Any]:
    """float32 with that many bits of mantissa, to nearest even."""
    mantissa, exponent = np.frexp(value.astype(np.float64))
    scale = 2.0 ** (bits + 1)
    return np.ldexp(np.rint(mantissa * scale) / scale, exponent).astype(np.float32)


@kind(_matrices, graded=True)
def one_weight(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value = _value(net, node, slot)
    at, power = rng.randrange(value.size), rng.randint(4, 18)
    value.reshape(-1)[at] += np.float32(2.0**-power * np.sqrt(np.mean(value**2)))
    net.feed(node, slot, value)
    return f"weight {at} moved by 2^-{power} of their RMS"


@kind(_matrices)
def weight_half(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    net.feed(node, slot, rounded(_value(net, node, slot), 10))
    return "weights rounded to float16"


@kind(_matrices)
def weight_bfloat(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    net.feed(node, slot, rounded(_value(net, node, slot), 7))
    return "weights rounded to bfloat16"


@kind(_matrices, graded=True)
def weight_bits(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    bits = rng.randint(13, 20)
    net.feed(node, slot, rounded(_value(net, node, slot), bits))
    return f"weights rounded to {bits} bits of mantissa"


@kind(_matrices, graded=True)
def weight_truncated(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    bits = rng.randint(14, 21)
    raw = _value(net, node, slot).view(np.int32)
    net.feed(node, slot, (raw & (-1 << (23 - bits))).view(np.float32))
    return f"weights cut to {bits} bits of mantissa"


@kind(_matrices, graded=True)
def weight_gain(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    power = rng.randint(14, 21)
    net.feed(node, slot, _value(net, node, slot) * np.float32(1 + 2.0**-power))
    return f"weights 1 + 2^-{power} times as large"


@kind(_matrices)
def weight_integer(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value = _value(net, node, slot)
    step = np.float32(max(np.abs(value).max(), 1e-9) / 127)
    net.feed(node, slot, np.rint(value / step) * step)
    return "weights rounded to 8-bit steps"


def _square(net: Network) -> list[Place]:
    found = []
    for place in net.weights("Gemm", "MatMul"):
        value = net.constant(net.nodes[place.node], place.slot)
        if value is not None and value.shape[-1] == value.shape[-2] > 1:
            found.append(place)
    return found


@kind(_square)
def weight_transposed(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    net.feed(node, slot, np.swapaxes(_value(net, node, slot), -1, -2))
    return "a square weight transposed"


def _kernels(net: Network) -> list[Place]:
    found = []
    for place in net.weights("Conv", "ConvTranspose", rank=3):
        value = net.constant(net.nodes[place.node], place.slot)
        if value is not None and value.shape[-1] > 1:
            found.append(place)
    return found


@kind(_kernels)
def kernel_flipped(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    net.feed(node, slot, _value(net, node, slot)[..., ::-1])
    return "the kernel mirrored on its last axis"


@kind(lambda net: net.weights("Conv", "Gemm"))
def channels_swapped(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value = _value(net, node, slot)
    a, b = rng.sample(range(len(value)), 2) if len(value) > 1 else (0, 0)
    value[[a, b]] = value[[b, a]]
    net.feed(node, slot, value)
    return f"rows {a} and {b} of the weight swapped"


def _biases(net: Network) -> list[Place]:
    found = [Place(i, 2) for i in net.of("Conv", "ConvTranspose", "Gemm", "LayerNormalization")]
    found += [Place(p.node, p.slot) for p in net.weights("Add", rank=1)]
    sizes = [(p, net.constant(net.nodes[p.node], p.slot)) for p in found]
    return [p for p, v in sizes if v is not None and v.size > 1 and np.any(v != 0)]


@kind(_biases)
def bias_dropped(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    net.feed(node, slot, np.zeros_like(_value(net, node, slot)))
    return "the bias set to zero"


@kind(_biases, graded=True)
def bias_drift(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value, power = _value(net, node, slot), rng.randint(12, 21)
    net.feed(node, slot, value + np.float32(2.0**-power * np.abs(value).max()))
    return f"2^-{power} of the largest bias added to all"


@kind(_biases, graded=True)
def bias_half(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    bits = rng.choice((7, 10, 13, 15, 16, 17, 18))
    net.feed(node, slot, rounded(_value(net, node, slot), bits))
    return f"the bias rounded to {bits} bits of mantissa"


def _buffers(net: Network) -> list[Place]:
    found = [Place(i, s) for i in net.of("BatchNormalization") for s in (3, 4)]
    found += [Place(i, 1) for i in net.of("LayerNormalization", "InstanceNormalization")]
    found += [Place(i, 2) for i in net.of("Conv")]
    sizes = [(p, net.constant(net.nodes[p.node], p.slot)) for p in found]
    return [p for p, v in sizes if v is not None and v.size > 1 and np.ptp(v) > 0]


@kind(_buffers)
def stale_buffer(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value = _value(net, node, slot)
    at = rng.randrange(value.size)
    value[at] = value[at - 1]
    net.feed(node, slot, value)
    return f"channel {at} of a statistic or bias taken from its neighbour"


def _scalars(net: Network) -> list[Place]:
    found = []
    for index in net.of("Add", "Sub", "Mul", "Div", "Pow", "Where"):
        for slot in range(len(net.nodes[index].input)):
            value = net.constant(net.nodes[index], slot)
            if value is None or value.size != 1 or value.dtype != np.float32:
                continue
            number = float(value.reshape(-1)[0])
            if np.isfinite(number) and float(f"{number:.2e}") != float(f"{number:.8g}"):
                found.append(Place(index, slot))
    return found


@kind(_scalars)
def constant_digits(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value = _value(net, node, slot)
    digits = rng.randint(3, 6)
    number = float(f"{float(value.reshape(-1)[0]):.{digits - 1}e}")
    net.feed(node, slot, np.full_like(value, number))
    return f"a constant written with {digits} digits"


def _tables(net: Network) -> list[Place]:
    return [p for p in net.weights("Gather") if p.slot == 0]


@kind(_tables)
def table_row(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value = _value(net, node, slot)
    at = rng.randrange(1, len(value))
    value[at] = value[at - 1]
    net.feed(node, slot, value)
    return f"row {at} of the table repeats the one before"


def _gates(net: Network) -> list[Place]:
    return [Place(i, s) for i in net.of("LSTM", "GRU") for s in (1, 2)]


@kind(_gates)
def gate_order(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value = _value(net, node, slot)
    gates = 4 if node.op_type == "LSTM" else 3
    parts = np.split(value, gates, axis=1)
    a, b = rng.sample(range(gates), 2)
    parts[a], parts[b] = parts[b], parts[a]
    net.feed(node, slot, np.concatenate(parts, axis=1))
    return f"weights of gates {a} and {b} swapped"
