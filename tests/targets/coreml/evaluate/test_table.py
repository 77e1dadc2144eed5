"""Which operators the evaluator computes, against those that coremltools can write."""

from __future__ import annotations

import ast
from functools import lru_cache
from pathlib import Path

import pytest
from isomorph.targets.coreml.evaluate.table import OPERATORS
from isomorph.targets.coreml.quiet import coremltools

NOT_COMPUTED = {
    "_const_symbolic": "a name of coremltools for shapes it does not know; never in a file",
    "conv_quantized": "documented as experimental; nothing of coremltools writes it",
}
"""Operators of the registry that the evaluator refuses, each with its reason."""

BESIDE_THE_REGISTRY = {"write_state"}
"""What coremltools writes for its own `coreml_update_state`, and has no operator of that name."""

EMITTERS = ("frontend/torch", "mil/passes", "backend/mil")
"""Folders of coremltools whose code makes the operators of a program converted from torch."""


def registered() -> set[str]:
    coremltools()
    from coremltools.converters.mil.mil.ops.registry import SSAOpRegistry

    return set(SSAOpRegistry.core_ops)


@lru_cache(maxsize=1)
def emittable() -> set[str]:
    """Names in `mb.NAME` wherever coremltools makes or lowers operators, that the registry has."""
    root = Path(coremltools().__file__).parent / "converters" / "mil"
    found: set[str] = set()
    for folder in EMITTERS:
        for file in (root / folder).rglob("*.py"):
            if "test" not in file.name and "test" not in file.parts:
                found |= builders(file.read_text(encoding="utf-8"))
    return found & registered()


def builders(source: str) -> set[str]:
    return {
        node.attr
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id in ("mb", "Builder")
    }


def test_every_operator_that_coremltools_can_emit_is_computed(
    capsys: pytest.CaptureFixture[str],
) -> None:
    wanted, all_ = emittable(), registered()
    missing = wanted - set(OPERATORS) - set(NOT_COMPUTED)
    with capsys.disabled():
        print(
            f"\nCore ML operators computed: {len(wanted & set(OPERATORS))} of {len(wanted)} "
            f"that the torch front end and the passes emit, "
            f"{len(all_ & set(OPERATORS))} of {len(all_)} in the registry"
        )
    assert not missing, f"no function computes {sorted(missing)}"


def test_every_operator_of_the_registry_is_computed_or_left_out_for_a_reason() -> None:
    assert registered() - set(OPERATORS) == set(NOT_COMPUTED)


def test_no_operator_is_computed_that_does_not_exist() -> None:
    assert set(OPERATORS) - registered() == BESIDE_THE_REGISTRY


def test_the_scan_finds_what_it_should() -> None:
    found = emittable()
    assert len(found) > 100
    assert {"conv", "linear", "while_loop", "topk", "read_state", "concat"} <= found
    assert builders("x = mb.add(x=1, y=mb.sub(x=a))\ngetattr(mb.mul, 'x')") == {"add", "sub", "mul"}


def test_families_do_not_overwrite_each_other() -> None:
    from importlib import import_module

    package = "isomorph.targets.coreml.evaluate"
    folder = Path(import_module(package).__file__ or "").parent
    owners: dict[str, list[str]] = {}
    for file in folder.glob("*.py"):
        table = getattr(import_module(f"{package}.{file.stem}"), "OPERATORS", {})
        for name, function in table.items():
            if function.__module__ == f"{package}.{file.stem}":
                owners.setdefault(name, []).append(file.stem)
    assert {name: files for name, files in owners.items() if len(files) > 1} == {}
