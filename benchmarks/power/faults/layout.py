"""Faults in where values are taken from: borders, grids, axes, slices, pools, sums."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import onnx

from .network import Network, Place, kind


def _of(*operators: str):  # type: ignore[no-untyped-def]
    return lambda net: [Place(i) for i in net.of(*operators)]


def _resizes(*modes: bytes):  # type: ignore[no-untyped-def]
    def find(net: Network) -> list[Place]:
        return [
            Place(i)
            for i in net.of("Resize")
            if net.attribute(net.nodes[i], "mode", b"nearest") in modes
        ]

    return find


@kind(_resizes(b"linear", b"cubic"))
def coordinates(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    name = "coordinate_transformation_mode"
    was = net.attribute(node, name, b"half_pixel").decode()
    modes = [m for m in ("half_pixel", "align_corners", "asymmetric") if m not in was]
    now = rng.choice(modes)
    net.set(node, name, now)
    return f"coordinates {now} for {was}"


@kind(_resizes(b"nearest", b"cubic"))
def resize_rounding(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    if net.attribute(node, "mode", b"nearest") == b"cubic":
        net.set(node, "cubic_coeff_a", -0.5)
        return "cubic coefficient -0.5"
    net.set(node, "nearest_mode", "ceil")
    return "the nearest pixel taken upwards"


@kind(_of("Pad"))
def pad_mode(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    was = net.attribute(node, "mode", b"constant").decode()
    now = rng.choice([m for m in ("constant", "reflect", "edge") if m != was])
    net.set(node, "mode", now)
    return f"padding {now} for {was}"


def _padded(net: Network) -> list[Place]:
    found = []
    for index in net.of("Conv", "MaxPool", "AveragePool"):
        pads = net.attribute(net.nodes[index], "pads", [])
        if pads and pads[-1] > 0:
            found.append(Place(index))
    return found


@kind(_padded)
def pad_amounts(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    pads = list(net.attribute(node, "pads"))
    half = len(pads) // 2
    pads[half - 1], pads[-1] = pads[half - 1] + 1, pads[-1] - 1
    net.set(node, "pads", pads)
    return f"padding moved by one to the left: {pads}"


def _bordered_means(net: Network) -> list[Place]:
    pools = net.of("AveragePool")
    return [Place(i) for i in pools if any(net.attribute(net.nodes[i], "pads", []))]


@kind(_bordered_means)
def count_include_pad(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    was = net.attribute(node, "count_include_pad", 0)
    net.set(node, "count_include_pad", 1 - was)
    return f"count_include_pad {1 - was}"


@kind(_of("MaxPool", "AveragePool"))
def pool_kind(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    was = node.op_type
    node.op_type = "AveragePool" if was == "MaxPool" else "MaxPool"
    kept = [a for a in node.attribute if a.name not in ("storage_order", "count_include_pad")]
    del node.attribute[:]
    node.attribute.extend(kept)
    return f"{node.op_type} for {was}"


def _dilatable(net: Network) -> list[Place]:
    found = []
    for index in net.of("Conv"):
        node = net.nodes[index]
        weight = net.constant(node, 1)
        if weight is None or any(k != 3 for k in weight.shape[2:]):
            continue
        plain = all(d == 1 for d in net.attribute(node, "dilations", [1]))
        if plain and all(p == 1 for p in net.attribute(node, "pads", [0])):
            found.append(Place(index))
    return found


@kind(_dilatable)
def dilation(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    axes = len(net.attribute(node, "pads")) // 2
    net.set(node, "dilations", [2] * axes)
    net.set(node, "pads", [2] * 2 * axes)
    return "dilation 2 with padding 2"


@kind(_of("GridSample"))
def grid_corners(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    if rng.random() < 0.5:
        net.set(node, "align_corners", 1 - net.attribute(node, "align_corners", 0))
        return "align_corners the other way"
    net.set(node, "padding_mode", "zeros")
    return "zeros outside of the image"


@kind(_of("DepthToSpace"))
def shuffle_order(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    was = net.attribute(node, "mode", b"DCR")
    net.set(node, "mode", "CRD" if was == b"DCR" else "DCR")
    return "channels and blocks of the pixel shuffle in the other order"


def _transposes(net: Network) -> list[Place]:
    return [Place(i) for i in net.of("Transpose") if _equal_axes(net, net.nodes[i])]


def _equal_axes(net: Network, node: onnx.NodeProto) -> tuple[int, int] | None:
    shape = net.shape(node.output[0]) or ()
    for a, size in enumerate(shape):
        for b in range(a + 1, len(shape)):
            if size == shape[b] > 1:
                return a, b
    return None


@kind(_transposes)
def axis_order(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    order = list(net.attribute(node, "perm"))
    a, b = _equal_axes(net, node) or (0, 0)
    order[a], order[b] = order[b], order[a]
    net.set(node, "perm", order)
    return f"axes {a} and {b} of equal size swapped"


def _axes(net: Network) -> list[Place]:
    """Operators whose axis can be another one without a change of shape."""
    found = [Place(i) for i in net.of("CumSum")]
    for index in net.of("ReduceMean", "ReduceSum", "ReduceMax", "ReduceL2", "ArgMax"):
        node = net.nodes[index]
        axes = _reduced(net, node)
        shape = net.shape(node.input[0])
        if axes is None or shape is None or len(axes) != 1:
            continue
        axis = axes[0] % len(shape)
        if axis > 0 and shape[axis - 1] == shape[axis] > 1:
            found.append(Place(index))
    return found


def _reduced(net: Network, node: onnx.NodeProto) -> list[int] | None:
    if node.op_type == "ArgMax":
        return [net.attribute(node, "axis", 0)]
    axes = net.constant(node, 1)
    return None if axes is None else [int(a) for a in axes]


@kind(_axes)
def axis_off_by_one(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    if node.op_type == "ArgMax":
        net.set(node, "axis", net.attribute(node, "axis", 0) - 1)
    else:
        axis = net.constant(node, 1)
        assert axis is not None
        step = -1 if (axis != 0).all() else 1
        net.feed(node, 1, axis + np.asarray(step, axis.dtype))
    return f"axis of {node.op_type} off by one"


_OTHERS = {
    "ReduceMean": "ReduceMax",
    "ReduceSum": "ReduceMean",
    "ReduceMax": "ReduceMean",
    "ReduceMin": "ReduceMean",
    "ReduceL2": "ReduceL1",
}


@kind(_of(*_OTHERS))
def reduction_kind(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    was, node.op_type = node.op_type, _OTHERS[node.op_type]
    return f"{node.op_type} for {was}"


@kind(_of("ReduceMean", "AveragePool"))
def mean_divisor(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    before, after = net.shape(node.input[0]), net.shape(node.output[0])
    count = rng.choice((49, 1024))
    if node.op_type == "ReduceMean" and before and after:
        count = max(int(np.prod(before)) // max(int(np.prod(after)), 1), 2)
    net.after(node, ("Mul", count / (count - 1)))
    return f"divided by {count - 1} of {count}"


def _crops(net: Network) -> list[Place]:
    """Slices that leave something of an axis out, so that they can be moved by one."""
    found = []
    for index in net.of("Slice"):
        if _moved(net, net.nodes[index]) is not None:
            found.append(Place(index))
    return found


def _moved(net: Network, node: onnx.NodeProto) -> tuple[Any, Any] | None:
    starts, ends = net.constant(node, 1), net.constant(node, 2)
    axes = net.constant(node, 3) if len(node.input) > 3 else None
    shape = net.shape(node.input[0])
    if starts is None or ends is None or shape is None:
        return None
    chosen = range(len(starts)) if axes is None else [int(a) for a in axes]
    for at, axis in enumerate(chosen):
        size = shape[axis]
        start = int(starts[at]) + (size if starts[at] < 0 else 0)
        end = min(int(ends[at]) + (size if ends[at] < 0 else 0), size)
        step = 1 if end < size else -1 if start > 0 else 0
        if step:
            starts, ends = starts.copy(), ends.copy()
            starts[at], ends[at] = start + step, end + step
            return starts, ends
    return None


@kind(_crops)
def crop_off_by_one(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    moved = _moved(net, node)
    assert moved is not None
    net.feed(node, 1, moved[0])
    net.feed(node, 2, moved[1])
    return "the slice moved by one"


def _halves(net: Network) -> list[Place]:
    found = []
    for index in net.of("Split"):
        shapes = [net.shape(name) for name in net.nodes[index].output]
        if len(shapes) > 1 and shapes[0] is not None and shapes[0] == shapes[1]:
            found.append(Place(index))
    return found


@kind(_halves)
def parts_swapped(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    node.output[0], node.output[1] = node.output[1], node.output[0]
    return "two parts of a split swapped"


def _indices(net: Network) -> list[Place]:
    found = []
    for index in net.of("Gather"):
        value = net.constant(net.nodes[index], 1)
        if value is not None and value.size > 1 and np.ptp(value) > 0:
            found.append(Place(index, 1))
    return found


@kind(_indices)
def index_off_by_one(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    value = net.constant(node, slot)
    assert value is not None
    net.feed(node, slot, np.roll(value, 1, axis=-1))
    return "indices moved by one"


@kind(_of("TopK", "ArgMax"))
def selection(net: Network, node: onnx.NodeProto, slot: int, rng: random.Random) -> str:
    if node.op_type == "TopK":
        net.set(node, "largest", 1 - net.attribute(node, "largest", 1))
        return "the smallest for the largest"
    if rng.random() < 0.5:
        node.op_type = "ArgMin"
        return "ArgMin for ArgMax"
    net.set(node, "select_last_index", 1)
    return "the last of equal elements"
