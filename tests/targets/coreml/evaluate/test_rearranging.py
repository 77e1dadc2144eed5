"""Padding and blocks against torch and coremltools' own values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from numpy.typing import NDArray
from torch.nn import functional

Evaluated = Callable[..., Any]
Array = NDArray[np.float32]


def noise(*shape: int, seed: int = 0) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize(
    "pads", [[2, 1], [0, 0, 1, 0], [1, 0, 0, 3, 2, 1], [1, 1, 0, 0, 1, 0, 0, 2], [0, 0]]
)
@pytest.mark.parametrize("mode", ["constant", "reflect", "replicate"])
@pytest.mark.parametrize("dtype", [np.float32, np.float16])
def test_pads_of_the_last_dimensions(
    evaluated: Evaluated, inferred: Evaluated, pads: list[int], mode: str, dtype: Any
) -> None:
    x = noise(2, 3, 4, 5).astype(dtype)
    options = {"pad": np.array(pads, np.int32), "mode": mode, "constant_val": dtype(-2.5)}

    found = evaluated("pad", {"x": x}, **options)

    pairs = [(0, 0)] * (4 - len(pads) // 2) + list(zip(pads[::2], pads[1::2], strict=True))
    extra = {"constant_values": -2.5} if mode == "constant" else {}
    name: Any = {"replicate": "edge"}.get(mode, mode)
    assert np.array_equal(found.numpy(), np.pad(x, pairs, name, **extra))
    assert np.array_equal(found.numpy(), inferred("pad", {"x": x}, **options))


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_pads_are_those_of_torch(evaluated: Evaluated, mode: str) -> None:
    x = noise(2, 3, 4, 5)

    found = evaluated("pad", {"x": x}, pad=np.array([3, 1, 2, 4], np.int32), mode=mode)

    assert torch.equal(found, functional.pad(torch.from_numpy(x), [2, 4, 3, 1], mode=mode))


def test_pads_known_only_at_run_time(evaluated: Evaluated) -> None:
    x, pads = noise(2, 3), np.array([0, 1, 2, 0], np.int32)

    found = evaluated("pad", {"x": x, "pad": pads})

    assert torch.equal(found, functional.pad(torch.from_numpy(x), [2, 0, 0, 1]))


def test_defaults_of_pad(direct: Evaluated) -> None:
    found = direct("pad", {"x": torch.ones(2), "pad": torch.tensor([1, 2])})

    assert found.tolist() == [0, 1, 1, 0, 0]


@pytest.mark.parametrize(
    ("mode", "pads"),
    [("reflect", [3, 0]), ("reflect", [0, 3]), ("replicate", [4, 0]), ("constant", [-1, 0])],
)
def test_pads_beyond_what_is_documented_are_refused(
    direct: Evaluated, mode: str, pads: list[int]
) -> None:
    arguments = {"x": torch.ones(2, 3), "mode": mode}

    assert direct("pad", {**arguments, "pad": torch.tensor([2, 2])}).shape == (2, 7)
    with pytest.raises(UnverifiableError):
        direct("pad", {**arguments, "pad": torch.tensor(pads)})


def test_an_unknown_pad_mode_is_refused(direct: Evaluated) -> None:
    with pytest.raises(UnverifiableError, match="circular"):
        direct("pad", {"x": torch.ones(3), "pad": torch.tensor([1, 1]), "mode": "circular"})


@pytest.mark.parametrize("pads", [[1], [1, 1, 1, 1]])
def test_pads_that_do_not_fit_are_damage(direct: Evaluated, pads: list[int]) -> None:
    with pytest.raises(InputFileError, match="damaged"):
        direct("pad", {"x": torch.ones(3), "pad": torch.tensor(pads)})


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_pixel_shuffle(evaluated: Evaluated, factor: int) -> None:
    x = noise(2, 36, 3, 5)

    found = evaluated("pixel_shuffle", {"x": x}, upscale_factor=factor)

    assert torch.equal(found, functional.pixel_shuffle(torch.from_numpy(x), factor))


@pytest.mark.parametrize("factor", [1, 2, 3])
def test_pixel_unshuffle(evaluated: Evaluated, factor: int) -> None:
    x = noise(2, 3, 6, 12)

    found = evaluated("pixel_unshuffle", {"x": x}, downscale_factor=np.uint32(factor))

    assert torch.equal(found, functional.pixel_unshuffle(torch.from_numpy(x), factor))


def test_depth_to_space_of_one_channel_has_one_order(evaluated: Evaluated) -> None:
    x = noise(2, 4, 3, 5)

    found = evaluated("depth_to_space", {"x": x}, block_size=2)

    assert torch.equal(found, functional.pixel_shuffle(torch.from_numpy(x), 2))


def test_space_to_depth_of_one_channel_has_one_order(evaluated: Evaluated) -> None:
    x = noise(2, 1, 4, 6)

    found = evaluated("space_to_depth", {"x": x}, block_size=2)

    assert torch.equal(found, functional.pixel_unshuffle(torch.from_numpy(x), 2))


@pytest.mark.parametrize(
    ("kind", "shape"), [("depth_to_space", (1, 8, 3, 5)), ("space_to_depth", (1, 2, 4, 6))]
)
def test_the_order_of_several_channels_is_refused(
    evaluated: Evaluated, kind: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(UnverifiableError, match="order of the channels"):
        evaluated(kind, {"x": noise(*shape)}, block_size=2)


def test_space_to_batch_in_one_direction_of_one_image(evaluated: Evaluated) -> None:
    x = noise(1, 2, 3, 5)
    pads, block = np.array([[1, 0], [0, 1]], np.int32), np.array([1, 3], np.int32)

    found = evaluated("space_to_batch", {"x": x}, block_shape=block, paddings=pads)

    whole = functional.pad(torch.from_numpy(x), [0, 1, 1, 0])
    assert torch.equal(found, torch.cat([whole[..., i::3] for i in range(3)]))


def test_batch_to_space_in_one_direction_of_one_image(evaluated: Evaluated) -> None:
    x = noise(3, 2, 4, 5)
    crops, block = np.array([[1, 0], [0, 2]], np.int32), np.array([3, 1], np.int32)

    found = evaluated("batch_to_space", {"x": x}, block_shape=block, crops=crops)

    whole = torch.zeros(1, 2, 12, 5)
    for i in range(3):
        whole[:, :, i::3] = torch.from_numpy(x[i : i + 1])
    assert torch.equal(found, whole[:, :, 1:, :3])


@pytest.mark.parametrize(
    ("kind", "shape", "amounts", "block"),
    [
        ("space_to_batch", (2, 1, 4, 4), "paddings", [2, 1]),
        ("space_to_batch", (1, 1, 4, 4), "paddings", [2, 2]),
        ("batch_to_space", (4, 1, 4, 4), "crops", [2, 1]),
        ("batch_to_space", (4, 1, 4, 4), "crops", [2, 2]),
    ],
)
def test_the_order_in_the_batch_is_refused(
    evaluated: Evaluated, kind: str, shape: tuple[int, ...], amounts: str, block: list[int]
) -> None:
    with pytest.raises(UnverifiableError, match="order in the batch"):
        evaluated(
            kind,
            {"x": noise(*shape)},
            block_shape=np.array(block, np.int32),
            **{amounts: np.zeros((2, 2), np.int32)},
        )


@pytest.mark.parametrize("axis", [-3, -1, 0, 1])
@pytest.mark.parametrize("size", [1, 2, 3])
@pytest.mark.parametrize("stride", [1, 2])
def test_sliding_windows(evaluated: Evaluated, axis: int, size: int, stride: int) -> None:
    x = noise(5, 4, 3)

    found = evaluated("sliding_windows", {"x": x}, axis=axis, size=size, stride=stride)

    starts = range(0, x.shape[axis] - size + 1, stride)
    parts = [np.take(x, range(i, i + size), axis=axis) for i in starts]
    assert np.array_equal(found.numpy(), np.stack(parts, axis=axis % 3))


@pytest.mark.parametrize("change", [{"size": 5}, {"size": 0}, {"stride": 0}])
def test_windows_that_do_not_fit_are_refused(direct: Evaluated, change: dict[str, int]) -> None:
    numbers = {"axis": 1, "size": 2, **change}

    with pytest.raises(UnverifiableError, match="windows of"):
        direct(
            "sliding_windows",
            {"x": torch.ones(2, 4), **{k: torch.tensor(v) for k, v in numbers.items()}},
        )


DAMAGED = [
    ("pixel_shuffle", (1, 3, 2, 2), {"upscale_factor": torch.tensor(2)}),
    ("pixel_shuffle", (1, 4, 2, 2), {"upscale_factor": torch.tensor(0)}),
    ("pixel_shuffle", (4, 2, 2), {"upscale_factor": torch.tensor(2)}),
    ("pixel_unshuffle", (1, 3, 3, 2), {"downscale_factor": torch.tensor(2)}),
    ("depth_to_space", (1, 3, 2, 2), {"block_size": torch.tensor(2)}),
    ("space_to_depth", (1, 3, 2, 3), {"block_size": torch.tensor(2)}),
    (
        "space_to_batch",
        (1, 1, 3, 2),
        {"block_shape": torch.tensor([2, 1]), "paddings": torch.zeros(2, 2).int()},
    ),
    (
        "batch_to_space",
        (3, 1, 2, 2),
        {"block_shape": torch.tensor([2, 1]), "crops": torch.zeros(2, 2).int()},
    ),
    (
        "batch_to_space",
        (2, 1, 2, 2),
        {"block_shape": torch.tensor([2, 1]), "crops": torch.full((2, 2), 2)},
    ),
    ("sliding_windows", (2, 3), {"axis": torch.tensor(2), "size": torch.tensor(1)}),
]


@pytest.mark.parametrize(("kind", "shape", "arguments"), DAMAGED)
def test_blocks_that_do_not_divide_are_damage(
    direct: Evaluated, kind: str, shape: tuple[int, ...], arguments: dict[str, torch.Tensor]
) -> None:
    with pytest.raises(InputFileError, match="damaged"):
        direct(kind, {"x": torch.ones(shape), **arguments})


@pytest.mark.parametrize("kind", ["depth_to_space", "pixel_shuffle", "space_to_batch"])
def test_empty_images_are_refused(direct: Evaluated, kind: str) -> None:
    with pytest.raises(UnverifiableError, match="empty"):
        direct(kind, {"x": torch.ones(1, 4, 0, 2)})
