"""Names, dims and structure at the border of the written file."""

from __future__ import annotations

from typing import Any

import onnx
import pytest
import torch
from isomorph.errors import ConversionError
from torch import Tensor, nn


def names(path: Any) -> tuple[list[str], list[str]]:
    graph = onnx.load(path).graph
    return [value.name for value in graph.input], [value.name for value in graph.output]


def dims(value: onnx.ValueInfoProto) -> list[Any]:
    return [d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim]


class Nested(nn.Module):
    def forward(self, x: Tensor, options: dict[str, Tensor]) -> Any:
        y = x + options["bias"]
        return {"logits": y, "aux": (y.mean(), None, y > 0), "top": y.argmax(-1), "n": 3}


def test_names_are_the_users(write: Any) -> None:
    args = (torch.randn(3, 4), {"bias": torch.randn(4), "unused": torch.zeros(1)})

    written = write(Nested(), *args)

    inputs, outputs = names(written.path)
    assert inputs == ["x", "options_bias", "options_unused"]
    assert outputs == [spec.name for spec in written.artifact.outputs]
    assert set(outputs) == {"logits", "aux_0", "aux_2", "top"}
    written.assert_computes(args)


class PassThrough(nn.Module):
    def forward(self, x: Tensor, tag: Tensor) -> Any:
        y = torch.relu(x)
        return torch.tensor(1.0), tag, y, y, x


def test_inputs_constants_and_repeats_are_outputs_of_their_own(write: Any) -> None:
    args = (torch.randn(2, 3), torch.tensor([123]))

    written = write(PassThrough(), *args)

    inputs, outputs = names(written.path)
    assert len({*inputs, *outputs}) == len(inputs) + len(outputs) == 7
    written.assert_computes(args)
    written.assert_computes((torch.randn(2, 3), torch.tensor([-5])))


class NamesLikeInnerValues(nn.Module):
    def forward(self, add: Tensor, mul: Tensor) -> Any:
        return {"relu": (add + mul) * 2, "add_1": torch.relu(add * mul), "mul": mul - 1}


def test_names_may_be_those_of_operators(write: Any) -> None:
    args = (torch.randn(3), torch.randn(3))

    written = write(NamesLikeInnerValues(), *args)

    written.assert_computes(args)
    assert names(written.path)[0] == ["add", "mul"]


class Builtin(nn.Module):
    def forward(self, input: Tensor, max: Tensor) -> Tensor:
        return input + max


def test_names_may_be_those_of_python(write: Any) -> None:
    args = (torch.randn(3), torch.randn(3))

    written = write(Builtin(), *args)

    assert names(written.path)[0] == ["input", "max"]
    written.assert_computes(args)


class WritesToInput(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        x.view(3, 4)[:, 1:3].mul_(-2.0)
        return x + 0.5


def test_new_value_of_a_written_input_is_an_output(write: Any) -> None:
    x = torch.arange(12.0)

    written = write(WritesToInput(), x)

    assert [spec.mutates for spec in written.artifact.outputs] == [None, "x"]
    written.assert_computes((x,))


class Sizes(nn.Module):
    def forward(self, x: Tensor) -> Any:
        return torch.cat([x, x], 1), x.shape[1] * 2


def test_dims_carry_the_users_names(write: Any) -> None:
    written = write(
        Sizes(), torch.randn(2, 5, 3), dynamic={"x.0": "batch:1..8", "x.1": "time:2..9"}
    )

    graph = onnx.load(written.path).graph
    assert dims(graph.input[0]) == ["batch", "time", 3]
    assert dims(graph.output[0])[0] == "batch"
    assert "time" in dims(graph.output[0])[1]
    assert not any("s" + str(n) in str(graph) for n in range(100))
    written.assert_computes((torch.randn(2, 5, 3),))
    written.assert_computes((torch.randn(8, 9, 3),))


class Spectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        spectrum: Tensor = torch.fft.fft(x)
        return spectrum


def test_complex_output_is_refused_with_the_way_out(write: Any) -> None:
    with pytest.raises(ConversionError, match="view_as_real"):
        write(Spectrum(), torch.randn(8))


class TurnedSpectrum(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.view_as_real(torch.fft.rfft(x).unsqueeze(0).cumsum(-1))


def test_an_operator_that_lacks_a_complex_form_is_named_as_such(write: Any) -> None:
    with pytest.raises(ConversionError, match=r"test_border\.py:\d+\): of complex numbers"):
        write(TurnedSpectrum(), torch.randn(8))


class Factored(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.linalg.ldl_factor(x).LD


def test_operator_without_translation_names_the_users_line(write: Any) -> None:
    with pytest.raises(ConversionError, match=r"ldl_factor_ex \(.*test_border\.py:\d+\)"):
        write(Factored(), torch.rand(3, 3))


class NamelessKey(nn.Module):
    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"output_0": x * 2, "": x + 1}


def test_output_under_an_empty_key_is_named_by_its_position(write: Any) -> None:
    x = torch.randn(2, 3)

    written = write(NamelessKey(), x)

    assert [spec.name for spec in written.artifact.outputs] == ["output_0", "output_1"]
    written.assert_computes((x,))
