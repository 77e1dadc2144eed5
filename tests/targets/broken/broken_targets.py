"""Targets that are wrong in one way each, made from the one of docs/writing-a-target.md."""

from __future__ import annotations

import contextlib
import itertools
import os
import runpy
import signal
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from isomorph.errors import ConversionError, InputFileError
from isomorph.exporter.flattening import flat_program
from isomorph.targets.base import Capability, Evidence, Unsupported
from isomorph_replay import program as replay
from isomorph_replay.target import ReplayOptions, ReplayTarget

MODELS = Path(__file__).parents[2] / "models"
faulty = runpy.run_path(str(MODELS / "program_faults.py"))["faulty"]


class Replay(ReplayTarget):
    """The sound one, without half precision, which takes time."""

    precisions = ("fp32",)
    session = replay.ReplaySession

    def open(self, artifact, device="cpu", signature=None):
        super().open(artifact, device, signature).close()
        return self.session(artifact)


class Modest(Replay):
    """Sound, but takes neither dynamic dims nor LSTM, and says so."""

    def convert(self, graph, options, directory, stem):
        if graph.dims:
            name = next(iter(graph.dims))
            raise ConversionError(f"no dynamic dim {name}", hint="fix the size, or use replay")
        if any("lstm" in node.name for node in graph.program.graph_module.graph.nodes):
            raise ConversionError("no LSTM")
        return super().convert(graph, options, directory, stem)


# ---------------------------------------------------------------- wrong programs


class SwappedOutputs(Replay):
    def convert(self, graph, options, directory, stem):
        with contextlib.suppress(LookupError):  # a model without two outputs of one shape
            graph = faulty(graph, "swapped_outputs")
        return super().convert(graph, options, directory, stem)


class IgnoredDynamicAxis(Replay):
    """Exports with the example's sizes, and says that every size is taken."""

    def convert(self, graph, options, directory, stem):
        if not graph.dims:
            return super().convert(graph, options, directory, stem)
        program = flat_program(graph)
        nodes = {node.name: node for node in program.graph_module.graph.nodes}
        example = tuple(
            torch.ones(
                [getattr(getattr(s, "node", None), "hint", s) for s in nodes[n].meta["val"].shape],
                dtype=nodes[n].meta["val"].dtype,
            )
            for n in graph.input_nodes
        )
        static = torch.export.export(program.module(), example)
        frozen = replace(
            graph,
            program=static,
            input_nodes=tuple(static.graph_signature.user_inputs),
            output_nodes=tuple(static.graph_signature.user_outputs),
        )
        return super().convert(frozen, options, directory, stem)


class HalfWeights(Replay):
    """Stores every weight rounded to half precision."""

    def convert(self, graph, options, directory, stem):
        program = graph.copy_program()
        program._state_dict = {
            name: torch.nn.Parameter(value.detach().half().float(), requires_grad=False)
            if isinstance(value, torch.nn.Parameter)
            else value
            for name, value in program.state_dict.items()
        }
        return super().convert(replace(graph, program=program), options, directory, stem)


# ---------------------------------------------------------------- wrong files


_counter = itertools.count()


class Counting(Replay):
    def convert(self, graph, options, directory, stem):
        return super().convert(graph, ReplayOptions(str(next(_counter))), directory, stem)


class HashOrdered(Replay):
    def convert(self, graph, options, directory, stem):
        return super().convert(graph, ReplayOptions(str(hash("name"))), directory, stem)


class TellsFolder(Replay):
    def convert(self, graph, options, directory, stem):
        return super().convert(graph, ReplayOptions(str(directory)), directory, stem)


class ExtraFile(Replay):
    def convert(self, graph, options, directory, stem):
        (directory / "conversion.log").write_text("done")
        return super().convert(graph, options, directory, stem)


class ChangesGraph(Replay):
    def convert(self, graph, options, directory, stem):
        with torch.no_grad():
            for tensor in graph.tensors().values():
                tensor.add_(0)
        for node in graph.program.graph_module.graph.nodes:
            if node.op == "placeholder" and node.name == "state":
                node.name = "other"  # no weights there
                result = super().convert(replace(graph), options, directory, stem)
                node.name = "state"
                return result
        return super().convert(graph, options, directory, stem)


# ---------------------------------------------------------------- wrong refusals


class ChecksNothing(Replay):
    def check(self, graph):
        return []


class ChecksEverything(Replay):
    def check(self, graph):
        return [Unsupported("aten::relu", "", ""), *super().check(graph)]


class ChecksVaguely(Replay):
    def check(self, graph):
        return [replace(item, module="", location="") for item in super().check(graph)]


class RaisesRaw(Replay):
    def convert(self, graph, options, directory, stem):
        if self.check(graph):
            raise KeyError("made_up")
        return super().convert(graph, options, directory, stem)


