"""What the code uses of TensorRT exists in the releases that it is written for.

11.4 and 10.16 as recorded from their bindings (`record_api.py`), which cannot be run here; and
TensorRT for RTX as it is installed.
"""

from __future__ import annotations

import json
import runpy
from functools import cache
from pathlib import Path
from typing import Any, get_args, get_type_hints

import pytest
from isomorph.targets import tensorrt as package
from isomorph.targets.tensorrt.evaluate.table import OPERATORS
from isomorph.targets.tensorrt.options import RtxOptions, TensorRtOptions

HERE = Path(__file__).parent
SOURCE = Path(package.__file__).parent
RECORD = runpy.run_path(str(HERE / "record_api.py"))
USES = runpy.run_path(str(HERE / "api_uses.py"))
MODULE = USES["MODULE"]

# Variables and attributes that hold objects of TensorRT, by file.
ROOTS = {
    "build.py": {
        **{"module": MODULE, "network": "INetworkDefinition"},
        **{"config": "IBuilderConfig", "builder": "Builder", "cache": "ITimingCache"},
    },
    "parse.py": {"module": MODULE, "parser": "OnnxParser"},
    "failures.py": {"network": "INetworkDefinition"},
    "logger.py": {"module": MODULE, "severity": "Severity"},
    "running.py": {
        **{"module": MODULE, "_module": MODULE, "_runtime": "Runtime"},
        **{"_engine": "ICudaEngine", "_context": "IExecutionContext"},
    },
    "network.py": {
        **{"module": MODULE, "network": "INetworkDefinition"},
        **{"layer": "ILayer", "tensor": "ITensor"},
    },
    "weights.py": {"module": MODULE, "weights": "Weights"},
    "build_engine.py": {
        **{"trt": MODULE, "config": "IBuilderConfig", "severity": "Severity"},
        **{"parser": "OnnxParser"},
    },
}
# Only TensorRT for RTX has these; the code asks first, or is told to by an RTX-only option.
RTX_ONLY = {
    "IBuilderConfig.num_compute_capabilities",
    "IBuilderConfig.set_compute_capability",
    "(module).ComputeCapability",
    "Runtime.get_engine_validity",
    "(module).EngineInvalidityDiagnostics",
}
# Every class and enum has these.
GENERAL = {"name", "value", "__members__", "__init__", "__class__", "__name__", "__version__"}
RELEASES = ("11.4", "10.16", "rtx")


@cache
def recorded(kind: str, release: str) -> dict[str, Any]:
    if release == "rtx":
        import tensorrt_rtx

        made = RECORD["surface" if kind == "api" else "calls"](tensorrt_rtx)
    else:
        made = json.loads((HERE / f"tensorrt-{kind}-{release}.json").read_text(encoding="utf-8"))
    if kind == "api":
        made["Severity"] = made["ILogger"]
    return made


def find(name: str, roots: dict[str, str], path: Path | None = None) -> Any:
    finder = USES["Finder"](roots, recorded("calls", "rtx"), recorded("api", "rtx"))
    finder.read(path or next(SOURCE.rglob(name)))
    return finder


@cache
def found() -> dict[str, Any]:
    return {name: find(name, roots) for name, roots in ROOTS.items()}


def uses() -> list[Any]:
    return [use for finder in found().values() for use in finder.uses]


def lacking(release: str, all_uses: list[Any]) -> dict[str, str]:
    """Uses that a release does not have, with where they are; their arguments included."""
    surface, calls = recorded("api", release), recorded("calls", release)
    wrong = {}
    for use in all_uses:
        key = f"{use.owner}.{use.member}"
        if use.owner == MODULE:
            known = use.member in surface or use.member in calls
        else:
            known = use.member in surface.get(use.owner, ())
        if not known and use.member not in GENERAL:
            wrong[key] = use.where
        elif use.call is not None and known:
            overloads = calls.get(use.member if use.owner == MODULE else key, [])
            if not any(fits(parameters, *use.call) for parameters, _ in overloads):
                wrong[f"{key}{use.call}"] = use.where
    return wrong


