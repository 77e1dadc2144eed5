"""What a session computes: names, dtypes, shapes, order, and values by the rule of an export."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np
import pytest

from ...errors import (
    ConversionError,
    IsomorphError,
    MissingRequirementError,
    UnverifiableError,
    UsageError,
)
from ...exporter.signature import Dim, TensorSpec
from .subject import Converted, Subject, fail, first_line, limit

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..base import Session

__all__ = ["RunningChecks", "example_arrays", "run"]

Arrays = dict[str, "NDArray[Any]"]

# The models whose values are judged at every precision.
_PARITY = ("conv", "transformer", "lstm", "unet", "embedding")
_PRECISIONS = ("fp32", "fp16", "bf16")


class RunningChecks:
    """Checks of an opened artifact on inputs that it takes."""

    @pytest.mark.parametrize("precision", _PRECISIONS)
    @pytest.mark.parametrize("model", _PARITY)
    def test_values_are_the_models(self, subject: Subject, model: str, precision: str) -> None:
        """Parity on a small model, batch sizes included where the target is dynamic."""
        if precision not in subject.target.precisions:
            limit(f"the target's precisions do not name {precision}")
        _judge(subject, model, precision)

    def test_structures_and_dtypes_survive(self, subject: Subject) -> None:
        """Nested inputs and outputs; outputs of one shape; float32, int64, bool; a 0-d output."""
        _judge(subject, "outputs")

    def test_signature_of_the_session_is_the_graphs(self, subject: Subject) -> None:
        """`session.inputs` and `outputs` have the user's names, in order, with dtypes and dims."""
        for model in ("outputs", "sizes" if subject.dynamic else "conv"):
            if model in subject.lacks:
                continue
            found = subject.converted(model)
            with subject.open(found) as session:
                pairs = (
                    ("inputs", session.inputs, found.graph.inputs),
                    ("outputs", session.outputs, found.graph.outputs),
                )
            for kind, told, wanted in pairs:
                names = [spec.name for spec in told]
                if names != [spec.name for spec in wanted]:
                    fail(
                        f"session.{kind} of {model!r} are {names}: they are "
                        f"{[spec.name for spec in wanted]}, in this order. Take them from the "
                        f"Signature that open() gets where the file keeps no names"
                    )
                for spec, right in zip(told, wanted, strict=True):
                    if problem := _spec_problem(spec, right):
                        fail(f"session.{kind} of {model!r}: {spec.name} {problem}")

    def test_outputs_come_in_order(self, subject: Subject) -> None:
        """`run` returns every output, by name, in the order of `session.outputs`."""
        found = subject.converted("outputs")
        with subject.open(found) as session:
            outputs = run(session, example_arrays(found))
        if not all(isinstance(value, np.ndarray) for value in outputs.values()):
            fail(f"run() returns {[type(v).__name__ for v in outputs.values()]}: return arrays")
        names = [spec.name for spec in found.graph.outputs]
        if list(outputs) != names:
            fail(f"run() returns {list(outputs)}: return a dict in the order {names}")

    def test_passed_and_repeated_outputs(self, subject: Subject) -> None:
        """An input handed through is an output, and so is a value returned twice."""
        _judge(subject, "aliases")

    def test_written_input_is_an_output(self, subject: Subject) -> None:
        """What the model writes to an input comes out as `NAME_mutated`."""
        _judge(subject, "mutation")

    def test_integers_keep_their_width(self, subject: Subject) -> None:
        """int64 values beyond 32 bits are right, or refused; never wrapped."""
        subject.demand_builds()
        ids = np.array([0, 1, -7, 3, 5], np.int64)
        if "integers" in subject.lacks:
            subject.converted("integers")
        try:
            found = subject.convert("integers")
        except ConversionError:
            limit("int64 arithmetic beyond 32 bits is refused by convert()")
        with subject.open(found) as session:
            for values in (ids, ids + 2**40):
                try:
                    outputs = session.run({"ids": values})
                except (ConversionError, UsageError, UnverifiableError):
                    continue  # refused by name
                except Exception as error:  # noqa: BLE001 - a session may raise anything
                    fail(f"run() of the model 'integers' raised {first_line(error)}")
                right = {"wide": values * 3_000_000_001 + 1, "next": values[1:] + 1}
                for name, value in right.items():
                    if not np.array_equal(outputs[name], value):
                        fail(
                            f"output {name} of the model 'integers' is {outputs[name]} for ids "
                            f"{values}, where it is {value}: int64 was narrowed. Refuse (with "
                            f"ConversionError, or UsageError for values out of range) what the "
                            f"format cannot hold"
                        )

    def test_every_size_of_dynamic_dims(self, subject: Subject) -> None:
        """Two dynamic dims at their least, greatest and odd sizes, alone and together."""
        if not subject.dynamic:
            limit("declared limit: dynamic = False")
        _judge(subject, "sizes")

    def test_outputs_are_memory_of_their_own(self, subject: Subject) -> None:
        """A second run does not change what the first returned, nor does the caller's input."""
        for model in ("aliases", "conv"):
            if model in subject.lacks:
                continue
            found = subject.converted(model)
            given = example_arrays(found)
            others = {n: v[::-1].copy() if v.ndim else v for n, v in given.items()}
            with subject.open(found) as session:
                first = run(session, given)
                kept = {name: value.copy() for name, value in first.items()}
                run(session, others)
            if changed := _changed(first, kept):
                fail(
                    f"a second run() changed the arrays that the first returned ({changed} of "
                    f"{model!r}): return copies, not views of the runtime's buffers"
                )
            for name, value in first.items():
                if any(np.shares_memory(value, array) for array in given.values()):
                    fail(f"output {name} of {model!r} is the caller's input array: return a copy")

    def test_inputs_are_left_alone(self, subject: Subject) -> None:
        """`run` does not write to the caller's arrays, even where the model does."""
        found = subject.converted("mutation" if "mutation" not in subject.lacks else "conv")
        given = example_arrays(found)
        kept = {name: value.copy() for name, value in given.items()}
        with subject.open(found) as session:
            run(session, given)
        if changed := _changed(given, kept):
            fail(f"run() changed the caller's array for {changed}: give the runtime a copy")

    def test_any_memory_layout_is_read_by_its_values(self, subject: Subject) -> None:
        """Strided arrays mean what numpy says that they hold."""
        found = subject.converted("conv")
        given = example_arrays(found)
        turned = {
            name: np.asfortranarray(value) if value.ndim > 1 else value
            for name, value in given.items()
        }
        with subject.open(found) as session:
            plain, strided = run(session, given), run(session, turned)
        for name, value in plain.items():
            if not np.allclose(value, strided[name], rtol=1e-4, atol=1e-5):
                fail(
                    f"output {name} changes when an input is laid out in Fortran order: pass "
                    f"inputs through targets.feed.checked_feed"
                )