class LeavesFile(Replay):
    def convert(self, graph, options, directory, stem):
        (directory / f"{stem}.replay").touch()
        return super().convert(graph, options, directory, stem)


# ---------------------------------------------------------------- wrong declarations


class LacksMethod(Replay):
    files = None


class BadSuffix(Replay):
    suffix = "replay"


class BadName(Replay):
    name = "Re Play"


class BadFiles(Replay):
    def files(self, stem):
        return ("model.replay",)


@dataclass
class _Mutable:
    """Options.

    note: a text.
    """

    note: str = ""


class MutableOptions(Replay):
    options_type = _Mutable


@dataclass(frozen=True)
class _Untold:
    """Options."""

    note: str = ""


class UntoldOptions(Replay):
    options_type = _Untold


class NoRemedy(Replay):
    def capability(self):
        return replace(super().capability(), builds=False)


class NoDevices(Replay):
    def capability(self):
        return Capability(True, "1", True, True, ())


class HeavyCapability(Replay):
    def capability(self):
        import pexpect  # noqa: F401

        return super().capability()


# ---------------------------------------------------------------- wrong sessions


class _RenamedInputs(replay.ReplaySession):
    def __init__(self, path):
        super().__init__(path)
        self.inputs = tuple(replace(spec, name=f"arg_{spec.name}") for spec in self.inputs)


class RenamedInputs(Replay):
    session = _RenamedInputs


class _Narrow(replay.ReplaySession):
    def run(self, inputs):
        return {
            n: v.astype(np.int32) if v.dtype == np.int64 else v
            for n, v in super().run(inputs).items()
        }


class NarrowedIntegers(Replay):
    session = _Narrow


class _Wrapped(replay.ReplaySession):
    def run(self, inputs):
        return {
            n: v.astype(np.int32).astype(np.int64) if v.dtype == np.int64 else v
            for n, v in super().run(inputs).items()
        }


class WrappedIntegers(Replay):
    session = _Wrapped


class _Shared(replay.ReplaySession):
    def run(self, inputs):
        found = super().run(inputs)
        self._kept = getattr(self, "_kept", found)
        for name, value in found.items():
            self._kept[name][...] = value
        return self._kept


class SharedOutputs(Replay):
    session = _Shared


class _Views(replay.ReplaySession):
    def run(self, inputs):
        found = super().run(inputs)
        return found | ({"passed": inputs["x"]} if "passed" in found else {})


class ReturnsInput(Replay):
    session = _Views


class _Writes(replay.ReplaySession):
    def run(self, inputs):
        found = super().run(inputs)
        for name, value in inputs.items():
            if f"{name}_mutated" in found:
                value[...] = found[f"{name}_mutated"]
        return found


class WritesInputs(Replay):
    session = _Writes


class _Reversed(replay.ReplaySession):
    def run(self, inputs):
        return dict(reversed(super().run(inputs).items()))


class UnorderedOutputs(Replay):
    session = _Reversed


class _Raw(replay.ReplaySession):
    def run(self, inputs):
        return super().run(
            {name: value.ravel(order="K").reshape(value.shape) for name, value in inputs.items()}
        )


class ReadsRawMemory(Replay):
    session = _Raw


class _Lax(replay.ReplaySession):
    def run(self, inputs):
        with torch.no_grad():
            values = self._module(*(torch.from_numpy(inputs[s.name]) for s in self.inputs))
        return {s.name: v.numpy() for s, v in zip(self.outputs, values, strict=True)}


class LaxInputs(Replay):
    session = _Lax


class _Open(replay.ReplaySession):
    def close(self):
        pass


class NeverCloses(Replay):
    session = _Open


class _Silent(replay.ReplaySession):
    def __init__(self, path):
        super().__init__(path)
        self.evidence = Evidence("executed", "torch", "", "cpu")


class EmptyEvidence(Replay):
    session = _Silent


class AnyDevice(Replay):
    def open(self, artifact, device="cpu", signature=None):
        return super().open(artifact)


class NeedsSignature(Replay):
    def open(self, artifact, device="cpu", signature=None):
        if signature is None:
            raise InputFileError("the file has no names")
        return super().open(artifact)


class RaisesOSError(Replay):
    def open(self, artifact, device="cpu", signature=None):
        artifact.read_bytes()
        return super().open(artifact, device, signature)


class CrashesOnDamage(Replay):
    def open(self, artifact, device="cpu", signature=None):
        try:
            return super().open(artifact, device, signature)
        except InputFileError:
            os.kill(os.getpid(), signal.SIGSEGV)


class OpensDamaged(Replay):
    def open(self, artifact, device="cpu", signature=None):
        torch.export.load(artifact)
        return super().open(artifact, device, signature)