def fits(parameters: list[str], count: int, names: tuple[str, ...]) -> bool:
    """Whether a call with `count` arguments in order and those named is one of the signature."""
    left = parameters[count:]
    needed = {name for name in left if not name.endswith("=")}
    allowed = {name.removesuffix("=") for name in left}
    return count <= len(parameters) and needed <= set(names) <= allowed


@pytest.mark.parametrize("release", RELEASES)
def test_what_is_used_exists_and_is_called_as_declared(release):
    wrong = lacking(release, uses())
    own = set() if release == "rtx" else RTX_ONLY
    called = "IBuilderConfig.set_compute_capability"
    assert {key for key in wrong if not key.startswith(called)} == own - {called}


def test_the_search_finds_what_it_should():
    keys = {f"{use.owner}.{use.member}" for use in uses()}
    assert keys >= {
        *("Builder.build_serialized_network", "ITimingCache.serialize", "BuilderFlag.TF32"),
        *("IOptimizationProfile.set_shape", "ParserError.node_operator", "ILayer.metadata"),
        *("IExecutionContext.execute_async_v3", "ICudaEngine.device_memory_size_v2"),
        *("OnnxParserRefitter.refit_from_file", "EngineStat.STRIPPED_WEIGHTS_SIZE"),
        *("(module).IOutputAllocator", "(module).init_libnvinfer_plugins", "TensorFormat.LINEAR"),
        *("EngineInspector.get_engine_information", "ITensor.dtype", *RTX_ONLY),
    }
    for name, finder in found().items():
        assert finder.met == set(ROOTS[name]), f"{name}: a root that is not there"


WRONG = """
def build(module, config, logger):
    builder = module.Builder(logger)
    flags = module.BuilderFlag
    config.set_flag(flags.FP16)
    profile = builder.create_optimization_profile()
    profile.set_shape("x", (1,), (1,))
    config.set_timing_cache(None, ignore_mismatches=False)
    getattr(flags, "INT8")
    for layer in [builder.create_network().get_layer(0)]:
        pass
    builder.platform_has_fast_fp16
    module.init_plugins(logger)
"""


def test_what_is_not_in_11_is_seen(tmp_path):
    path = tmp_path / "wrong.py"
    path.write_text(WRONG)
    finder = find("wrong.py", {"module": MODULE, "config": "IBuilderConfig"}, path)
    wrong = set(lacking("11.4", finder.uses))
    assert wrong == {
        *("BuilderFlag.FP16", "BuilderFlag.INT8", "Builder.platform_has_fast_fp16"),
        "IOptimizationProfile.set_shape(3, ())",
        "IBuilderConfig.set_timing_cache(1, ('ignore_mismatches',))",
        "(module).init_plugins",
    }
    assert "BuilderFlag.FP16" not in lacking("10.16", finder.uses)


# Attributes of our own objects and others' that some class of TensorRT has too.
NOT_TENSORRTS = {
    "build.py": {"flags", "min", "opt", "max"},
    "parse.py": {"node"},
    "failures.py": {"flags"},
    "logger.py": {"log", "DEBUG", "INFO", "WARNING", "ERROR"},
    "running.py": {"data", "destroy", "nbytes", "reset", "shape"},
    "network.py": {"dtype"},  # of `Weights`
    "weights.py": {"data", "dtype", "size", "type"},
    "build_engine.py": {"code", "dtype", "read", "shape", "write"},
}
PYTHONS = {name for kind in (list, dict, set, str, bytes) for name in dir(kind)}


def test_no_file_is_forgotten():
    """A file that has the module at hand is read, unless it only hands it on."""
    handing_on = {"engine.py", "evaluating.py"}
    having = {path.name for path in SOURCE.rglob("*.py") if USES["has_module"](path)}
    assert having == handing_on | set(ROOTS)


