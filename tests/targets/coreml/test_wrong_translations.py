"""What coremltools writes wrongly without a word is written right here, and is still wrong there.

Where the second test goes red, a new coremltools may have mended it: the entry in `faults.py` can
then go.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch
import torch.nn.functional as F  # noqa: N812 - the field's name for it
from isomorph.targets.coreml.evaluate.interpreter import run_function
from isomorph.targets.coreml.evaluate.package import read_package
from isomorph.targets.coreml.options import CoreMlOptions
from isomorph.targets.coreml.quiet import coremltools, hushed
from torch import Tensor

X = torch.randn(2, 3, 6, 5, generator=torch.Generator().manual_seed(0))
TINY = X * 1e-6
NUMBERS = torch.tensor([[-1, 0, -4], [-2, -3, -1], [0, 0, 0], [1, -1, 2]], dtype=torch.int32)

# Name: function of one tensor, and the input on which stock coremltools is far off.
WRONG: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "gelu_tanh": (lambda x: F.gelu(x * 3, approximate="tanh"), X),
    "reciprocal": (lambda x: torch.reciprocal(x), X.abs() * 1e-3 + 1e-4),
    "softplus_threshold": (lambda x: F.softplus(x[0, 0], beta=3, threshold=0.2), X),
    "expm1": (torch.expm1, TINY),
    "log1p": (torch.log1p, TINY),
    "rms_norm": (lambda x: F.rms_norm(x, (5,), eps=1e-2), X * 30),
    "tensor_bounds": (lambda x: torch.clamp(x, x.cos() + 1, x.sin() - 1), X),
    "antialias": (
        lambda x: F.interpolate(x, (3, 2), mode="bilinear", antialias=True, align_corners=False),
        X,
    ),
}
WRONG["masked_attention"] = (
    lambda x: F.scaled_dot_product_attention(
        *(x[:, :, :4],) * 3, attn_mask=torch.arange(4)[:, None].expand(4, 4) > 0
    ).contiguous(),
    X,
)
WRONG["any_of_integers"] = (lambda x: x.any(1).int() - x.all(1).int() * 2, NUMBERS)
WRONG["causal_attention"] = (
    lambda x: F.scaled_dot_product_attention(x * 400, x.cos() * 400, x, is_causal=True),
    X[:, :, :5],
)
WRONG["infinite_triangle"] = (
    lambda x: (x[..., :5, :] + torch.full((5, 5), -float("inf")).triu(1)).softmax(-1),
    X,
)
WRONG["running_statistics"] = (
    lambda x: F.instance_norm(
        x, torch.tensor([5.0, 6, 7]), torch.tensor([2.0, 3, 4]), use_input_stats=False
    ),
    X,
)
# Not wrong values: coremltools refuses these, or writes another shape or dtype.
UNUSABLE: dict[str, tuple[Callable[[Tensor], Tensor], Tensor]] = {
    "circular_pad": (lambda x: F.pad(x, (1, 2, 2, 1), mode="circular"), X),
    "one_sided_clamp_of_infinity": (lambda x: torch.clamp(x / 1e-39, min=0.5), X.abs() + 1),
    "same_padding_even_kernel": (lambda x: F.conv2d(x, x[:, :, :2, :4], padding="same"), X),
    "unbiased_variance": (lambda x: torch.var(x, dim=(1, 2)) + torch.std(x, dim=(1, 2)), X),
    "diagonal": (lambda x: torch.diagonal(x, 1, 2, 3), X),
    "booleans_summed": (lambda x: (x > 0).sum(1), X),
    "whole_division": (lambda x: (x * 9).long() // 2, X),
    "bits_of_booleans": (lambda x: (x > 0) & (x < 1) | ~(x < 0.5), X),
    "zeros_of_integers": (lambda x: torch.zeros_like(x, dtype=torch.long) + x.long(), X),
    "counted_as_floats": (lambda x: torch.arange(5, dtype=torch.float32) * x, X),
    "count_of_nothing": (lambda x: torch.linalg.vector_norm(x.relu(), ord=0), X),
    "nearest_by_a_broken_factor": (lambda x: F.interpolate(x, (9, 8)), X),
    "mean_that_hangs_over": (lambda x: F.avg_pool2d(x, 2, 2, ceil_mode=True), X),
    "halves": (torch.round, torch.arange(-4.0, 4.0, 0.5)),
    "remainder": (lambda x: torch.remainder(x * 7, 0.3), X),
    "rsqrt": (torch.rsqrt, X.abs() * 1e-11),
    "logcumsumexp": (lambda x: torch.logcumsumexp(x * 60, 1), X),
    "angles": (lambda x: torch.atan2(x.relu(), x[:, :, :, [1, 2, 2, 0, 4]].round() * -1.0), X),
    "angles_of_zeros": (lambda x: torch.atan2(x * 0.0, x.abs() * 0.0) + x, X),
    "whole_division_to_zero": (lambda x: torch.div((x * 9).int(), 2, rounding_mode="trunc"), X),
    "triangles_of_a_batch": (lambda x: x.tril(-1) + x.triu(2), X),
    "without_axes": (lambda x: torch.softmax(x.sum(), 0) + x.mean().max(), X),
}


@pytest.mark.parametrize("name", [*WRONG, *UNUSABLE])
def test_written_right(name: str, write) -> None:
    function, x = {**WRONG, **UNUSABLE}[name]
    write(function, x).demand_right(x, tolerance=1e-5)


@pytest.mark.parametrize("name", WRONG)
def test_stock_coremltools_is_still_wrong(name: str, tmp_path: Path) -> None:
    function, x = WRONG[name]
    with torch.no_grad():
        wanted = function(x).numpy()
    found = stock(function, x, tmp_path / "stock.mlpackage")
    assert found.shape != wanted.shape or not np.allclose(
        found, wanted, rtol=1e-5, atol=0, equal_nan=False
    )


@pytest.mark.parametrize(
    "function",
    [lambda x: F.gelu(x, approximate="tanh"), lambda x: F.softplus(x, threshold=5)],
    ids=["gelu", "softplus"],
)
def test_sizes_in_steps_do_not_stand_in_the_way(
    function: Callable[[Tensor], Tensor], write
) -> None:
    x = torch.randn(1, 64, generator=torch.Generator().manual_seed(0))
    options = CoreMlOptions(shapes="enumerated")
    write(function, x, options=options, args_0_1="h:32..128:32").demand_right(x, tolerance=1e-5)


def stock(function: Callable[[Tensor], Tensor], x: Tensor, path: Path) -> np.ndarray:
    """What coremltools by itself makes of a function, as our evaluator computes it."""
    ct = coremltools()

    class Calls(torch.nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return function(x)

    with hushed():
        program = torch.export.export(Calls(), (x,)).run_decompositions({})
        model = ct.convert(
            program,
            minimum_deployment_target=ct.target.iOS17,
            compute_precision=ct.precision.FLOAT32,
            skip_model_load=True,
        )
        model.save(str(path))
    package = read_package(path)
    (result,) = run_function(package.program.functions["main"], {"x": x}).values()
    return result.numpy()