def _judge(subject: Subject, model: str, precision: str = "fp32") -> None:
    """Parity of one model by validation's rule; fails with its reason."""
    from ...validation.parity import judge
    from . import models

    found = subject.converted(model, precision)
    subject.demand_runs()
    if precision in subject.unrun:
        _demand_refusal(subject, found, precision)
    reference = models.reference(model, precision, dynamic=subject.dynamic)
    with subject.open(found) as session:
        report = judge(found.graph, reference, session)
    if report.verdict == "pass":
        return
    wrong = [f"  {o.name}: {o.verdict}: {o.reason}" for o in report.outputs if o.reason]
    cases = [c.name for c in report.cases if c.verdict == report.verdict]
    fail(
        f"the model {model!r} ({precision}) does not pass parity: {report.verdict}: "
        f"{report.reason}\n" + "\n".join(wrong) + f"\ncases: {', '.join(cases)}\n"
        f"Compare the artifact with isomorph/targets/conformance/models.py, operator by operator"
    )


def _demand_refusal(subject: Subject, found: Converted, precision: str) -> NoReturn:
    """A precision that the runtime is declared not to run: `open` must say so by name."""
    reason = subject.unrun[precision]
    try:
        with subject.target.open(found.path, subject.device, found.signature):
            pass
    except (ConversionError, MissingRequirementError):
        limit(f"declared limit, refused as declared: {precision}: {reason}")
    except Exception as error:  # noqa: BLE001 - a target may raise anything
        fail(
            f"unrun declares {precision} ({reason}), but open() of the model {found.model!r} "
            f"raised {first_line(error)}: for a sound file that the runtime cannot run, raise "
            f"ConversionError"
        )
    fail(
        f"unrun declares {precision} ({reason}), but the model {found.model!r} opens: "
        f"remove the declaration, so that its values are checked"
    )


def example_arrays(found: Converted) -> Arrays:
    """The example of the model that was converted, as new arrays by input name."""
    from . import models

    return {name: value.numpy().copy() for name, value in models.example(found.model).items()}


def run(session: Session, inputs: Arrays) -> dict[str, NDArray[Any]]:
    """Outputs of a session on inputs that fit; ends the check where it raises."""
    try:
        return session.run(inputs)
    except Exception as error:  # noqa: BLE001 - a session may raise anything
        shown = str(error) if isinstance(error, IsomorphError) else first_line(error)
        fail(f"run() raised {type(error).__name__} on inputs that fit: {shown}")


def _changed(arrays: Mapping[str, NDArray[Any]], kept: Mapping[str, NDArray[Any]]) -> str:
    changed = [name for name, value in arrays.items() if not np.array_equal(value, kept[name])]
    return ", ".join(changed)


def _spec_problem(told: TensorSpec, right: TensorSpec) -> str:
    if told.dtype != right.dtype:
        return f"is {told.dtype}: the graph's is {right.dtype}"
    if len(told.shape) != len(right.shape):
        return f"has {len(told.shape)} axes: the graph's has {len(right.shape)}"
    for axis, (size, wanted) in enumerate(zip(told.shape, right.shape, strict=True)):
        if isinstance(wanted, Dim) != isinstance(size, Dim):
            return f"has size {size} on axis {axis}: the graph's is {wanted}"
        if not isinstance(wanted, Dim) and size != wanted:
            return f"has size {size} on axis {axis}: the graph's is {wanted}"
    return ""
