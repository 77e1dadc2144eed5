"""Complex numbers inside a program become pairs of real ones, with the same values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import isomorph
import pytest
import torch
from isomorph.exporter.graph import Graph
from isomorph.exporter.legalize import legalize
from torch import Tensor, nn

X = torch.randn(2, 6, 3, 8, generator=torch.Generator().manual_seed(0))


def as_complex(x: Tensor) -> Tensor:
    return torch.view_as_complex(x.reshape(*x.shape[:-1], 4, 2))


class Calls(nn.Module):
    """Holds a complex table of rotations [64, 4] for its function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function
        angles = torch.outer(torch.arange(64.0), 1 / (100 ** (torch.arange(4) / 4)))
        self.register_buffer("table", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x: Tensor) -> Any:
        return self.function(x, self.table)


def graph_of(function: Callable[..., Any]) -> Graph:
    return isomorph.trace(Calls(function), args=(X,), dynamic={"x.1": "t:1..64"})


def outputs(program: torch.export.ExportedProgram, x: Tensor) -> Any:
    known = {**program.state_dict, **program.constants}
    stored = {spec.arg.name: spec.target for spec in program.graph_signature.input_specs}
    holders = [node.name for node in program.graph.nodes if node.op == "placeholder"]
    feed = [known.get(stored[name], x) for name in holders]
    with torch.no_grad():
        return torch.fx.Interpreter(program.graph_module).run(*feed)


def complex_values(program: torch.export.ExportedProgram) -> list[str]:
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    return [n for n, v in values.items() if isinstance(v, torch.Tensor) and v.is_complex()]


def computed_rotation(x: Tensor, table: Tensor) -> Tensor:
    angle = torch.outer(torch.arange(x.shape[1]), 1 / (10000 ** (torch.arange(0, 8, 2) / 8)))
    turn = torch.polar(torch.ones_like(angle), angle)
    return torch.view_as_real(as_complex(x) * turn[None, :, None]).flatten(3)


CASES: dict[str, Callable[..., Any]] = {
    "computed": computed_rotation,
    "table": lambda x, c: torch.view_as_real(as_complex(x) * c[: x.shape[1]].view(1, -1, 1, 4)),
    "gather": lambda x, c: torch.view_as_real(as_complex(x) * c[torch.arange(6) % 3][:1, None]),
    "conj": lambda x, c: torch.view_as_real(as_complex(x).conj() + as_complex(x * 2)),
    "parts": lambda x, c: (as_complex(x).real, as_complex(x).imag - 1),
    "complex": lambda x, c: torch.view_as_real(torch.complex(x, x * 2) - torch.complex(x, x)),
    "quotients": lambda x, c: torch.view_as_real(-as_complex(x) / 3 / (2 + x[..., :4].abs())),
    "sizes_and_angles": lambda x, c: (as_complex(x).abs(), as_complex(x).angle()),
    "lists": lambda x, c: torch.view_as_real(
        torch.stack([torch.cat([as_complex(x), as_complex(x * 2)], -1)] * 2, -1)
    ),
    "reduced": lambda x, c: torch.view_as_real(
        as_complex(x).sum(-1) + as_complex(x).flip(-1, 0).mean((-1,))
    ),
    "padded": lambda x, c: torch.view_as_real(
        torch.constant_pad_nd(torch.constant_pad_nd(as_complex(x), (1, 2)), (0, 1, 2, 0), 3.0)
    ),
    "scaled": lambda x, c: torch.view_as_real(as_complex(x) * 2.5 * x[..., :4]),
    "wide": lambda x, c: torch.view_as_real(as_complex(x) * torch.tensor(2.0, dtype=torch.float64)),
    "axes": lambda x, c: torch.view_as_real(
        as_complex(x).transpose(-1, -3).permute(0, -1, 2, 1).flatten(-2, -1)[:, ::2, -3:]
    ),
    "sizes": lambda x, c: torch.view_as_real(
        as_complex(x).unsqueeze(-2).expand(-1, -1, -1, 2, -1).squeeze(0).select(-1, 1)
        .repeat(1, 2, 1, 1)
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_pairs_compute_the_same(name: str) -> None:
    graph = graph_of(CASES[name])
    before, program = graph.fingerprint(), graph.copy_program()
    assert complex_values(program)

    assert legalize(program, lambda node: True)

    assert not complex_values(program)
    torch.testing.assert_close(outputs(program, X), outputs(graph.copy_program(), X))
    assert graph.fingerprint() == before


@pytest.mark.parametrize(
    "function",
    [
        lambda x, c: torch.fft.rfft(x).abs(),
        lambda x, c: torch.view_as_real(as_complex(x) * 2j),
        lambda x, c: torch.view_as_real(as_complex(x) + x[..., :4]),
    ],
)
def test_what_is_not_known_stays_complex(function: Callable[..., Any]) -> None:
    graph = graph_of(function)
    program = graph.copy_program()
    legalize(program, lambda node: True)
    assert complex_values(program)
    torch.testing.assert_close(outputs(program, X), outputs(graph.copy_program(), X))
