"""Sizes that no machine has room for, inputs that do not fit, and damaged copies of a package."""

from __future__ import annotations

import copy
import os
import random
import resource
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.interpreter import run_function
from isomorph.targets.coreml.evaluate.program import Block, Function, Port
from isomorph.targets.coreml.evaluate.state import fresh_states
from isomorph.targets.coreml.evaluate.types import ListType, StateType, TensorType
from isomorph.targets.coreml.quiet import coremltools

HERE = Path(__file__).parent
small_package = runpy.run_path(str(HERE / "small_package.py"))
MODEL, WEIGHTS, spec_of, store = (
    small_package[name] for name in ("MODEL", "WEIGHTS", "spec_of", "store")
)
damage = runpy.run_path(str(HERE / "test_changes.py"))

HUGE = 2**31 - 1
IMAGE = torch.ones(1, 1, 4, 4)


def ints(*values: int) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def one(value: Any) -> torch.Tensor:
    return torch.tensor(value)


BOXES = {"boxes": torch.zeros(1, 4), "box_indices": ints(0)}
KERNEL = torch.ones(1, 1, 2, 2)
BOMBS: dict[str, tuple[str, dict[str, Any]]] = {
    "pad": ("pad", {"x": IMAGE, "pad": ints(HUGE, HUGE)}),
    "pad of two": ("pad", {"x": IMAGE, "pad": ints(60000, 0, 60000, 0), "mode": "constant"}),
    "tile": ("tile", {"x": IMAGE, "reps": ints(1, 1, HUGE, HUGE)}),
    "fill": ("fill", {"shape": ints(HUGE, HUGE), "value": one(1.0)}),
    "range": ("range_1d", {"start": one(0.0), "end": one(3e9), "step": one(1.0)}),
    "one_hot": ("one_hot", {"indices": ints(1), "one_hot_vector_size": one(HUGE)}),
    "conv": (
        "conv",
        {"x": IMAGE, "weight": KERNEL, "pad_type": "custom", "pad": ints(0, HUGE, 0, HUGE)},
    ),
    "dilations": (
        "conv",
        {"x": IMAGE, "weight": KERNEL, "pad_type": "custom", "pad": ints(0, HUGE, 0, HUGE),
         "dilations": ints(HUGE, HUGE)},
    ),
    "conv_transpose": (
        "conv_transpose", {"x": IMAGE, "weight": KERNEL, "strides": ints(HUGE, HUGE)},
    ),
    "max_pool": (
        "max_pool",
        {"x": IMAGE, "kernel_sizes": ints(HUGE, HUGE), "pad_type": "custom",
         "pad": ints(HUGE, HUGE, HUGE, HUGE)},
    ),
    "avg_pool": (
        "avg_pool",
        {"x": IMAGE, "kernel_sizes": ints(2, 2), "pad_type": "custom",
         "pad": ints(HUGE, HUGE, HUGE, HUGE), "exclude_padding_from_average": one(False)},
    ),
    "upsample": ("upsample_nearest_neighbor", {"x": IMAGE, "scale_factor_height": one(1e9)}),
    "bilinear": ("upsample_bilinear", {"x": IMAGE, "scale_factor_width": one(1e9)}),
    "resize": (
        "resize", {"x": IMAGE, "shape": ints(1, 1, HUGE, HUGE), "resized_dims": one(2)},
    ),
    "resize_bilinear": ("resize_bilinear", {"x": IMAGE, "target_size_height": one(HUGE)}),
    "resize_nearest": (
        "resize_nearest_neighbor",
        {"x": IMAGE, "target_size_height": one(HUGE), "target_size_width": one(HUGE)},
    ),
    "crop_resize": (
        "crop_resize",
        {"x": IMAGE, **BOXES, "target_height": one(HUGE), "target_width": one(HUGE)},
    ),
    "space_to_batch": (
        "space_to_batch",
        {"x": IMAGE, "block_shape": ints(1, 1),
         "paddings": torch.tensor([[HUGE, 0], [HUGE, 0]], dtype=torch.int32)},
    ),
    "make_list": ("make_list", {"init_length": one(HUGE)}),
    "affine": (
        "affine",
        {"x": IMAGE, "transform_matrix": torch.tensor([[1.0, 0, 0, 0, 1, 0]]),
         "output_height": one(HUGE), "output_width": one(HUGE), "sampling_mode": "bilinear",
         "padding_mode": "constant", "padding_value": one(0.0),
         "coordinates_mode": "normalized_minus_one_to_one", "align_corners": one(True)},
    ),
}  # fmt: skip


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A gigabyte more than now; whoever asks for more gets a RuntimeError of torch."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + (1 << 30)
    resource.setrlimit(resource.RLIMIT_AS, (limit if hard < 0 else min(limit, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("name", BOMBS)
def test_a_size_beyond_reason_is_refused_before_memory_is_asked_for(direct: Any, name: str) -> None:
    kind, inputs = BOMBS[name]
    with pytest.raises(UnverifiableError, match="than this evaluator makes"):
        direct(kind, inputs, TensorType("fp32", None))


@pytest.mark.usefixtures("little_memory")
def test_a_size_that_the_file_declares_is_refused_where_it_is_beyond_reason(direct: Any) -> None:
    declared = TensorType("fp32", (HUGE, HUGE))
    with pytest.raises(UnverifiableError, match="larger"):
        direct("add", {"x": torch.zeros(1), "y": torch.zeros(1)}, declared)


def taking(kind: Any) -> Function:
    """A function that returns its input `x`."""
    return Function("main", (Port("x", kind),), Block((), (), ("x",)), 8)


TENSOR = TensorType("fp32", (2, None))


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        (TENSOR, {}),
        (TENSOR, {"y": torch.zeros(2, 3)}),
        (TENSOR, {"x": torch.zeros(3, 3)}),
        (TENSOR, {"x": torch.zeros(2)}),
        (TENSOR, {"x": torch.zeros(2, 3).half()}),
        (TENSOR, {"x": torch.zeros(2, 3).int()}),
        (TENSOR, fresh_states(taking(StateType(TensorType("fp32", (2, 3)))))),
        (StateType(TensorType("fp32", (2, 3))), {"x": torch.zeros(2, 3)}),
        (StateType(TensorType("fp32", (2, 3))), {}),
        (ListType(TENSOR, None), {"x": torch.zeros(2, 3)}),
    ],
)
def test_what_is_fed_is_of_the_declared_type(kind: Any, given: Any) -> None:
    with pytest.raises(InputFileError, match="its input x is declared"):
        run_function(taking(kind), given)


def test_what_fits_is_taken() -> None:
    x = torch.ones(2, 5)
    assert run_function(taking(TENSOR), {"x": x})["x"] is x
    state = fresh_states(taking(StateType(TensorType("fp32", (2, 3)))))
    assert run_function(taking(StateType(TensorType("fp32", (2, 3)))), state)["x"] is state["x"]


def network(mb: Any, x: Any) -> Any:
    """Convolution, pooling, resizing, padding and a recurrent layer: x is [1, 3, 6, 6]."""
    rng = np.random.default_rng(1)

    def weight(*shape: int) -> Any:
        return rng.normal(size=shape).astype(np.float32)

    y = mb.conv(
        x=x, weight=weight(4, 3, 3, 3), bias=weight(4), strides=[2, 1], pad_type="custom",
        pad=[1, 1, 2, 0], dilations=[1, 2], groups=1,
    )  # fmt: skip
    y = mb.resize(
        x=y, shape=[5, 7], resized_dims=np.uint32(2), interpolation_mode="LINEAR",
        sampling_mode="UNALIGN_CORNERS",
    )  # fmt: skip
    y = mb.pad(x=y, pad=[1, 2, 0, 1], mode="constant", constant_val=0.5)
    y = mb.avg_pool(x=y, kernel_sizes=[2, 3], strides=[2, 2], pad_type="valid")
    y = mb.conv_transpose(
        x=y, weight=weight(4, 2, 2, 2), strides=[2, 1], pad_type="valid", groups=1
    )
    y = mb.tile(x=y, reps=[1, 1, 1, 2])
    steps = mb.transpose(x=mb.reshape(x=y, shape=[1, 2, -1]), perm=[1, 0, 2])
    width = steps.shape[-1]
    _, h, c = mb.lstm(
        x=steps, initial_h=weight(1, 3), initial_c=weight(1, 3), weight_ih=weight(12, width),
        weight_hh=weight(12, 3), bias=weight(12), direction="forward", output_sequence=False,
        recurrent_activation="sigmoid", cell_activation="tanh", activation="tanh",
    )  # fmt: skip
    found, h2 = mb.gru(
        x=steps, initial_h=h, weight_ih=weight(9, width), weight_hh=weight(9, 3),
        bias=np.zeros(9, np.float32), direction="forward", output_sequence=True,
        recurrent_activation="sigmoid", activation="tanh",
    )  # fmt: skip
    return mb.mul(x=found, y=mb.fill(shape=[1, 1, 3], value=2.0)), mb.add(x=c, y=h2), y


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    coremltools()
    path: Path = tmp_path_factory.mktemp("recurrent") / "net.mlpackage"
    small_package["write"].__globals__["build"] = network
    small_package["write"](path)
    return path


def test_the_sound_package_evaluates(sound: Path) -> None:
    kinds = {operation.type for operation in small_package["block_of"](spec_of(sound)).operations}
    assert {"conv", "conv_transpose", "resize", "pad", "avg_pool", "tile", "lstm", "gru"} <= kinds
    outputs = small_package["outputs"](sound)
    assert all(bool(torch.isfinite(value).all()) for value in outputs)


@pytest.mark.usefixtures("little_memory")
def test_a_damaged_specification_fails_as_such_or_evaluates(sound: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.mlpackage"
    shutil.copytree(sound, path)
    chance, whole = random.Random(2), spec_of(sound)
    total = len(damage["changes"](copy.deepcopy(whole), chance, []))
    refused = tried = 0
    for _ in range(200):
        spec = copy.deepcopy(whole)
        try:
            damage["changes"](spec, chance, [])[chance.randrange(total)]()
        except ValueError:  # a number that the field cannot hold
            continue
        store(path, spec)
        tried += 1
        refused += small_package["outcome"](path) is None
    assert tried > 150
    assert refused > 60
