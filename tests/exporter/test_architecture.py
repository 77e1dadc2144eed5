"""An architecture specification becomes a module, or a usage error that says what to write."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from isomorph.errors import UsageError
from isomorph.exporter.architecture import Architecture, build
from torch import nn

SCRIPT = """\
import torch
from torch import nn
import a_package_only_training_needs

WIDTH = 12
HIDDEN = WIDTH * 2


def block(n):
    return nn.Sequential(nn.Linear(n, HIDDEN), nn.ReLU())


class MLP(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = block(WIDTH)

    def forward(self, x):
        return self.body(x)


model = MLP()
optimizer = torch.optim.AdamW(model.parameters())
for step in range(10):
    open("trained_again", "w").close()
torch.save(model.state_dict(), "model.pt")
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    return tmp_path


def test_a_package_callable_with_literal_arguments() -> None:
    module = build("torch.nn:Linear(3, out_features=4, bias=False)")

    assert isinstance(module, nn.Linear)
    assert (module.in_features, module.out_features, module.bias) == (3, 4, None)


def test_a_file_with_a_class_a_function_and_an_instance(here: Path) -> None:
    (here / "net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Linear):\n"
        "    def __init__(self, n=2):\n"
        "        super().__init__(n, n)\n"
        "def make(n):\n"
        "    return Net(n)\n"
        "ready = Net(7)\n"
    )

    assert build("net.py:Net").in_features == 2
    assert build("net.py:make(n=5)").in_features == 5
    assert build("net.py:ready").in_features == 7
    assert build("net:ready").in_features == 7  # the current directory is importable


def test_a_file_imports_its_siblings_and_shadows_no_module(here: Path) -> None:
    folder = here / "project"
    folder.mkdir()
    (folder / "helper_of_net.py").write_text("SIZE = 6\n")
    (folder / "json.py").write_text(
        "from torch import nn\nfrom helper_of_net import SIZE\n"
        "def make():\n    return nn.Linear(SIZE, 1)\n"
    )
    import json

    assert build("project/json.py:make").in_features == 6
    assert sys.modules["json"] is json


def test_torchvision_and_timm_build_without_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_network(*_: object, **__: object) -> None:
        raise AssertionError("tried to download")

    monkeypatch.setattr("torch.hub.load_state_dict_from_url", no_network)
    monkeypatch.setattr("socket.socket.connect", no_network)

    assert build("torchvision:resnet18(num_classes=10)").fc.out_features == 10
    assert build("torchvision:fcn_resnet50", device="meta") is not None
    assert build("timm:resnet18(num_classes=10, pretrained=True)").fc.out_features == 10


def test_meta_builds_without_memory() -> None:
    module = build("torchvision:resnet18", device="meta")

    assert all(parameter.is_meta for parameter in module.parameters())


def test_building_leaves_the_random_state_alone() -> None:
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    build("torch.nn:Linear(3, 3)")

    assert torch.equal(torch.rand(3), expected)


@pytest.mark.parametrize(
    ("spec", "said", "hint"),
    [
        ("resnet18", "not an architecture", "torchvision:NAME"),
        ("torchvision:resnet81", "no model resnet81", "resnet18"),
        ("timm:resnet_18", "no model resnet_18", "resnet18"),
        ("torch.nn:Linaer", "no Linaer", "Linear"),
        ("torch.nm:Linear", "no module torch.nm", "PYTHONPATH"),
        ("nowhere.py:Net", "does not exist", "current directory"),
        ("torch.nn:Linear", "TypeError", "NAME=VALUE"),
        ("torch.nn:Linear(3, open('x'))", "not a literal", "literals|numbers"),
        ("torch.nn:Linear(3", "cannot be read", "literals"),
        ("torch.nn:Linear(3)(4)", "not a single call", "callable"),
        ("math:pi", "is a float", "class"),
        ("math:floor(2.5)", "returned a int", "function"),
    ],
)
def test_a_bad_specification_says_what_to_write(spec: str, said: str, hint: str) -> None:
    with pytest.raises(UsageError) as refused:
        build(spec)

    assert said in refused.value.message
    assert refused.value.hint
    assert any(part in refused.value.hint for part in hint.split("|"))


def test_a_factory_that_raises_shows_its_error_and_line(here: Path) -> None:
    (here / "net.py").write_text(
        "from torch import nn\n\nclass Net(nn.Module):\n    def __init__(self):\n"
        "        super().__init__()\n        raise ValueError('width must be even')\n"
    )

    with pytest.raises(UsageError) as refused:
        build("net.py:Net")

    assert "ValueError: width must be even" in refused.value.message
    assert "net.py:6" in refused.value.message
    assert str(here) not in refused.value.message


def test_a_file_that_does_not_parse_or_run_is_a_usage_error(here: Path) -> None:
    (here / "bad.py").write_text("class Net(\n")
    (here / "fails.py").write_text("x = 1 / 0\nclass Net: pass\n")
    (here / "leaves.py").write_text("import sys\nsys.exit(3)\n")

    for name, said in (("bad", "not valid Python"), ("fails", "ZeroDivision"), ("leaves", "Exit")):
        with pytest.raises(UsageError, match=said):
            build(f"{name}.py:Net")


# Training scripts without a main guard


def test_a_training_script_does_not_train_again(here: Path) -> None:
    (here / "train.py").write_text(SCRIPT)

    architecture = Architecture("train.py:MLP")
    module = architecture.build()

    assert module.body[0].in_features == 12
    assert module.body[0].out_features == 24
    assert not (here / "trained_again").exists()
    assert not (here / "model.pt").exists()
    assert architecture.notes == (
        "only the parts of train.py that MLP needs were run, not its training",
    )


def test_an_instance_in_a_training_script_is_taken_untrained(here: Path) -> None:
    (here / "train.py").write_text(SCRIPT)

    assert build("train.py:model").body[0].in_features == 12
    assert not (here / "trained_again").exists()


@pytest.mark.parametrize(
    "work",
    [
        "for _ in range(2):\n    open('trained_again', 'w')",
        "while not done:\n    open('trained_again', 'w')",
        "with open('trained_again', 'w'):\n    pass",
        "def train():\n    open('trained_again', 'w')\ntrain()",
        "def train():\n    open('trained_again', 'w').backward()\nhistory = train()",
        "if True:\n    for _ in range(2):\n        open('trained_again', 'w')",
        "try:\n    while 1:\n        open('trained_again', 'w')\nexcept OSError:\n    pass",
    ],
)
def test_every_kind_of_work_is_left_out(work: str, here: Path) -> None:
    (here / "train.py").write_text(f"from torch import nn\nNet = nn.ReLU\ndone = False\n{work}\n")

    assert isinstance(build("train.py:Net"), nn.ReLU)
    assert not (here / "trained_again").exists()


def test_a_file_with_a_main_guard_runs_whole(here: Path) -> None:
    (here / "net.py").write_text(
        "from torch import nn\nNet = nn.ReLU\nregistered = []\nregistered.append(Net)\n"
        "if __name__ == '__main__':\n    for _ in range(3):\n        raise SystemExit\n"
    )

    architecture = Architecture("net.py:Net")

    assert architecture.notes == ()
    assert architecture.module is not None
    assert architecture.module.registered == [nn.ReLU]


def test_a_script_does_not_see_our_command_line(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["isomorph", "export", "--width", "9"])
    (here / "train.py").write_text(
        "import argparse\nfrom torch import nn\n"
        "parser = argparse.ArgumentParser()\nparser.add_argument('--width', type=int, default=3)\n"
        "args = parser.parse_args()\n"
        "def make():\n    return nn.Linear(args.width, 1)\n"
    )

    assert build("train.py:make").in_features == 3


def test_what_builds_up_a_needed_value_is_kept(here: Path) -> None:
    (here / "train.py").write_text(
        "from torch import nn\nlayers = []\nlayers.append(nn.ReLU())\n"
        "def make():\n    return nn.Sequential(*layers)\n"
        "for _ in range(2):\n    open('trained_again', 'w')\n"
    )

    assert len(build("train.py:make")) == 1


def test_a_slice_that_fails_says_why(here: Path) -> None:
    (here / "train.py").write_text(
        "from torch import nn\nimport missing_package_here\n"
        "class Net(nn.Module):\n    size = missing_package_here.SIZE\n"
        "for _ in range(2):\n    open('trained_again', 'w')\n"
    )

    with pytest.raises(UsageError) as refused:
        build("train.py:Net")

    assert "trains when imported" in refused.value.message
    assert "missing_package_here" in refused.value.message
    assert "__main__" in (refused.value.hint or "")


# Imports that fail

READS = {
    "assigned": "CFG = json.load(open('cfg.json'))",
    "with": "with open('cfg.json') as file:\n    CFG = json.load(file)",
    "with a call for its effect": "CFG = json.load(open('cfg.json'))\nabsent_one.init(CFG)",
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("imports", ["import absent_one\nimport json", "import absent_one, json"])
def test_a_failing_import_that_the_model_does_not_use_is_left_out(
    imports: str, read: str, here: Path
) -> None:
    (here / "cfg.json").write_text('{"size": 5}')
    (here / "net.py").write_text(
        f"{imports}\nfrom torch import nn\n{READS[read]}\n"
        "class Net(nn.Linear):\n    def __init__(self):\n        super().__init__(CFG['size'], 2)\n"
    )

    architecture = Architecture("net.py:Net")

    assert architecture.build().in_features == 5
    assert architecture.notes[0].startswith("only the parts of net.py that Net needs were run")


@pytest.mark.parametrize(
    "work",
    [
        "with open('trained_again', 'w') as log:\n    SIZE = 5\n    log.write('x')",
        "with nn.ReLU() as net:\n    SIZE = net.fit(5)",
    ],
)
def test_a_with_that_does_more_than_read_is_not_run(work: str, here: Path) -> None:
    (here / "train.py").write_text(
        f"from torch import nn\n{work}\ndef make():\n    return nn.Linear(SIZE, 2)\n"
    )

    with pytest.raises(UsageError, match="'SIZE' is not defined"):
        build("train.py:make")
    assert not (here / "trained_again").exists()


def test_what_stops_the_needed_part_is_told_and_not_the_import_beside_it(here: Path) -> None:
    (here / "net.py").write_text(
        "import absent_one\nfrom torch import nn\nSIZE = int(open('absent.txt').read())\n"
        "class Net(nn.Linear):\n    def __init__(self):\n        super().__init__(SIZE, 2)\n"
    )

    with pytest.raises(UsageError, match=r"FileNotFoundError.*absent\.txt.*\(net\.py:3\)"):
        build("net.py:Net")


def test_a_failing_import_that_the_model_uses_is_told(here: Path) -> None:
    (here / "net.py").write_text(
        "import absent_one\nfrom torch import nn\nclass Net(absent_one.Base):\n    pass\n"
    )

    with pytest.raises(UsageError, match="absent_one") as refused:
        build("net.py:Net")
    assert "install absent_one" in (refused.value.hint or "")


# Names that are not there


@pytest.mark.parametrize("spec", ["train.py:MPL", "train.py:MLPP(16)", "train.py:mlp"])
def test_a_typo_is_corrected_though_the_script_is_run_in_part(spec: str, here: Path) -> None:
    (here / "train.py").write_text(SCRIPT)

    with pytest.raises(UsageError) as refused:
        build(spec)

    assert refused.value.hint == "did you mean MLP?"


@pytest.mark.parametrize("spec", ["train.py", "train.py:", "train.py(16)"])
def test_a_file_without_a_class_lists_what_it_defines_and_runs_nothing(
    spec: str, here: Path
) -> None:
    (here / "train.py").write_text("open('ran', 'w').close()\n" + SCRIPT)

    with pytest.raises(UsageError, match=":Class is missing") as refused:
        build(spec)

    assert (refused.value.hint or "").endswith("train.py:Class; train.py defines MLP, block")
    assert not (here / "ran").exists()


def test_a_name_made_by_the_work_is_reported(here: Path) -> None:
    (here / "train.py").write_text("from torch import nn\nfor _ in '1':\n    net = nn.ReLU()\n")

    with pytest.raises(UsageError, match="has no net"):
        build("train.py:net")


def test_looking_up_a_class_imports_neither_torchvision_nor_timm() -> None:
    code = (
        "import sys\nfrom isomorph.exporter.architecture import build\n"
        "build('torch.nn:Linear(2, 2)')\n"
        "assert not {'torchvision', 'timm'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
