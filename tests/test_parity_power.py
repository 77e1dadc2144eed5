"""The study of detection power: what it holds, that it judges blindly, and a small part of it."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"


@pytest.fixture
def power(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    import power.architectures
    import power.exact
    import power.faults
    import power.results
    import power.rules
    import power.table

    return power


def imported(file: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.add(node.module or "")
        elif isinstance(node, ast.ImportFrom):
            # Nothing outside the folder, such as `from ..sizes import`.
            assert node.level == 1, f"{file.name} imports from {'.' * node.level}{node.module}"
    return found


@pytest.mark.parametrize("package", ["faults", "exact"])
def test_what_breaks_and_sizes_knows_nothing_of_how_parity_is_judged(package):
    files = list((BENCHMARKS / "power" / package).glob("*.py"))
    assert len(files) > 2
    for file in files:
        assert not {name for name in imported(file) if name.split(".")[0] == "isomorph"}


def test_nor_does_it_load_it():
    script = (
        "import sys, power.faults, power.exact; "
        "print([name for name in sys.modules if name.split('.')[0] == 'isomorph'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        cwd=BENCHMARKS,
        env={**os.environ, "PYTHONPATH": str(BENCHMARKS)},
    )
    assert done.stdout.strip() == "[]"


def test_the_study_is_as_wide_as_it_says(power):
    architectures, kinds = power.architectures.ARCHITECTURES, power.faults.KINDS
    assert len(architectures) >= 40
    assert len(kinds) >= 25
    held = [n for n in (*architectures, *kinds) if power.architectures.is_held_out(n)]
    assert len(held) > 0.3 * (len(architectures) + len(kinds))


def small_file(operator: str = "Gelu", **attributes: object) -> bytes:
    weight = np.arange(12, dtype=np.float32).reshape(3, 4) / 7
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["y"], name="product"),
            helper.make_node(operator, ["y"], ["z"], name="act", **attributes),
        ],
        "small",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, [2, 3])],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [2, 4])],
        [numpy_helper.from_array(weight, "w")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)])
    onnx.checker.check_model(model)
    data: bytes = model.SerializeToString()
    return data


def test_a_fault_changes_one_node_and_is_the_same_every_time(power):
    data = small_file()
    (first,), (second,) = (power.faults.inject(data, "small", "gelu_form", 1) for _ in range(2))
    assert first == second
    assert first.node_name == "act"
    assert first.node_outputs == ("z",)
    assert power.faults.inject(data, "small", "rounding_mode") == []


def test_graded_faults_are_put_at_one_place_in_many_sizes(power):
    found = power.faults.inject(small_file(), "small", "weight_gain", 6)
    assert len(found) == 6
    assert len({fault.description for fault in found}) > 1


def test_the_evaluator_computes_in_float64_and_only_what_a_fault_reaches(power):
    data = small_file()
    model = power.exact.Model(data)
    x = np.random.default_rng(0).standard_normal((2, 3)).astype(np.float32)
    values = model.run({"x": x})
    weight = torch.arange(12, dtype=torch.float32).reshape(3, 4).div(7).double()
    right = torch.nn.functional.gelu(torch.from_numpy(x).double() @ weight)
    assert torch.allclose(values["z"], right, rtol=1e-6, atol=1e-7)
    (fault,) = power.faults.inject(data, "small", "gelu_form", 1)
    changed = power.exact.Model(fault.data).run({"x": x}, model, values)
    assert changed["y"] is values["y"]
    assert not torch.equal(changed["z"], values["z"])


@pytest.mark.parametrize(
    ("size", "band"), [(0.99, 0), (1, 1), (3, 2), (10, 3), (30, 4), (float("inf"), 4)]
)
def test_bands(power, size, band):
    assert power.results.band_of(size) == band


def test_the_rules_of_others(power):
    right = {"y": np.array([1.0, 100.0], np.float32)}

    def passing(error):
        got = {"y": (right["y"] + np.array(error, np.float32)).astype(np.float32)}
        return {name for name, passed in power.rules.accepted_by(got, right).items() if passed}

    assert passing([0, 0]) == set(power.rules.RULES)
    assert "1e-5, absolute or relative" in passing([0.9e-5, 9e-4])
    assert passing([5e-5, 0]) == {
        "allclose(rtol=1e-3, atol=1e-4)",
        "PSNR > 30 dB",
        "cosine >= 0.997",
    }
    assert passing([0, 50]) == {"cosine >= 0.997"}
    assert not any(power.rules.accepted_by(None, right).values())


@pytest.fixture(scope="module")
def sampled(tmp_path_factory):
    """Rows of the fixed sample, as `--json` writes them."""
    file = tmp_path_factory.mktemp("power") / "rows.json"
    done = subprocess.run(
        [sys.executable, BENCHMARKS / "parity_power.py", "--sample", "--json", file],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(file.read_text()), done.stdout


def test_a_sample_of_the_study(sampled):
    results, text = sampled
    faults = [row for result in results for row in result["faults"]]
    correct = [row for result in results for row in result["correct"]]
    assert len(faults) > 80
    assert all(row["verdict"] == "pass" for row in correct)
    large = [row for row in faults if row["size"] is None or row["size"] >= 30]
    assert len(large) > 40
    assert all(row["verdict"] == "fail" for row in large)
    # What no rule may report is not larger than the noise; it is told apart.
    assert max(result["gap"] for result in results) < 1
    assert "| noise floor | 0 |" in text


def test_the_broken_operators_of_the_sample_are_named(sampled):
    results, _ = sampled
    tried = [r for result in results for r in result["faults"] if r["located"] is not None]
    assert len(tried) >= 6
    assert {row["located"] for row in tried} <= {"single", "group"}


def test_the_page_holds_the_table_of_the_whole_study():
    page = (ROOT / "docs" / "parity.md").read_text(encoding="utf-8")
    table = page.partition("<!-- parity_power:begin -->")[2].partition("<!-- parity_power:end -->")[
        0
    ]
    assert "`python benchmarks/parity_power.py --write`" in table
    assert "| noise floor | 0 |" in table


def test_a_page_without_marks_is_not_written(power, tmp_path):
    page = tmp_path / "page.md"
    page.write_text("nothing\n")
    with pytest.raises(SystemExit, match="lacks the marks"):
        power.table.put_into(page, "text")
    assert page.read_text() == "nothing\n"
