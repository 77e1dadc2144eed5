"""Constants, casts, shapes, shuffles."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from isomorph.errors import UnverifiableError


def test_a_constant_is_the_array_that_was_given(evaluated):
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    found = evaluated(
        lambda net, x: (net.add_constant((2, 3), values).get_output(0),), torch.zeros(1)
    )
    assert torch.equal(found, torch.from_numpy(values))


def test_a_squeeze_without_axes_drops_the_sizes_that_are_declared_to_be_one(evaluated):
    x = torch.randn(1, 3, 1, 4)
    found = evaluated(lambda net, x: net.add_squeeze(x, None).get_output(0), x)
    assert torch.equal(found, x.squeeze())


def test_a_free_size_of_one_is_refused_by_a_squeeze_without_axes(evaluated):
    with pytest.raises(UnverifiableError, match="free size"):
        evaluated(
            lambda net, x: net.add_squeeze(x, None).get_output(0),
            torch.randn(1, 3, 1),
            shapes=[(1, 3, -1)],
        )
