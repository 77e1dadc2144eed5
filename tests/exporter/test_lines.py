"""Which frame of a stack trace is shown as the line of the user's code."""

from __future__ import annotations

from pathlib import Path

import pytest
from isomorph.exporter.lines import user_frame, user_line

OWN = '  File "/home/me/project/net.py", line 41, in forward\n    return self.act(self.fc(x))\n'
MODEL = '  File "/v/site-packages/timm/layers/mlp.py", line 7, in forward\n    x = self.act(x)\n'
TORCH = '  File "/v/site-packages/torch/nn/modules/conv.py", line 9, in forward\n    return y\n'
BARE = '  File "/home/me/project/other.py", line 3, in forward\n'
MADE = '  File "<eval_with_key>.12", line 5, in forward\n    relu = aten.relu(x)\n'


@pytest.mark.parametrize(
    ("trace", "line", "text"),
    [
        (OWN + MODEL + TORCH, "net.py:41", "return self.act(self.fc(x))"),
        (MODEL + TORCH + MADE, "timm/layers/mlp.py:7", "x = self.act(x)"),
        (TORCH, "torch/nn/modules/conv.py:9", "return y"),
        (OWN + BARE + TORCH, "other.py:3", ""),
        (BARE + MODEL, "other.py:3", ""),
    ],
)
def test_the_innermost_line_of_the_users_else_of_the_models(trace, line, text):
    assert user_line(trace, Path("/home/me/project")) == line
    assert user_frame(trace).text == text


@pytest.mark.parametrize("trace", ["", MADE, "no trace at all"])
def test_a_trace_without_a_file_has_no_line(trace):
    assert user_frame(trace) is None
    assert user_line(trace) == ""


def test_a_file_elsewhere_is_called_by_its_name():
    assert user_line(OWN, Path("/somewhere/else")) == "net.py:41"
