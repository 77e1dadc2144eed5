"""Every built-in format passes the suite that other packages' targets must pass."""

from __future__ import annotations

from typing import Any

from isomorph.targets import registry
from isomorph.targets.conformance import TargetConformance

# What a format cannot do, as its page in docs/ says too.
LIMITS: dict[str, dict[str, Any]] = {
    "aotinductor": {
        "waived": {
            f"values_are_the_models[{model}-{precision}]": "a compilation takes 20 s, and conv and "
            "transformer are judged at every precision"
            for model in ("lstm", "unet", "embedding")
            for precision in ("fp16", "bf16")
        }
    },
    "litert": {"dynamic": False},
    # Its engines are built on a GPU that CI has not: tests/gpu.
    "tensorrt": {"elsewhere": True},
    "onnx": {"unrun": {"bf16": "ONNX Runtime has no bfloat16 kernels for a CPU"}},
}

# One class for each format, so that one that is added is tried without a word here.
for _name in registry.names():
    if LIMITS.get(_name, {}).get("elsewhere"):
        continue
    _class = f"Test{_name.title()}"
    globals()[_class] = type(
        _class,
        (TargetConformance,),
        {"target": _name, "__module__": __name__, **LIMITS.get(_name, {})},
    )
