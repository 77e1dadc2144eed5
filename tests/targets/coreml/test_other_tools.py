"""Packages that coremltools made without us: opened as they are, and judged against a model."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import isomorph
import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError
from isomorph.exporter.signature import Dim, TensorSpec
from isomorph.targets.base import Signature
from isomorph.targets.coreml.quiet import coremltools
from isomorph.targets.coreml.target import CoreMlTarget
from torch import Tensor, nn

Convert = Callable[..., Any]


class Net(nn.Module):
    """Wide enough for each kind of compression."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.conv = nn.Conv2d(3, 64, 3, padding=1)
        self.hidden, self.last = nn.Linear(64, 64), nn.Linear(64, 8)

    def forward(self, x: Tensor) -> Tensor:
        found: Tensor = self.last(torch.relu(self.hidden(self.conv(x).relu().mean((2, 3)))))
        return found


NET = Net().eval()
X = torch.rand(1, 3, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def converted(model: nn.Module = NET, example: Any = X, **how: Any) -> Any:
    ct = coremltools()
    how.setdefault("inputs", [ct.TensorType("image", shape=tuple(X.shape))])
    how.setdefault("compute_precision", ct.precision.FLOAT32)
    how.setdefault("minimum_deployment_target", ct.target.iOS18)
    if "convert_to" in how:
        del how["compute_precision"], how["minimum_deployment_target"]
    return ct.convert(torch.jit.trace(model, example), skip_model_load=True, **how)


@pytest.fixture(scope="module")
def plain() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return converted()


@pytest.fixture
def saved(tmp_path: Path) -> Callable[..., Path]:
    def save(model: Any, name: str = "other") -> Path:
        path = tmp_path / f"{name}.mlpackage"
        model.save(str(path))
        return path

    return save


def result(path: Path, x: Tensor = X) -> np.ndarray:
    with CoreMlTarget().open(path) as session:
        (name,) = (spec.name for spec in session.inputs)
        (found,) = session.run({name: x.numpy()}).values()
    return found


def settings(kind: str, **options: Any) -> Any:
    coremltools()
    import coremltools.optimize.coreml as cto

    made = {
        "quantized": cto.OpLinearQuantizerConfig,
        "palettized": cto.OpPalettizerConfig,
        "pruned": cto.OpMagnitudePrunerConfig,
    }[kind](weight_threshold=10, **options)
    return cto.OptimizationConfig(global_config=made)


def compressed(model: Any, kind: str, joint: bool = False, **options: Any) -> Any:
    import coremltools.optimize.coreml as cto

    function = {
        "quantized": cto.linear_quantize_weights,
        "palettized": cto.palettize_weights,
        "pruned": cto.prune_weights,
    }[kind]
    also = {"joint_compression": True} if joint else {}
    return function(model, settings(kind, **options), **also)


BLOCKS = {"mode": "linear_symmetric", "granularity": "per_block", "block_size": 32}
GROUPS = {"mode": "kmeans", "granularity": "per_grouped_channel", "group_size": 8}
WAYS: dict[str, list[tuple[str, dict[str, Any]]]] = {
    "int8": [("quantized", {"mode": "linear_symmetric"})],
    "uint8 with zero points": [("quantized", {"mode": "linear", "dtype": "uint8"})],
    "int4 by blocks": [("quantized", {"dtype": "int4", **BLOCKS})],
    "4 bits of one palette": [("palettized", {"mode": "kmeans", "nbits": 4})],
    "2 bits of grouped palettes": [("palettized", {"nbits": 2, **GROUPS})],
    "palettes and scales": [
        ("palettized", {"nbits": 4, "enable_per_channel_scale": True, **GROUPS})
    ],
    "palettes of vectors": [("palettized", {"nbits": 4, "cluster_dim": 2, **GROUPS})],
    "pruned": [("pruned", {"target_sparsity": 0.6})],
    "pruned, then int8": [("pruned", {"target_sparsity": 0.6}), ("quantized", {})],
    "pruned, then a palette": [
        ("pruned", {"target_sparsity": 0.6}),
        ("palettized", {"mode": "kmeans", "nbits": 4}),
    ],
}
BEFORE_IOS18 = ("int8", "4 bits of one palette", "pruned")


@pytest.mark.parametrize(
    ("way", "target"),
    [*((way, "iOS18") for way in WAYS), *((way, "iOS16") for way in BEFORE_IOS18)],
)
def test_compressed_weights_mean_what_coremltools_decompresses_them_to(
    saved: Callable[..., Path], plain: Any, way: str, target: str
) -> None:
    import coremltools.optimize.coreml as cto

    ct = coremltools()
    old = target == "iOS16"
    model = converted(minimum_deployment_target=ct.target.iOS16) if old else plain
    for step, (kind, options) in enumerate(WAYS[way]):
        model = compressed(model, kind, joint=step > 0, **options)
    path = saved(model)
    operators = {
        operation.type
        for operation in model.get_spec()
        .mlProgram.functions["main"]
        .block_specializations["CoreML6" if old else "CoreML8"]
        .operations
    }
    assert any(kind.startswith("constexpr_") for kind in operators)
    found = result(path)
    second = result(saved(cto.decompress_weights(model), "dense"))
    np.testing.assert_allclose(found, second, rtol=1e-5, atol=1e-6)
    own = NET(X).detach().numpy()
    assert 1e-5 < np.abs(found - own).max() < 0.15  # compressed, and the same network


def test_halves_of_coremltools_default_precision_with_a_palette(saved: Callable[..., Path]) -> None:
    model = converted(compute_precision=coremltools().precision.FLOAT16)
    path = saved(compressed(model, "palettized", mode="kmeans", nbits=4))
    with CoreMlTarget().open(path) as session:
        assert (session.inputs[0].dtype, session.outputs[0].dtype) == ("float16", "float16")
        ways = [
            next(iter(session.run({"image": X.half().numpy()}, reading).values()))
            for reading in session.readings
        ]
    for found in ways:
        np.testing.assert_allclose(found, NET(X).detach(), atol=0.1)


def test_of_many_functions_the_default_one_runs(
    saved: Callable[..., Path], plain: Any, tmp_path: Path
) -> None:
    ct = coremltools()
    paths = {
        "whole": saved(plain, "whole"),
        "small": saved(compressed(plain, "palettized", mode="kmeans", nbits=2), "small"),
    }
    for default in paths:
        both = ct.utils.MultiFunctionDescriptor()
        for name, path in paths.items():
            both.add_function(str(path), "main", name)
        both.default_function_name = default
        merged = tmp_path / f"default_{default}.mlpackage"
        ct.utils.save_multifunction(both, str(merged))
        np.testing.assert_array_equal(result(merged), result(paths[default]))
    assert not np.array_equal(result(paths["whole"]), result(paths["small"]))


class Summing(nn.Module):
    total: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(2, 3))

    def forward(self, x: Tensor) -> Tensor:
        self.total.add_(x)
        return self.total * 2


