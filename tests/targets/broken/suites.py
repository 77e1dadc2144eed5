"""The conformance suite on each broken target, with the checks that must fail.

Run by test_broken_targets.py, which selects the checks: `red` alone, or all where `whole`
says so, but for those that need processes of their own.
"""

from __future__ import annotations

import broken_targets as broken
from isomorph.targets.conformance import TargetConformance

PARITY = tuple(
    f"values_are_the_models[{model}-fp32]"
    for model in ("conv", "transformer", "lstm", "unet", "embedding")
)
FEEDS = tuple(
    f"wrong_input_is_a_usage_error[{wrong}]"
    for wrong in ("missing", "unknown", "dtype", "axes", "size")
)


class Suite(TargetConformance):
    """`red`: checks that must fail; `says`: what each failure must say.

    `whole`: run all; `skipped`: run these too, they must be skipped with a reason.
    """

    red: tuple[str, ...] = ()
    skipped: dict[str, str] = {}  # noqa: RUF012
    says = ""
    whole = False


def suite(target, *red: str, says: str, **declared) -> type[Suite]:
    """A suite on `target` whose checks `red` must fail with a message that holds `says`."""
    members = {"target": target, "red": red, "says": says, **declared}
    return type(f"Test{target.__name__}", (Suite,), members)


class TestSound(Suite):
    target = broken.Replay
    whole = True


class TestModest(Suite):
    target = broken.Modest
    dynamic = False
    lacks = {"lstm": "no recurrent layers"}  # noqa: RUF012
    waived = {"evidence_is_filled": "nobody knows"}  # noqa: RUF012
    skipped = {  # noqa: RUF012
        "values_are_the_models[lstm-fp32]": "refused as declared: lstm: no recurrent layers",
        "dynamic_dims_are_taken_or_refused": "refused as declared: dynamic = False",
        "every_size_of_dynamic_dims": "declared limit: dynamic = False",
        "evidence_is_filled": "waived by TestModest: evidence_is_filled: nobody knows",
        "values_are_the_models[conv-fp16]": "precisions do not name fp16",
    }


class TestSwappedOutputs(Suite):
    target = broken.SwappedOutputs
    red = (
        "structures_and_dtypes_survive",
        "passed_and_repeated_outputs",
        "written_input_is_an_output",
    )
    says = "does not pass parity"
    whole = True


class TestIgnoredDynamicAxis(Suite):
    target = broken.IgnoredDynamicAxis
    red = (*PARITY, "every_size_of_dynamic_dims")
    says = "on case"
    whole = True


class TestHalfWeights(Suite):
    target = broken.HalfWeights
    red = (*PARITY, "structures_and_dtypes_survive", "every_size_of_dynamic_dims")
    says = "noise floors off"
    whole = True


TestCounting = suite(
    broken.Counting, "converting_again_gives_the_same_bytes", says="Look for counters"
)
TestHashOrdered = suite(
    broken.HashOrdered, "other_processes_write_the_same_bytes", says="iteration over sets"
)
TestTellsFolder = suite(
    broken.TellsFolder, "files_tell_nothing_of_this_machine", says="holds the path"
)
TestExtraFile = suite(broken.ExtraFile, "convert_writes_what_it_declares", says="conversion.log")
TestChangesGraph = suite(
    broken.ChangesGraph, "convert_leaves_the_graph_as_it_was", says="flat_program(graph)"
)
TestChecksNothing = suite(
    broken.ChecksNothing,
    "check_names_an_unknown_operator",
    "convert_refuses_an_unknown_operator",
    says="made-up operator",
)
TestChecksEverything = suite(
    broken.ChecksEverything, "check_names_an_unknown_operator", says="ordinary operators"
)
TestChecksVaguely = suite(
    broken.ChecksVaguely,
    "check_names_an_unknown_operator",
    "convert_refuses_an_unknown_operator",
    says="inner",
)
TestRaisesRaw = suite(
    broken.RaisesRaw, "convert_refuses_an_unknown_operator", says="KeyError: 'made_up'"
)
TestLeavesFile = suite(
    broken.LeavesFile, "convert_refuses_an_unknown_operator", says="left ['net.v1.replay'] behind"
)
TestTakesDynamic = type(
    "TestTakesDynamic",
    (Suite,),
    {
        "target": broken.Replay,
        "dynamic": False,
        "red": ("dynamic_dims_are_taken_or_refused",),
        "says": "declares dynamic = False, but",
    },
)

