"""Branches, loops, lists and state, in whole programs that coremltools writes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from isomorph.errors import InputFileError, UnverifiableError
from isomorph.targets.coreml.evaluate import control, interpreter
from isomorph.targets.coreml.evaluate.interpreter import run_function
from isomorph.targets.coreml.evaluate.package import Package, read_package
from isomorph.targets.coreml.evaluate.program import Block, Constant, Function, Operation, Port
from isomorph.targets.coreml.evaluate.state import State, fresh_states
from isomorph.targets.coreml.evaluate.types import ListType, StateType, TensorType
from isomorph.targets.coreml.quiet import coremltools

Written = Callable[..., Package]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    """`written(main=build, other=build)`: each builds a function of `x`, a float32[3]."""

    def write(**functions: Callable[..., Any]) -> Package:
        ct = coremltools()
        from coremltools.converters.mil.backend.mil.load import MILProtoExporter
        from coremltools.converters.mil.mil import Builder as mb  # noqa: N813
        from coremltools.converters.mil.mil import Function as MilFunction
        from coremltools.converters.mil.mil import Program, types
        from coremltools.proto import Model_pb2

        program = Program()
        for name, build in functions.items():
            places = {"x": mb.placeholder((3,), types.fp32)}
            if "state" in build.__code__.co_varnames[: build.__code__.co_argcount]:
                places["state"] = mb.state_tensor_placeholder((3,), types.fp32)
            with MilFunction(places, opset_version=ct.target.iOS18) as function:
                result = build(mb, **function.inputs)
                function.set_outputs(list(result) if isinstance(result, tuple | list) else [result])
            program.add_function(name, function)
        weights = tmp_path / "Data" / "weights"
        weights.mkdir(parents=True)
        exporter = MILProtoExporter(program, str(weights), specification_version=9)
        model = Model_pb2.Model(specificationVersion=9, mlProgram=exporter.export())
        model.description.defaultFunctionName = next(iter(functions))
        (tmp_path / "Data" / "model.mlmodel").write_bytes(model.SerializeToString())
        manifest = {"itemInfoEntries": {"a": {"path": "model.mlmodel"}}, "rootModelIdentifier": "a"}
        (tmp_path / "Manifest.json").write_text(json.dumps(manifest), encoding="utf-8")
        return read_package(tmp_path)

    return write


def outputs(package: Package, x: list[float], name: str = "", **states: State) -> list[Any]:
    function = package.program.functions[name or package.default_function]
    found = run_function(function, {"x": torch.tensor(x).float(), **states})
    return [value.tolist() for value in found.values()]


def test_cond_takes_one_branch(written: Written) -> None:
    def build(mb: Any, x: Any) -> Any:
        positive = mb.greater(x=mb.reduce_sum(x=x), y=0.0)
        return mb.cond(
            pred=positive,
            _true_fn=lambda: mb.add(x=x, y=1.0),
            _false_fn=lambda: mb.mul(x=x, y=-10.0),
        )

    package = written(main=build)
    assert outputs(package, [1, 2, 3]) == [[2, 3, 4]]
    assert outputs(package, [-1, -2, 0]) == [[10, 20, 0]]


def test_a_branch_may_give_several_values_and_hold_another(written: Written) -> None:
    def build(mb: Any, x: Any) -> Any:
        first = mb.greater(x=mb.reduce_sum(x=x), y=0.0)
        second = mb.greater(x=mb.reduce_max(x=x), y=5.0)
        inner = lambda: mb.cond(  # noqa: E731
            pred=second, _true_fn=lambda: mb.add(x=x, y=1.0), _false_fn=lambda: mb.add(x=x, y=2.0)
        )
        return mb.cond(
            pred=first,
            _true_fn=lambda: (inner(), mb.mul(x=x, y=2.0)),
            _false_fn=lambda: (mb.mul(x=x, y=0.0), mb.mul(x=x, y=3.0)),
        )

    package = written(main=build)
    assert outputs(package, [1, 2, 3]) == [[3, 4, 5], [2, 4, 6]]
    assert outputs(package, [1, 2, 6]) == [[2, 3, 7], [2, 4, 12]]
    assert outputs(package, [-1, -2, -3]) == [[0, 0, 0], [-3, -6, -9]]


def test_while_loop_turns_until_its_condition_fails(written: Written) -> None:
    def build(mb: Any, x: Any) -> Any:
        return mb.while_loop(
            _cond=lambda i, total: mb.less(x=i, y=3),
            _body=lambda i, total: (mb.add(x=i, y=1), mb.add(x=total, y=x)),
            loop_vars=(np.int32(0), x),
        )

    assert outputs(written(main=build), [1, 2, 3]) == [3, [4, 8, 12]]


def test_a_loop_whose_condition_fails_at_once_gives_what_went_in(written: Written) -> None:
    def build(mb: Any, x: Any) -> Any:
        return mb.while_loop(
            _cond=lambda i, y: mb.less(x=i, y=3),
            _body=lambda i, y: (mb.add(x=i, y=1), mb.add(x=y, y=x)),
            loop_vars=(np.int32(7), x),
        )

    assert outputs(written(main=build), [1, 2, 3]) == [7, [1, 2, 3]]


def test_a_loop_in_a_loop(written: Written) -> None:
    def build(mb: Any, x: Any) -> Any:
        def inner(i: Any, y: Any) -> Any:
            return mb.while_loop(
                _cond=lambda j, z: mb.less(x=j, y=i),
                _body=lambda j, z: (mb.add(x=j, y=1), mb.add(x=z, y=x)),
                loop_vars=(np.int32(0), y),
            )[1]

        return mb.while_loop(
            _cond=lambda i, y: mb.less(x=i, y=4),
            _body=lambda i, y: (mb.add(x=i, y=1), inner(i, y)),
            loop_vars=(np.int32(0), x),
        )[1]

    assert outputs(written(main=build), [1, 2, 3]) == [[7, 14, 21]]


def test_endless_loops_are_refused(written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    def build(mb: Any, x: Any) -> Any:
        return mb.while_loop(
            _cond=lambda y: mb.less(x=mb.reduce_max(x=mb.mul(x=y, y=0.0)), y=1.0),
            _body=lambda y: mb.add(x=y, y=x),
            loop_vars=(x,),
        )

    package = written(main=build)
    monkeypatch.setattr(control, "_LONGEST", 50)
    with pytest.raises(UnverifiableError, match="more than 50 turns"):
        outputs(package, [1, 2, 3])
    monkeypatch.setattr(interpreter, "_MOST", 100)
    with pytest.raises(UnverifiableError, match="more than 100 operations"):
        outputs(package, [1, 2, 3])


def test_lists(written: Written) -> None:
    def build(mb: Any, x: Any) -> Any:
        ls = mb.make_list(init_length=1, elem_shape=(3,), dtype="fp32")
        ls = mb.list_write(ls=ls, index=0, value=x)
        before = ls
        ls = mb.list_write(ls=ls, index=1, value=mb.mul(x=x, y=2.0))
        ls = mb.list_write(ls=ls, index=2, value=mb.mul(x=x, y=3.0))
        ls = mb.list_scatter(ls=ls, indices=[0, 2], value=mb.stack(values=(x, x), axis=0))
        return (
            mb.list_length(ls=ls),
            mb.list_read(ls=ls, index=1),
            mb.list_gather(ls=ls, indices=[2, 1]),
            mb.list_length(ls=before),
        )

    x = [1.0, 2.0, 3.0]
    assert outputs(written(main=build), x) == [3, [2, 4, 6], [x, [2, 4, 6]], 1]


def operation(kind: str, declared: Any = None, *tail: Operation, **inputs: Any) -> Any:
    """The value of one operation made by hand."""
    port = Port("made", declared or TensorType("fp32", None))
    given = {
        name: tuple(map(Constant, value)) if isinstance(value, tuple) else (Constant(value),)
        for name, value in inputs.items()
    }
    block = Block((), (Operation(kind, "made", given, (port,)), *tail), ("made",))
    return run_function(Function("main", (), block, 8), {})["made"]


LIST = ListType(TensorType("fp32", None), None)


def made(length: int = 2, **more: Any) -> Any:
    sizes = (torch.tensor(3),)
    return operation("make_list", LIST, init_length=torch.tensor(length), elem_shape=sizes, **more)


ONE, X = torch.tensor(1), torch.zeros(3)


@pytest.mark.parametrize(
    ("kind", "inputs", "edge"),
    [
        ("list_read", {"index": ONE}, "never written"),
        ("list_read", {"index": torch.tensor(2)}, "element 2 of a list of 2"),
        ("list_read", {"index": torch.tensor(-1)}, "element -1"),
        ("list_write", {"index": torch.tensor(3), "value": X}, "writing element 3"),
        ("list_gather", {"indices": torch.zeros(0)}, "no indices"),
        ("list_scatter", {"indices": torch.tensor([1, 1]), "value": torch.zeros(2, 3)}, "twice"),
    ],
)
def test_what_lists_leave_open_is_refused(kind: str, inputs: dict[str, Any], edge: str) -> None:
    with pytest.raises(UnverifiableError, match=edge):
        operation(kind, LIST if "value" in inputs else None, ls=made(), **inputs)


def test_a_list_of_fixed_length_does_not_grow() -> None:
    fixed = made(dynamic_length=torch.tensor(False))
    with pytest.raises(UnverifiableError, match="writing element 2"):
        operation("list_write", LIST, ls=fixed, index=torch.tensor(2), value=X)
    with pytest.raises(UnverifiableError, match="longer"):
        made(2**30)


@pytest.mark.parametrize("value", [torch.zeros(2), torch.zeros(3).half(), torch.zeros(3, 1)])
def test_elements_are_of_the_declared_kind(value: torch.Tensor) -> None:
    with pytest.raises(InputFileError, match="element"):
        operation("list_write", LIST, ls=made(), index=ONE, value=value)


def test_a_size_that_is_a_symbol_takes_any() -> None:
    ls = operation("make_list", LIST, elem_shape=("n", torch.tensor(2)))
    found = operation("list_write", LIST, ls=ls, index=torch.tensor(0), value=torch.zeros(9, 2))
    assert found[0].shape == (9, 2)
    assert ls[0] is None  # the list that was written to is another


@pytest.mark.parametrize("pred", [torch.tensor([True, False]), torch.tensor(1), "yes"])
def test_a_condition_is_one_bool(pred: Any) -> None:
    with pytest.raises(InputFileError, match="single bool"):
        operation("cond", pred=pred)


def test_a_block_that_is_missing_is_damage() -> None:
    with pytest.raises(InputFileError, match="0 blocks"):
        operation("cond", pred=torch.tensor(True))


def counting(mb: Any, x: Any, state: Any) -> Any:
    old = mb.read_state(input=state)
    new = mb.coreml_update_state(state=state, value=mb.add(x=old, y=x))
    return old, new


def test_state_lives_from_call_to_call(written: Written) -> None:
    package = written(main=counting)
    states = dict(fresh_states(package.program.functions["main"]))
    assert outputs(package, [1, 2, 3], **states) == [[0, 0, 0], [1, 2, 3]]
    assert outputs(package, [1, 1, 1], **states) == [[1, 2, 3], [2, 3, 4]]
    fresh = dict(fresh_states(package.program.functions["main"]))
    assert outputs(package, [1, 1, 1], **fresh) == [[0, 0, 0], [1, 1, 1]]


def test_what_was_read_does_not_change_with_the_state(written: Written) -> None:
    def build(mb: Any, x: Any, state: Any) -> Any:
        old = mb.read_state(input=state)
        mb.coreml_update_state(state=state, value=x)
        return mb.add(x=old, y=0.0), mb.read_state(input=state)

    package = written(main=build)
    states = dict(fresh_states(package.program.functions["main"]))
    assert outputs(package, [4, 5, 6], **states) == [[0, 0, 0], [4, 5, 6]]


def stateful(declared: TensorType) -> Function:
    return Function("main", (Port("state", StateType(declared)),), Block((), (), ()), 8)


@pytest.mark.parametrize(
    "declared",
    [
        TensorType("fp32", None),
        TensorType("fp32", (None, 2)),
        TensorType("fp16", (2**20, 2**20)),
        TensorType("string", ()),
    ],
)
def test_states_that_cannot_be_made_are_damage(declared: TensorType) -> None:
    with pytest.raises(InputFileError, match="state"):
        fresh_states(stateful(declared))


def test_whoever_writes_into_what_was_read_leaves_the_state_alone() -> None:
    state = fresh_states(stateful(TensorType("fp32", (2,))))["state"]
    operation("read_state", input=state).add_(1)
    assert state.value.tolist() == [0, 0]


def test_a_state_takes_what_it_is_declared_to_hold() -> None:
    state = fresh_states(stateful(TensorType("fp16", (2,))))["state"]
    assert state.value.dtype == torch.float16
    for data in (torch.zeros(2), torch.zeros(3).half()):
        given = {"input": (Constant(state),), "data": (Constant(data),)}
        block = Block((), (Operation("write_state", "w", given, ()),), ())
        with pytest.raises(InputFileError, match="write_state"):
            run_function(Function("main", (), block, 8), {})
    with pytest.raises(InputFileError, match="no state"):
        operation("read_state", input=torch.zeros(2))


def test_a_package_of_several_functions(written: Written) -> None:
    package = written(
        double=lambda mb, x: mb.mul(x=x, y=2.0), negative=lambda mb, x: mb.mul(x=x, y=-1.0)
    )
    assert package.default_function == "double"
    assert outputs(package, [1, 2, 3]) == [[2, 4, 6]]
    assert outputs(package, [1, 2, 3], "negative") == [[-1, -2, -3]]
    package.spec.description.defaultFunctionName = "main"
    with pytest.raises(InputFileError, match="no function main, only"):
        _ = package.default_function