@pytest.fixture
def stateful(saved: Callable[..., Path]) -> Path:
    ct = coremltools()
    kept = ct.TensorType(shape=(2, 3), dtype=np.float16)
    return saved(
        converted(
            Summing().eval(),
            torch.ones(2, 3),
            inputs=[ct.TensorType("x", shape=(2, 3), dtype=np.float16)],
            states=[ct.StateType(wrapped_type=kept, name="total")],
            compute_precision=ct.precision.FLOAT16,
        )
    )


def test_each_run_starts_with_fresh_states(stateful: Path) -> None:
    with CoreMlTarget().open(stateful) as session:
        assert [spec.name for spec in session.inputs] == ["x"]
        feed = {"x": np.full((2, 3), 1.5, np.float16)}
        for reading in (*session.readings, *session.readings):
            (found,) = session.run(feed, reading).values()
            assert (found == 3).all()


def test_a_listed_size_runs_and_others_are_refused(saved: Callable[..., Path]) -> None:
    ct = coremltools()
    shapes = ct.EnumeratedShapes([(1, 3, 16, 16), (1, 3, 24, 32)])
    path = saved(converted(inputs=[ct.TensorType("image", shape=shapes)]))
    for size in ((16, 16), (24, 32)):
        x = torch.rand(1, 3, *size)
        np.testing.assert_allclose(result(path, x), NET(x).detach(), rtol=1e-4, atol=1e-6)
    with pytest.raises(isomorph.errors.UsageError, match="does not list"):
        result(path, torch.rand(1, 3, 16, 32))


def test_an_input_with_a_default_is_given_all_the_same(saved: Callable[..., Path]) -> None:
    ct = coremltools()
    default = np.zeros(tuple(X.shape), np.float32)
    image = ct.TensorType("image", shape=tuple(X.shape), default_value=default)
    path = saved(converted(inputs=[image]))
    np.testing.assert_allclose(result(path), NET(X).detach(), rtol=1e-4, atol=1e-6)
    with CoreMlTarget().open(path) as session, pytest.raises(isomorph.errors.UsageError):
        session.run({})


def image_input() -> Any:
    return converted(inputs=[coremltools().ImageType("image", shape=tuple(X.shape))])


