"""Faults in how values are computed: activations, norms, masks, precision, order of operands."""

from __future__ import annotations

import math
import random

import numpy as np
import onnx

from .network import Network, Place, kind

_NORMS = ("BatchNormalization", "LayerNormalization", "InstanceNormalization")
_SMOOTH = ("Sigmoid", "Tanh", "Gelu", "Exp", "Softplus", "Mish", "Softmax", "Sin", "Cos", "Log")
_WORKING = ("Conv", "Gemm", "MatMul", "LayerNormalization", "Softmax", "Add", "Mul", "Relu")


def _of(*operators: str):  # type: ignore[no-untyped-def]
    return lambda net: [Place(i) for i in net.of(*operators)]


def _small_constants(net: Network) -> list[Place]:
    """Constants of additions that guard a root or a quotient."""
    found = []
    for index in net.of("Add"):
        for slot in (0, 1):
            value = net.constant(net.nodes[index], slot)
            if value is not None and value.size == 1 and 0 < float(value.reshape(-1)[0]) < 1e-3:
                found.append(Place(index, slot))
    return found


@kind(lambda net: [Place(i) for i in net.of(*_NORMS)] + _small_constants(net))
def norm_epsilon(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    factor = rng.choice((0.1, 0.9, 1.1, 2.0, 10.0, 100.0))
    if node.op_type == "Add":
        value = net.constant(node, slot)
        assert value is not None
        net.feed(node, slot, value * np.float32(factor))
    else:
        net.set(node, "epsilon", factor * net.attribute(node, "epsilon", 1e-5))
    return f"epsilon {factor:g} times as large"


@kind(_of("Gelu"))
def gelu_form(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    was = net.attribute(node, "approximate", b"none")
    net.set(node, "approximate", "none" if was == b"tanh" else "tanh")
    return f"GELU was {was.decode()} and is the other form"


@kind(_of("LeakyRelu", "Elu", "Celu", "Selu", "PRelu"))
def wrong_alpha(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    factor = rng.choice((0.5, 0.99, 1.0001, 1.1))
    if node.op_type == "PRelu":
        value = net.constant(node, 1)
        assert value is not None
        net.feed(node, 1, value * np.float32(factor))
    else:
        default = {"LeakyRelu": 0.01, "Selu": 1.6732632}.get(node.op_type, 1.0)
        net.set(node, "alpha", factor * net.attribute(node, "alpha", default))
    return f"alpha {factor:g} times as large"


@kind(_of("HardSigmoid", "HardSwish"))
def hard_constants(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    if node.op_type == "HardSigmoid":
        slope = rng.choice((0.2, 0.1667, 0.166667))
        net.set(node, "alpha", slope)
        return f"slope of the hard sigmoid {slope}"
    factor = rng.choice((1.0002, 1.02))
    net.after(node, ("Mul", factor))
    return f"hard swish divided by {6 / factor:.4g}"


@kind(_of("Relu", "Clip"))
def clamped_range(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    if node.op_type == "Relu":
        net.after(node, ("Clip", [0.0, 6.0]))
        return "ReLU6 for ReLU"
    value = net.constant(node, 2) if len(node.input) > 2 else None
    if value is None:
        net.after(node, ("Clip", [-2.0, 2.0]))
        return "clipped to +-2 as well"
    factor = rng.choice((0.5, 0.9, 0.999))
    net.feed(node, 2, value * np.asarray(factor, value.dtype))
    return f"upper bound {factor:g} times as large"


@kind(_of("Conv", "Gemm", "MatMul"))
def saturated(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    bound = rng.choice((1.0, 2.0, 3.0, 4.0))
    net.after(node, ("Clip", [-bound, bound]))
    return f"values clipped to +-{bound:g}"


@kind(_of(*_WORKING))
def through_half(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    half, full = onnx.TensorProto.FLOAT16, onnx.TensorProto.FLOAT
    net.after(node, ("Cast", {"to": half}), ("Cast", {"to": full}))
    return "the result went through float16"


@kind(_of(*_WORKING))
def through_bfloat(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    half, full = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    net.after(node, ("Cast", {"to": half}), ("Cast", {"to": full}))
    return "the result went through bfloat16"


@kind(_of(*_SMOOTH), graded=True)
def function_table(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    power = rng.randint(13, 22)
    net.after(node, ("Mul", 2.0**power), ("Round", {}), ("Mul", 2.0**-power))
    return f"a table of {node.op_type} in steps of 2^-{power}"


@kind(_of(*_SMOOTH), graded=True)
def function_gain(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    power = rng.randint(14, 21)
    net.after(node, ("Mul", 1 + 2.0**-power))
    return f"{node.op_type} 1 + 2^-{power} times as large"


@kind(_of("Sigmoid"))
def sigmoid_form(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    net.replace(node, ("HardSigmoid", {"alpha": 0.2, "beta": 0.5}))
    return "a hard sigmoid for the sigmoid"


def _softmaxes(net: Network) -> list[Place]:
    found = [(i, net.shape(net.nodes[i].output[0])) for i in net.of("Softmax", "LogSoftmax")]
    return [Place(i) for i, shape in found if shape and len(shape) > 1]


@kind(_softmaxes)
def softmax_axis(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    axis = net.attribute(node, "axis", -1)
    other = axis + 1 if axis == 0 else axis - 1
    net.set(node, "axis", other)
    return f"axis {axis} became {other}"


def _scales(net: Network) -> list[Place]:
    """Scalars that multiply what goes into a softmax, one matrix product later at most."""
    found = []
    for index in net.of("Mul", "Div"):
        node = net.nodes[index]
        for slot in (0, 1):
            value = net.constant(node, slot)
            if value is not None and value.size == 1 and value.dtype == np.float32:
                near = net.consumers(node.output[0])
                for _ in range(3):
                    near = near + [n for m in near for n in net.consumers(m.output[0])]
                if any(n.op_type == "Softmax" for n in near[:40]):
                    found.append(Place(index, slot))
    return found


@kind(_scales)
def attention_scale(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value = net.constant(node, slot)
    assert value is not None
    number = float(value.reshape(-1)[0])
    wrong = rng.choice((number * number, number * 1.001, math.sqrt(abs(number))))
    net.feed(node, slot, np.full_like(value, wrong))
    return f"scale of the attention {wrong:.6g} for {number:.6g}"


def _swappable(net: Network) -> list[Place]:
    found = []
    for index in net.of("Sub", "Div", "MatMul", "Concat"):
        node = net.nodes[index]
        shapes = [net.shape(name) for name in node.input[:2]]
        alike = len(shapes) == 2 and shapes[0] is not None and shapes[0] == shapes[1]
        square = alike and shapes[0] and shapes[0][-1] == shapes[0][-2:][0]
        fits = alike and (node.op_type != "MatMul" or square)
        scalar = node.op_type in ("Sub", "Div") and 1 in map(_elements, shapes)
        if (fits or scalar) and node.input[0] != node.input[1]:
            found.append(Place(index))
    return found


def _elements(shape: tuple[int, ...] | None) -> int:
    return -1 if shape is None else math.prod(shape)


@kind(_swappable)
def swapped_inputs(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    node.input[0], node.input[1] = node.input[1], node.input[0]
    return f"inputs of {node.op_type} swapped"


def _sums(net: Network) -> list[Place]:
    found = []
    for index in net.of("Add", "Mul"):
        node = net.nodes[index]
        shapes = [net.shape(name) for name in node.input]
        held = any(name in net.initial for name in node.input)
        if not held and shapes[0] and shapes[0] == shapes[1]:
            found.append(Place(index, 0))
    return found


@kind(_sums)
def missing_operand(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    kept, was = rng.randrange(2), node.op_type
    name, out, label = node.input[kept], node.output[0], node.name
    node.CopyFrom(onnx.helper.make_node("Identity", [name], [out], name=label))
    return f"{was} passes input {kept} on"


@kind(_of("Where"))
def mask_polarity(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    net.before(node, 0, ("Not", {}))
    return "the mask inverted"


def _masks(net: Network) -> list[Place]:
    """Additive masks that the file holds."""
    found = []
    for place in net.weights("Add"):
        value = net.constant(net.nodes[place.node], place.slot)
        if value is not None and (value < -1e4).any() and (value == 0).any():
            found.append(place)
    return found


@kind(_masks)
def mask_shifted(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value = net.constant(node, slot)
    assert value is not None
    shifted = np.roll(value, -1, axis=-1)
    shifted[..., -1] = value[..., -1]
    net.feed(node, slot, shifted)
    return "the mask off by one place"


@kind(_of("Round"))
def rounding_mode(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    net.replace(node, ("Add", 0.5), ("Floor", {}))
    return "halves rounded up, not to even"


@kind(_of("GRU"))
def reset_gate(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    was = net.attribute(node, "linear_before_reset", 0)
    net.set(node, "linear_before_reset", 1 - was)
    return "the reset gate on the other side of the product"
