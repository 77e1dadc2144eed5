"""`--set`: texts for one format or several, checked against the format's options."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import pytest
from isomorph.errors import UsageError
from isomorph.targets import registry
from isomorph.targets.options import build_options, describe_options, split_settings


@dataclass(frozen=True)
class Options:
    level: int = 2
    exact: bool = True
    backend: Literal["fast", "small"] = "fast"
    limit: float | None = None


@dataclass(frozen=True)
class NoOptions:
    pass


def test_texts_become_the_fields_types():
    values = {"level": "3", "exact": "false", "backend": "small", "limit": "0.5"}
    assert build_options(Options, values) == Options(3, False, "small", 0.5)
    assert build_options(Options, {"limit": "none"}).limit is None


@pytest.mark.parametrize("key", ["level", "exact", "backend"])
def test_a_value_of_another_type_is_refused_with_what_fits(key):
    with pytest.raises(UsageError, match=f"option {key} takes"):
        build_options(Options, {key: "perhaps"})


def test_an_unknown_key_lists_the_valid_ones_with_their_types():
    with pytest.raises(UsageError, match="did you mean 'level'") as raised:
        build_options(Options, {"levle": "1"})
    for part in ("level (int, 2)", "exact (true|false, true)", "backend (fast|small, fast)"):
        assert part in (raised.value.hint or "")


def test_a_format_without_options_says_so():
    with pytest.raises(UsageError) as raised:
        build_options(NoOptions, {"x": "1"})
    assert raised.value.hint == "this format has no options"


def test_with_one_format_the_prefix_may_be_left_out():
    assert split_settings(["opset=19"], ["onnx"]) == {"onnx": {"opset": "19"}}
    assert split_settings(["onnx.opset=19"], ["onnx"]) == {"onnx": {"opset": "19"}}


def test_with_several_each_text_goes_to_its_format():
    assert split_settings(["onnx.opset=19"], ["torchscript", "onnx"]) == {
        "torchscript": {},
        "onnx": {"opset": "19"},
    }


def test_a_missing_prefix_is_asked_for_with_the_format_that_has_the_option():
    with pytest.raises(UsageError) as raised:
        split_settings(["opset=19"], ["torchscript", "onnx"])
    assert raised.value.hint == "write onnx.opset=19"


def test_a_format_that_is_not_exported_is_named():
    with pytest.raises(UsageError, match="onnx"):
        split_settings(["onnx.opset=19"], ["torchscript", "executorch"])


@pytest.mark.parametrize("text", ["opset", "=3"])
def test_a_text_without_key_or_value_is_refused(text):
    with pytest.raises(UsageError, match="KEY=VALUE"):
        split_settings([text], ["onnx"])


@pytest.mark.parametrize("name", registry.names())
def test_every_formats_options_can_be_described(name):
    options = registry.get(name).options_type
    assert build_options(options, {}) == options()
    assert describe_options(options).count("(") == len(options.__dataclass_fields__)
