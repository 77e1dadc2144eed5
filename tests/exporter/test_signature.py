"""The two small languages of `--input` and `--dynamic`."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from isomorph.errors import UsageError
from isomorph.exporter.signature import (
    DTYPES,
    Dim,
    DynamicRequest,
    InputRequest,
    TensorSpec,
    parse_dynamic,
    parse_input,
)


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("1x3x224x224", InputRequest(None, (1, 3, 224, 224))),
        ("ids=1x128:int64:0..30521", InputRequest("ids", (1, 128), "int64", (0, 30521))),
        ("mask=1x128:bool", InputRequest("mask", (1, 128), "bool")),
        ("opts.bias=4", InputRequest("opts.bias", (4,))),
        ("x=2x3:float32:-1..0.5", InputRequest("x", (2, 3), "float32", (-1, 0.5))),
        ("step=scalar:int64", InputRequest("step", (), "int64")),
    ],
)
def test_input_is_read(text, wanted):
    assert parse_input(text) == wanted


@pytest.mark.parametrize(
    "text",
    ["", "x=", "=1x3", "1x-3", "1x3:float33", "1x3:int64:5", "1x3:int64:9..2", "1x3:a:b:c", "axb"],
)
def test_unreadable_input_is_a_usage_error_with_an_example(text):
    with pytest.raises(UsageError) as raised:
        parse_input(text)
    assert raised.value.hint


def test_near_dtype_is_suggested():
    with pytest.raises(UsageError) as raised:
        parse_input("1x3:float23")
    assert "float32" in (raised.value.hint or "")


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("x.0=batch:1..16", DynamicRequest("x", 0, Dim("batch", 1, 16))),
        ("x.0=batch", DynamicRequest("x", 0, Dim("batch", 1, None))),
        ("opts.bias.-1=n:2..8", DynamicRequest("opts.bias", -1, Dim("n", 2, 8))),
        ("x.2=h:64..512:32", DynamicRequest("x", 2, Dim("h", 64, 512, 32))),
    ],
)
def test_dynamic_is_read(text, wanted):
    assert parse_dynamic(text) == wanted


@pytest.mark.parametrize(
    "text", ["x=batch", "x.0", "x.0=", "x.a=batch", "x.0=2b", "x.0=b:0..4", "x.0=b:9..1", ".0=b"]
)
def test_unreadable_dynamic_is_a_usage_error(text):
    with pytest.raises(UsageError):
        parse_dynamic(text)


dims = st.builds(
    Dim,
    st.from_regex(r"[a-z]{1,6}", fullmatch=True),
    st.integers(1, 8),
    st.none() | st.integers(8, 99),
    st.integers(1, 4),
)


@given(
    st.builds(
        TensorSpec,
        st.from_regex(r"[a-z]{1,6}", fullmatch=True),
        st.sampled_from(DTYPES),
        st.lists(st.integers(0, 99) | dims, max_size=4).map(tuple),
        st.none() | st.tuples(st.integers(-9, 0), st.integers(0, 9)),
        st.none() | st.just("x"),
    )
)
def test_specs_survive_json(spec):
    assert TensorSpec.from_json(spec.to_json()) == spec