TestLacksMethod = suite(broken.LacksMethod, "target_has_every_member", says="lacks files")
TestBadSuffix = suite(broken.BadSuffix, "name_suffix_and_precisions", says="suffix is 'replay'")
TestBadName = suite(broken.BadName, "name_suffix_and_precisions", says="lower-case")
TestBadFiles = suite(broken.BadFiles, "files_begin_with_the_artifact", says="stem + suffix")
TestMutableOptions = suite(
    broken.MutableOptions, "options_are_a_documented_frozen_dataclass", says="frozen=True"
)
TestUntoldOptions = suite(
    broken.UntoldOptions, "options_are_a_documented_frozen_dataclass", says="not explained"
)
TestNoRemedy = suite(broken.NoRemedy, "capability_is_consistent", says="exact command")
TestNoDevices = suite(broken.NoDevices, "capability_is_consistent", says="name the devices")
TestHeavyCapability = suite(
    broken.HeavyCapability, "capability_imports_nothing", says="imports pexpect"
)

TestRenamedInputs = suite(
    broken.RenamedInputs, "signature_of_the_session_is_the_graphs", says="arg_data_x"
)
TestNarrowedIntegers = suite(
    broken.NarrowedIntegers, "structures_and_dtypes_survive", says="dtype is int32, not int64"
)
TestWrappedIntegers = suite(
    broken.WrappedIntegers, "integers_keep_their_width", says="int64 was narrowed"
)
TestSharedOutputs = suite(
    broken.SharedOutputs, "outputs_are_memory_of_their_own", says="return copies"
)
TestReturnsInput = suite(
    broken.ReturnsInput, "outputs_are_memory_of_their_own", says="the caller's input array"
)
TestWritesInputs = suite(broken.WritesInputs, "inputs_are_left_alone", says="array for state")
TestUnorderedOutputs = suite(
    broken.UnorderedOutputs, "outputs_come_in_order", says="in the order ['second', 'first'"
)
TestReadsRawMemory = suite(
    broken.ReadsRawMemory, "any_memory_layout_is_read_by_its_values", says="Fortran order"
)
TestLaxInputs = suite(broken.LaxInputs, *FEEDS, says="checked_feed")
TestNeverCloses = suite(
    broken.NeverCloses, "closed_session_refuses_to_run", says="after `with` was left"
)
TestEmptyEvidence = suite(broken.EmptyEvidence, "evidence_is_filled", says="evidence.version")
TestAnyDevice = suite(broken.AnyDevice, "unknown_device_is_a_usage_error", says="lists the devices")
TestNeedsSignature = suite(broken.NeedsSignature, "the_file_alone_opens", says="the file alone")
TestRaisesOSError = suite(
    broken.RaisesOSError, "file_that_is_none_is_refused", says="missing file raised FileNotFound"
)
TestCrashesOnDamage = suite(
    broken.CrashesOnDamage, "damaged_file_is_refused", says="killed by SIGSEGV"
)
TestOpensDamaged = suite(
    broken.OpensDamaged, "damaged_file_is_refused", says="must raise InputFileError"
)


class TestUntrueLimits(Suite):
    """Limits that do not hold, and one that no check or model bears."""

    target = broken.Replay
    lacks = {"lstm": "no recurrent layers", "unett": "misspelt"}  # noqa: RUF012
    red = ("values_are_the_models[lstm-fp32]", "limits_are_declared_by_known_names")
    says = "lacks"
