"""ATTENTION_INPUT and ATTENTION_OUTPUT, the boundaries of an IAttention."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorrt_rtx as trt
import torch
from isomorph.errors import UnverifiableError

Evaluated = Callable[..., Any]


def attention(causal: str = "NONE", norm: str = "SOFTMAX") -> Callable[..., Any]:
    def build(network: Any, query: Any, key: Any, value: Any, *mask: Any) -> Any:
        kind = getattr(trt.CausalMaskKind, causal)
        op = getattr(trt.AttentionNormalizationOp, norm)
        made = network.add_attention_v2(query, key, value, op, kind)
        if mask:
            made.mask = mask[0]
        return made.get_output(0)

    return build


def scores_of(query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    return torch.einsum("bhqd,bhkd->bhqk", query.double(), key.double())


def inputs(heads: int = 2) -> tuple[torch.Tensor, ...]:
    return torch.randn(2, heads, 3, 4), torch.randn(2, 2, 5, 4), torch.randn(2, 2, 5, 4)


def test_no_scale_is_applied(evaluated: Evaluated) -> None:
    query, key, value = inputs()
    expected = torch.softmax(scores_of(query, key), -1) @ value.double()
    torch.testing.assert_close(evaluated(attention(), query, key, value), expected.float())
    plain = scores_of(query, key) @ value.double()
    found = evaluated(attention(norm="NONE"), query, key, value)
    torch.testing.assert_close(found, plain.float())


def test_groups_of_queries_share_keys(evaluated: Evaluated) -> None:
    query, key, value = inputs(heads=4)
    wide = [part.repeat_interleave(2, 1) for part in (key, value)]
    found = evaluated(attention(), query, key, value)
    assert torch.equal(found, evaluated(attention(), query, *wide))


@pytest.mark.parametrize(("kind", "offset"), [("UPPER_LEFT", 0), ("LOWER_RIGHT", 2)])
def test_causal_masks(evaluated: Evaluated, kind: str, offset: int) -> None:
    query, key, value = inputs()
    scores = scores_of(query, key)
    for i in range(3):
        scores[..., i, i + offset + 1 :] = -torch.inf
    expected = torch.softmax(scores, -1) @ value.double()
    found = evaluated(attention(kind), query, key, value)
    torch.testing.assert_close(found, expected.float())


def test_masks_that_allow_and_that_are_added(evaluated: Evaluated) -> None:
    query, key, value = inputs()
    bias = torch.randn(1, 2, 3, 5)
    expected = torch.softmax(scores_of(query, key) + bias, -1) @ value.double()
    found = evaluated(attention(), query, key, value, bias)
    torch.testing.assert_close(found, expected.float())
    allowed = torch.rand(2, 1, 3, 5) > 0.3
    allowed[..., 0] = True
    scores = scores_of(query, key).masked_fill(~allowed, -torch.inf)
    expected = torch.softmax(scores, -1) @ value.double()
    found = evaluated(attention(), query, key, value, allowed)
    torch.testing.assert_close(found, expected.float())
    with pytest.raises(UnverifiableError, match="attend to nothing"):
        evaluated(attention(), query, key, value, torch.zeros_like(allowed))


@pytest.mark.parametrize(
    "change",
    [
        {"causal_kind": "UPPER_LEFT"},
        {"causal_kind": "NEW"},
        {"norm_op": "NONE"},
        {"query_form": "PACKED_NHD"},
        {"key_value_form": "PACKED_NHD"},
        {"query_lengths": "t"},
        {"key_value_lengths": "t"},
        {"normalization_quantize_scale": "t"},
        {"num_ranks": 2},
        {"mask": "t"},
    ],
    ids=lambda change: "-".join(f"{key}={value}" for key, value in change.items()),
)
def test_every_attribute_is_seen(seen: Callable[..., bool], change: dict[str, Any]) -> None:
    assert seen(attention(), inputs(), "ATTENTION_INPUT", **change)