def classifier() -> Any:
    labels = [f"label {index}" for index in range(8)]
    return converted(classifier_config=coremltools().ClassifierConfig(labels))


def neural_network() -> Any:
    return converted(convert_to="neuralnetwork")


REFUSED: dict[str, tuple[Callable[[], Any], str, str]] = {
    "images": (image_input, "input image of .* is no array of numbers .imageType", "TensorType"),
    "labels": (classifier, "output classLabel of .* is no array", "no classifier_config"),
    "neural network": (neural_network, "holds neuralNetwork where an ML Program", "iOS 15"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_tensor_program_is_refused_by_name(
    saved: Callable[..., Path], name: str
) -> None:
    make, message, hint = REFUSED[name]
    with pytest.raises(InputFileError, match=message) as caught:
        isomorph.load(saved(make()))
    assert hint in (caught.value.hint or "")


def test_a_pipeline_is_refused(saved: Callable[..., Path], plain: Any) -> None:
    ct = coremltools()
    one = ct.models.MLModel(str(saved(plain)), skip_model_load=True)
    pipeline = ct.utils.make_pipeline(one, one)
    with pytest.raises(InputFileError, match="holds pipeline") as caught:
        isomorph.load(saved(pipeline, "pipeline"))
    assert "on its own" in (caught.value.hint or "")


def test_validate_takes_inputs_and_outputs_by_place_and_says_so(
    saved: Callable[..., Path], plain: Any
) -> None:
    path = saved(plain)
    report = isomorph.validate(path, NET, args=(X,))
    assert report.verdict == "pass"
    names = report.evidence.details["names in the package"]
    assert names["x"] == "image"
    assert set(names) == {"x", "output_0"}


def test_validate_sees_that_weights_were_compressed(saved: Callable[..., Path], plain: Any) -> None:
    path = saved(compressed(plain, "quantized", mode="linear_symmetric"))
    assert isomorph.validate(path, NET, args=(X,)).verdict == "fail"


class Difference(nn.Module):
    def forward(self, first: Tensor, second: Tensor) -> dict[str, Tensor]:
        return {"less": first - second, "more": second + first * 2}


def difference(*names: str, outputs: tuple[str, ...] = ("p", "q"), **types: Any) -> Any:
    ct = coremltools()
    return converted(
        _Listed(),
        (torch.ones(2), torch.ones(2)),
        inputs=[ct.TensorType(name, shape=types.get(name, (2,))) for name in names],
        outputs=[ct.TensorType(name) for name in outputs],
    )


class _Listed(nn.Module):
    def forward(self, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
        return a - b, b + a * 2


def verdict(path: Path, model: nn.Module | None = None) -> str:
    example = (torch.ones(2), torch.full((2,), 3.0))
    return isomorph.validate(path, model or Difference(), args=example).verdict


def test_by_place_and_by_name_are_not_confused(saved: Callable[..., Path]) -> None:
    assert verdict(saved(difference("u", "v"), "by_place")) == "pass"
    named = difference("first", "second", outputs=("less", "more"))
    assert verdict(saved(named, "by_name")) == "pass"
    # The package's own `second` comes first: the model's `second` goes into it.
    swapped = difference("second", "first", outputs=("less", "more"))
    assert verdict(saved(swapped, "swapped")) == "fail"


def signature(inputs: list[TensorSpec], outputs: list[TensorSpec]) -> Signature:
    return Signature(tuple(inputs), tuple(outputs))


IN = [TensorSpec("one", "float32", (2,)), TensorSpec("two", "float32", (2,))]
OUT = [TensorSpec("three", "float32", (2,)), TensorSpec("four", "float32", (2,))]


@pytest.mark.parametrize(
    ("inputs", "outputs"),
    [
        (IN[:1], OUT),
        (IN, OUT[:1]),
        ([IN[0], TensorSpec("two", "int64", (2,))], OUT),
        ([IN[0], TensorSpec("two", "bool", (2,))], OUT),
        ([IN[0], TensorSpec("two", "float64", (2,))], OUT),
        ([IN[0], TensorSpec("two", "float32", (3,))], OUT),
        ([IN[0], TensorSpec("two", "float32", (1, 2))], OUT),
        ([IN[0], TensorSpec("two", "float32", ())], OUT),
        ([IN[0], TensorSpec("two", "float32", (Dim("n", 1, 2),))], OUT),
        (IN, [OUT[0], TensorSpec("four", "float32", (Dim("n", 2, 3),))]),
        (IN, [OUT[0], TensorSpec("four", "int32", (2,))]),
    ],
)
def test_a_signature_that_does_not_fit_is_refused(
    saved: Callable[..., Path], inputs: list[TensorSpec], outputs: list[TensorSpec]
) -> None:
    path = saved(difference("u", "v"))
    CoreMlTarget().open(path, signature=signature(IN, OUT)).close()
    with pytest.raises(InputFileError, match=r"other\.mlpackage has"):
        CoreMlTarget().open(path, signature=signature(inputs, outputs))


@pytest.mark.parametrize(
    ("size", "fits"),
    [
        *((2, True), (4, True), (1, False), (5, False), (Dim("n", 2, 4), True)),
        *((Dim("n", 3, 3), True), (Dim("n", 1, 4), False), (Dim("n", 2, 5), False)),
        (Dim("n", 2, None), False),
    ],
)
def test_a_package_may_take_more_sizes_than_the_model(
    saved: Callable[..., Path], size: int | Dim, fits: bool
) -> None:
    ct = coremltools()
    x = ct.TensorType("x", shape=(ct.RangeDim(2, 4),))
    path = saved(converted(nn.Sigmoid(), torch.ones(3), inputs=[x]))
    given = signature(
        [TensorSpec("input", "float32", (size,))], [TensorSpec("output", "float32", (size,))]
    )
    if fits:
        with CoreMlTarget().open(path, signature=given) as session:
            assert session.inputs == given.inputs
            assert session.run(
                {"input": np.zeros(3 if size != 2 and size != 4 else size, np.float32)}
            )
        return
    with pytest.raises(InputFileError, match="has input x"):
        CoreMlTarget().open(path, signature=given)


def test_names_that_isomorph_would_not_give_are_kept(saved: Callable[..., Path]) -> None:
    """A scalar, and names of one tensor for both what goes in and what comes out of a package."""

    class Total(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum()

    ct = coremltools()
    x = ct.TensorType("x", shape=(3,))
    path = saved(converted(Total(), torch.ones(3), inputs=[x]))
    with isomorph.load(path) as session:
        (spec,) = session.outputs
        assert spec.shape == ()
        assert session.run({"x": np.ones(3, np.float32)}) == {spec.name: 3}
    report = isomorph.validate(path, Total(), args=(torch.ones(3),))
    assert report.verdict == "pass"


def test_a_package_of_ours_that_was_changed_keeps_its_signature(write: Any, tmp_path: Path) -> None:
    """Embeddings of int64, which Core ML has no arrays of."""
    from isomorph.targets.coreml.options import CoreMlOptions

    ct = coremltools()
    torch.manual_seed(0)
    model, ids = nn.Embedding(100, 64), torch.tensor([[1, 99]])
    written = write(model, ids, options=CoreMlOptions(deployment_target="iOS18"))
    own = ct.models.MLModel(str(written.artifact.path), skip_model_load=True)
    small = tmp_path / "small.mlpackage"
    compressed(own, "palettized", mode="kmeans", nbits=4).save(str(small))
    both = ct.utils.MultiFunctionDescriptor()
    both.add_function(str(written.artifact.path), "main", "whole")
    both.add_function(str(small), "main", "small")
    both.default_function_name = "small"
    merged = tmp_path / "merged.mlpackage"
    ct.utils.save_multifunction(both, str(merged))  # which drops the metadata
    own_signature = Signature(written.graph.inputs, written.graph.outputs)
    for path, given in ((small, None), (small, own_signature), (merged, own_signature)):
        with CoreMlTarget().open(path, signature=given) as session:
            assert session.inputs == written.graph.inputs
            (found,) = session.run({"input": ids.numpy()}).values()
        np.testing.assert_allclose(found, model(ids).detach(), atol=0.6)


def test_names_that_a_package_cannot_have_are_the_users_in_the_session(tmp_path: Path) -> None:
    """Our own package, found without its manifest: `state` is a word of MIL."""

    class Named(nn.Module):
        def forward(self, state: Tensor, bool: Tensor) -> dict[str, Tensor]:
            return {"state": state + bool, "a b": state * 2}

    args = (torch.ones(2, 3), torch.full((2, 3), 2.0))
    path = tmp_path / "named.mlpackage"
    isomorph.export(Named(), "coreml", output=path, args=args).raise_for_verdict()
    for file in tmp_path.glob("*.json"):
        file.unlink()
    with isomorph.load(path) as session:
        assert [spec.name for spec in session.inputs] == ["state", "bool"]
        found = session.run({"state": args[0].numpy(), "bool": args[1].numpy()})
        called = session.evidence.details["names in the package"]
    assert {name: float(value.max()) for name, value in found.items()} == {
        session.outputs[0].name: 3,
        session.outputs[1].name: 2,
    }
    assert called["bool"] == "bool_"
    assert isomorph.validate(path, Named(), args=args).verdict == "pass"
