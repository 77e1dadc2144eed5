"""The sizes an engine is built for: from the dims, the example, and what the user sets."""

from __future__ import annotations

import pytest
from isomorph.errors import UsageError
from isomorph.exporter.signature import Dim, TensorSpec
from isomorph.targets.tensorrt.options import RtxOptions, TensorRtOptions, parse_opt
from isomorph.targets.tensorrt.profiles import ShapeRange, profile_of

BATCH = Dim("batch", 1, 16)
HEIGHT = Dim("height", 64, 512, step=32)


def image(*shape) -> TensorSpec:
    return TensorSpec("image", "float32", shape)


def test_the_example_is_what_an_engine_is_optimised_for():
    inputs = (image(BATCH, 3, HEIGHT, 64), TensorSpec("scale", "float32", (BATCH,)))
    found = profile_of(inputs, {}, {"batch": 4, "height": 128})
    assert found == {
        "image": ShapeRange((1, 3, 64, 64), (4, 3, 128, 64), (16, 3, 512, 64)),
        "scale": ShapeRange((1,), (4,), (16,)),
    }


def test_what_the_user_sets_goes_before_the_example():
    found = profile_of((image(BATCH, 3),), {"batch": 8}, {"batch": 4})
    assert found["image"].opt == (8, 3)


def test_an_example_outside_the_dim_is_moved_into_it():
    assert profile_of((image(BATCH, 3),), {}, {"batch": 64})["image"].opt == (16, 3)


def test_fixed_sizes_need_no_profile():
    assert profile_of((image(1, 3),), {}, {}) == {}


@pytest.mark.parametrize(
    ("wished", "told"),
    [
        ({"batch": 17}, "opt=batch:17 is outside the dim's 1..16"),
        ({"batch": 0}, "outside the dim's 1..16"),
        ({"height": 80}, "outside the dim's 64..512 in steps of 32"),
        ({"width": 8}, "opt names the dim width"),
    ],
)
def test_a_size_that_the_dims_do_not_allow_is_refused(wished, told):
    with pytest.raises(UsageError, match=told):
        profile_of((image(BATCH, 3, HEIGHT),), wished, {})


def test_a_dim_without_an_upper_bound_is_refused_with_the_flag_that_gives_one():
    with pytest.raises(UsageError, match="upper bound") as caught:
        profile_of((image(3, Dim("length")),), {}, {})
    assert "--dynamic image.1=length:1..64" in caught.value.hint


@pytest.mark.parametrize("text", ["batch", "batch:", ":3", "batch:x", "batch:1,batch:2", ""])
def test_opt_that_is_no_list_of_sizes_is_refused(text):
    with pytest.raises(UsageError, match="DIM:SIZE"):
        parse_opt(text)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: RtxOptions(sm="ada"), "no list of compute capabilities"),
        (lambda: RtxOptions(workspace=0), "workspace=0"),
        (lambda: TensorRtOptions(optimization_level=6), "optimization_level=6"),
        (lambda: TensorRtOptions(opt="batch"), "DIM:SIZE"),
    ],
)
def test_options_that_cannot_be_are_refused_at_once(make, told):
    with pytest.raises(UsageError, match=told):
        make()


def test_options_become_the_builders_settings():
    settings = TensorRtOptions(workspace=512, tf32=True, refit=True).settings
    assert settings.workspace == 512 * 1024 * 1024
    assert settings.flags == ("TF32", "REFIT")
    assert RtxOptions(sm="86, SM89,86").settings.compute_capabilities == ("SM86", "SM89")
