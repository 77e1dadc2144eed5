"""topk, argsort, non_zero, one_hot, classify and non_maximum_suppression."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate.call import Unknown
from isomorph.targets.coreml.evaluate.interpreter import run_function
from isomorph.targets.coreml.evaluate.ordering import OPERATORS
from isomorph.targets.coreml.evaluate.program import Block, Constant, Function, Operation, Port
from isomorph.targets.coreml.evaluate.types import TensorType

RNG = np.random.default_rng(3)
FLOATS, INDICES = TensorType("fp32", None), TensorType("int32", None)
BOTH = {"values": FLOATS, "indices": INDICES}
X = RNG.permutation(60).reshape(3, 4, 5).astype(np.float32)


def several(
    kind: str, outputs: dict[str, TensorType], wanted: str = "", opset: int = 8, **inputs: Any
) -> dict[str, Any]:
    """Run one operation of several outputs, all of which are read, or only `wanted`."""
    ports = tuple(Port(name, declared) for name, declared in outputs.items())
    given = {name: (Constant(value),) for name, value in inputs.items()}
    operation = Operation(kind, "made", given, ports)
    read = (wanted,) if wanted else tuple(outputs)
    return run_function(Function("main", (), Block((), (operation,), read), opset), {})


def test_the_operators_here() -> None:
    assert set(OPERATORS) == {
        *("topk", "argsort", "non_zero", "one_hot", "classify", "non_maximum_suppression")
    }


@pytest.mark.parametrize("opset", [5, 6, 8])
@pytest.mark.parametrize("ascending", [False, True])
@pytest.mark.parametrize(("k", "axis"), [(1, -1), (3, 0), (2, 1), (5, -1)])
def test_topk(evaluated: Any, k: int, axis: int, ascending: bool, opset: int) -> None:
    values, indices = evaluated("topk", {"x": X}, k=k, axis=axis, ascending=ascending, opset=opset)
    expected = torch.topk(torch.from_numpy(X), k, axis, largest=not ascending)
    assert torch.equal(values, expected.values)
    assert indices.dtype == torch.int32
    assert torch.equal(indices.long(), expected.indices)


def test_topk_of_other_dtypes(evaluated: Any) -> None:
    for dtype in (np.float16, np.int32, np.int8, np.uint8, np.int16):
        values, indices = evaluated("topk", {"x": X.astype(dtype)}, k=2, axis=0)
        assert torch.equal(values, torch.from_numpy(np.sort(X, 0)[:0:-1].astype(dtype).copy()))
        assert np.array_equal(indices.numpy(), np.argsort(X, 0)[:0:-1])


def test_topk_takes_everything_and_gives_narrow_indices_from_ios_17(evaluated: Any) -> None:
    narrow = {"values": FLOATS, "indices": TensorType("uint16", None)}
    given: Any = {"x": torch.from_numpy(X), "k": torch.tensor(-1)}
    found = several("topk", narrow, opset=7, output_indices_dtype="uint16", **given)
    assert np.array_equal(found["values"].numpy(), -np.sort(-X))
    assert np.array_equal(found["indices"].numpy(), np.argsort(-X))
    assert isinstance(evaluated("topk", {"x": X}, k=2, return_indices=False), torch.Tensor)


def test_topk_without_an_order_is_refused(evaluated: Any) -> None:
    with pytest.raises(UnverifiableError, match="sort=False"):
        evaluated("topk", {"x": X}, k=2, sort=False)
    assert evaluated("topk", {"x": X}, k=1, sort=False)[0].shape == (3, 4, 1)


TIED = torch.tensor([3.0, 1.0, 3.0, 0.0, 1.0])


@pytest.mark.parametrize("k", [1, 2, 3, 5])
def test_indices_of_equal_values_are_unknown_and_the_values_are_not(k: int) -> None:
    given: Any = {"x": TIED, "k": torch.tensor(k)}
    values = several("topk", BOTH, "values", **given)["values"]
    assert torch.equal(values, TIED.sort(descending=True).values[:k])
    with pytest.raises(UnverifiableError, match="equal values"):
        several("topk", BOTH, **given)


def test_a_tie_that_does_not_reach_the_chosen_does_no_harm() -> None:
    x = torch.tensor([3.0, 1.0, 2.0, 1.0])
    found = several("topk", BOTH, x=x, k=torch.tensor(2))
    assert found["indices"].tolist() == [0, 2]
    with pytest.raises(UnverifiableError):
        several("topk", BOTH, x=x, k=torch.tensor(3))


def test_nan_has_no_order(direct: Any) -> None:
    x = torch.tensor([1.0, float("nan")])
    with pytest.raises(UnverifiableError, match="NaN"):
        direct("argsort", {"x": x}, INDICES)
    with pytest.raises(UnverifiableError, match="NaN"):
        several("topk", BOTH, "values", x=x)


@pytest.mark.parametrize("k", [0, 6, -1])
def test_a_k_that_does_not_fit_is_damage(k: int) -> None:
    with pytest.raises(InputFileError):
        several("topk", BOTH, "values", x=TIED, k=torch.tensor(k), opset=6)


@pytest.mark.parametrize("axis", [0, 1, -1])
@pytest.mark.parametrize("ascending", [False, True])
def test_argsort(evaluated: Any, axis: int, ascending: bool) -> None:
    found = evaluated("argsort", {"x": X}, axis=axis, ascending=ascending)
    assert np.array_equal(found.numpy(), np.argsort(X if ascending else -X, axis))


def test_argsort_of_equal_values_is_refused(direct: Any) -> None:
    with pytest.raises(UnverifiableError, match="equal values"):
        direct("argsort", {"x": TIED}, INDICES)


def test_defaults_of_sorting(direct: Any) -> None:
    x = torch.tensor([[1.0, 5.0, 3.0]])
    assert direct("argsort", {"x": x}, INDICES).tolist() == [[1, 2, 0]]
    found = several("topk", BOTH, x=x)
    assert (found["values"].tolist(), found["indices"].tolist()) == ([[5.0]], [[1]])


@pytest.mark.parametrize("dtype", [np.float32, np.int32, np.bool_])
def test_non_zero(evaluated: Any, dtype: Any) -> None:
    x = (X % 3 * (X > 9)).astype(dtype)
    found = evaluated("non_zero", {"x": x})
    assert np.array_equal(found.numpy(), np.argwhere(x))
    assert found.dtype == torch.int32


@pytest.mark.parametrize("axis", [-1, 0, 1, 2, -2])
def test_one_hot(evaluated: Any, axis: int) -> None:
    indices = np.array([[0, 3, 1], [2, 2, 0]], np.int32)
    found = evaluated(
        "one_hot",
        {"indices": indices},
        one_hot_vector_size=4,
        axis=axis,
        on_value=np.float32(2.5),
        off_value=np.float32(-1),
    )
    expected = np.moveaxis(np.where(np.eye(4)[indices] == 1, 2.5, -1).astype(np.float32), -1, axis)
    assert np.array_equal(found.numpy(), expected)


def test_one_hot_by_default(direct: Any) -> None:
    given = {"indices": torch.tensor([1, 0]), "one_hot_vector_size": torch.tensor(3)}
    found = direct("one_hot", given, TensorType("int32", (2, 3)))
    assert found.tolist() == [[0, 1, 0], [1, 0, 0]]
    for index in (-1, 3):
        with pytest.raises(UnverifiableError, match="outside"):
            direct("one_hot", {**given, "indices": torch.tensor([index])}, INDICES)
    with pytest.raises(UnverifiableError, match="larger"):
        direct("one_hot", {**given, "one_hot_vector_size": torch.tensor(2**30)}, INDICES)


def classified(probabilities: Any, classes: list[Any]) -> dict[str, Any]:
    label = TensorType("string", ())
    return several(
        "classify",
        {"label": label, "all": TensorType("dictionary", None)},
        probabilities=torch.tensor(probabilities),
        classes=classes,
    )


def test_classify() -> None:
    found = classified([[0.25, 0.5, 0.25]], ["cat", "dog", "cow"])
    assert found["label"] == "dog"
    assert found["all"] == {"cat": 0.25, "dog": 0.5, "cow": 0.25}
    numbers = [torch.tensor(7), torch.tensor(9)]
    with pytest.raises(InputFileError, match="declared"):  # int64, not string
        classified([0.9, 0.1], numbers)


@pytest.mark.parametrize("probabilities", [[0.5, 0.5], [float("nan"), 0.5]])
def test_no_label_is_told_of_a_draw(probabilities: list[float]) -> None:
    with pytest.raises(UnverifiableError, match="largest"):
        classified(probabilities, ["a", "b"])


def test_classes_must_fit() -> None:
    with pytest.raises(InputFileError):
        classified([0.5, 0.2, 0.3], ["a", "b"])
    with pytest.raises(UnverifiableError, match="one label"):
        classified([0.5, 0.2], ["a", "a"])


BOXES = np.array(
    [[[5, 5, 4, 4], [5.5, 5, 4, 4], [20, 5, 4, 4], [5, 20, 6, 2], [20.5, 5.5, 4, 4]]], np.float32
)
SCORES = np.array([[[0.6], [0.9], [0.7], [0.3], [0.8]]], np.float32)


def test_non_maximum_suppression_before_ios_17(evaluated: Any) -> None:
    boxes, scores, indices, count = evaluated(
        "non_maximum_suppression",
        {"boxes": BOXES, "scores": SCORES},
        opset=5,
        iou_threshold=np.float32(0.5),
        score_threshold=np.float32(0.2),
        max_boxes=3,
    )
    assert indices.tolist() == [[1, 4, 3]]
    assert count.tolist() == [3]
    assert np.array_equal(boxes.numpy(), BOXES[:, [1, 4, 3]])
    assert np.array_equal(scores.numpy(), SCORES[:, [1, 4, 3]])


def test_non_maximum_suppression_from_ios_17(evaluated: Any) -> None:
    inputs = {"boxes": BOXES.transpose(0, 2, 1).copy(), "scores": SCORES.transpose(0, 2, 1).copy()}
    boxes, scores, indices = evaluated(
        "non_maximum_suppression", inputs, iou_threshold=np.float32(0.5), max_boxes=2
    )
    assert indices.tolist() == [[1, 4]]
    assert np.array_equal(boxes.numpy(), inputs["boxes"][:, :, [1, 4]])
    assert np.array_equal(scores.numpy(), inputs["scores"][:, :, [1, 4]])


def suppressed(boxes: Any, scores: Any, wanted: str = "boxes", **given: Any) -> Any:
    names = {"boxes": FLOATS, "scores": FLOATS, "indices": INDICES, "count": INDICES}
    inputs = {"iou_threshold": 0.5, "score_threshold": 0.2, "max_boxes": 2, **given}
    return several(
        "non_maximum_suppression",
        names,
        wanted,
        opset=5,
        boxes=torch.as_tensor(boxes),
        scores=torch.as_tensor(scores),
        **{key: torch.tensor(value) for key, value in inputs.items()},
    )[wanted]


def test_the_score_threshold_and_the_overlap_decide() -> None:
    assert suppressed(BOXES, SCORES, "count", max_boxes=9).tolist() == [3]
    assert suppressed(BOXES, SCORES, "count", max_boxes=9, score_threshold=0.5).tolist() == [2]
    assert suppressed(BOXES, SCORES, "count", max_boxes=9, iou_threshold=0.99).tolist() == [5]
    assert suppressed(BOXES, SCORES, "indices", max_boxes=1).tolist() == [[1]]


@pytest.mark.parametrize(
    ("case", "edge"),
    [
        ({"boxes": BOXES, "scores": SCORES, "max_boxes": 9}, "fills the outputs"),
        ({"boxes": BOXES, "scores": np.ones_like(SCORES)}, "equal scores"),
        ({"boxes": BOXES, "scores": np.repeat(SCORES, 2, 2)}, "several scores"),
        ({"boxes": -BOXES, "scores": SCORES}, "without an area"),
        ({"boxes": BOXES * np.nan, "scores": SCORES}, "NaN"),
        ({"boxes": BOXES[:, [0, 0]], "scores": SCORES[:, :2], "iou_threshold": 1.0}, "threshold"),
    ],
)
def test_what_suppression_leaves_open_is_refused(case: dict[str, Any], edge: str) -> None:
    with pytest.raises(UnverifiableError, match=edge):
        suppressed(**case)


def test_an_unknown_value_tells_its_operator() -> None:
    with pytest.raises(UnverifiableError, match=r"topk \(y\): ties"):
        Unknown("topk", "y", "ties").refuse()


@pytest.mark.parametrize(
    ("kind", "inputs", "constants"),
    [
        ("topk", {"x": X}, {"k": 2, "axis": 0, "ascending": True}),
        ("argsort", {"x": X}, {"axis": 1, "ascending": True}),
        ("non_zero", {"x": X}, {}),
        ("one_hot", {"indices": np.array([1, 0], np.int32)}, {"one_hot_vector_size": 3}),
    ],
)
def test_coremltools_folds_to_the_same(
    evaluated: Any, inferred: Any, kind: str, inputs: Any, constants: Any
) -> None:
    second = inferred(kind, inputs, **constants)
    if second is None:
        pytest.skip("coremltools folds no such constant")
    found = evaluated(kind, inputs, **constants)
    for one, other in zip(
        found if isinstance(found, tuple) else (found,),
        second if isinstance(second, tuple) else (second,),
        strict=True,
    ):
        assert np.array_equal(one.numpy(), other)


def test_a_list_is_no_tensor() -> None:
    with pytest.raises(InputFileError, match="no tensor"):
        several("non_zero", {"found": INDICES}, x=["a"])