def test_nothing_of_tensorrts_escapes_the_search():
    """A member's name on an object whose type is not known may be TensorRT's after all."""
    members = {member for names in recorded("api", "11.4").values() for member in names}
    escaped = {}
    for name, finder in found().items():
        loose = {item.name for item in finder.loose} & members - PYTHONS - GENERAL
        if loose:
            escaped[name] = loose
    assert escaped == NOT_TENSORRTS


@pytest.mark.parametrize("release", ["11.4", "10.16"])
def test_options_name_flags_and_levels_that_exist(release):
    surface = recorded("api", release)
    wishes = {"tf32": True, "version_compatible": True, "refit": True, "strip_plan": True}
    flags = TensorRtOptions(**wishes).settings.flags
    assert len(flags) == len(wishes)
    assert set(flags) <= set(surface["BuilderFlag"])
    levels = get_args(get_type_hints(TensorRtOptions)["hardware_compatible"])
    assert {level.upper() for level in levels} <= set(surface["HardwareCompatibilityLevel"])


def test_options_of_rtx_name_flags_and_gpus_that_exist():
    settings = RtxOptions(tf32=True).settings
    assert set(settings.flags) <= set(recorded("api", "rtx")["BuilderFlag"])
    known = set(recorded("api", "rtx")["ComputeCapability"])
    assert set(settings.compute_capabilities) <= known


# Words in capitals that are not TensorRT's: parts of messages, and beginnings of members.
NOT_ENUM_MEMBERS = {"CUDA_SUCCESS", "EXPLICIT", "SM"}


def test_words_in_capitals_are_members_of_enums():
    paths = [path for path in SOURCE.rglob("*.py") if path.parent.name != "deferred"]
    words = {word for path in paths for word in USES["upper_strings"](path)}
    surfaces = [recorded("api", release).values() for release in ("11.4", "rtx")]
    members = {member for surface in surfaces for names in surface for member in names}
    assert words - members == NOT_ENUM_MEMBERS
    assert words >= {"BF16", "VERSION_MISMATCH", "GELU_TANH", "CONDITIONAL_INPUT"}


# Attributes that layers of some releases do not have, and which the evaluator does not meet there.
LACKING = {"10.16": {"causal_kind"}}


@pytest.mark.parametrize("release", RELEASES)
def test_the_evaluators_layers_and_attributes_exist(release):
    surface = recorded("api", release)
    layers = [*surface] if release == "rtx" else [n for n in surface if n.startswith("I")]
    members = {member for name in layers for member in surface[name]}
    read = {n for path in SOURCE.glob("evaluate/*.py") for n in USES["layer_attributes"](path)}
    assert len(read) > 40
    assert read - members == LACKING.get(release, set())
    assert set(OPERATORS) <= set(surface["LayerType"])


def test_the_stand_in_has_only_names_that_the_real_module_has(fake_cuda, fake_tensorrt):
    for name, release in (("tensorrt", "11.4"), ("tensorrt_rtx", "rtx")):
        surface = recorded("api", release)
        module = fake_tensorrt["make"](fake_cuda, name)
        for item, value in vars(module).items():
            if isinstance(value, type):
                public = {member for member in vars(value) if not member.startswith("_")}
                assert public <= {*surface[item], "Severity"}, item
        assert set(RECORD["surface"](module)) - set(surface) == set()


def test_the_records_are_of_the_same_form():
    """11.4 was recorded before the script was; classes that both products have look alike."""
    recorded_11, rtx = recorded("api", "11.4"), recorded("api", "rtx")
    assert recorded_11["IOutputAllocator"] == rtx["IOutputAllocator"] == []
    assert recorded_11["ITimingCache"] == rtx["ITimingCache"]
    assert recorded_11["TensorIOMode"] == rtx["TensorIOMode"]
