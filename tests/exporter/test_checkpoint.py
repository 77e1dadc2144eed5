"""Every way people save a model loads with exactly the saved weights, or says why not."""

from __future__ import annotations

import gc
import subprocess
import sys
import textwrap
import zipfile
from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from isomorph.errors import InputFileError, UsageError
from isomorph.exporter.checkpoint import load_checkpoint
from torch import nn

NETWORKS = '''
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, classes=3, width=4):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(1, width, 3), nn.BatchNorm2d(width), nn.ReLU())
        self.head = nn.Linear(width, classes)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(5, 4)
        self.out = nn.Linear(4, 5, bias=False)
        self.out.weight = self.embed.weight

    def forward(self, ids):
        return self.out(self.embed(ids))


class Computed(nn.Module):
    """Holds tensors that no state_dict has."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("table", torch.arange(4.0) * 2, persistent=False)
        self.plain = torch.arange(4.0) + 1
        self.nested = {"list": [torch.full((4,), 3.0)]}
        scale = torch.full((4,), 0.5)
        self.closure = lambda x: x * scale

    def forward(self, x):
        return self.closure(self.linear(x) + self.table * self.plain + self.nested["list"][0])


class Listed(nn.Module):
    """Reads tensor values while it is built, which the meta device cannot."""

    def __init__(self):
        super().__init__()
        rates = [x.item() for x in torch.linspace(0, 1, 3)]
        self.layers = nn.ModuleList(nn.Linear(2, 2) for rate in rates if rate < 0.7)

    def forward(self, x):
        for layer in self.layers:
            x = layer(x)
        return x


class Projected(nn.Module):
    def __init__(self, seeded):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        generator = torch.Generator().manual_seed(7) if seeded else None
        projection = torch.randn(4, 4, generator=generator) * 2
        self.register_buffer("projection", projection, persistent=False)

    def forward(self, x):
        return self.linear(x) @ self.projection


class Normed(nn.Module):
    def __init__(self, old=True):
        super().__init__()
        if old:
            self.conv = torch.nn.utils.weight_norm(nn.Conv1d(2, 2, 3))
        else:
            self.conv = torch.nn.utils.parametrizations.weight_norm(nn.Conv1d(2, 2, 3))

    def forward(self, x):
        return self.conv(x)


class Wrapper(nn.Module):
    def __init__(self):
        super().__init__()
        self.model = Net()

    def forward(self, x):
        return self.model(x)
'''


@pytest.fixture
def networks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    (tmp_path / "networks.py").write_text(NETWORKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("networks", None)
    import networks

    yield networks
    sys.modules.pop("networks", None)


def trained(module: nn.Module) -> nn.Module:
    """Weights that no initialisation gives."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for tensor in (*module.parameters(), *module.buffers()):
            if tensor.is_floating_point():
                tensor.copy_(torch.rand(tensor.shape, generator=generator) + 0.1)
    return module.eval()


def same(loaded: nn.Module, module: nn.Module, *shape: int) -> bool:
    x = torch.rand(shape, generator=torch.Generator().manual_seed(5))
    return torch.equal(loaded(x), module(x))


@pytest.fixture
def net(networks: Any) -> nn.Module:
    return trained(networks.Net())


def prefixed(state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    return OrderedDict((prefix + key, value) for key, value in state.items())


def test_a_state_dict_loads_in_eval_mode_without_gradients(net: nn.Module) -> None:
    torch.save(net.state_dict(), "model.pt")

    loaded = load_checkpoint("model.pt", model="networks:Net")

    assert loaded.kind == "state_dict"
    assert loaded.architecture == "networks:Net"
    assert loaded.notes == ()
    assert same(loaded.module, net, 2, 1, 8, 8)
    assert not loaded.module.training
    assert not any(parameter.requires_grad for parameter in loaded.module.parameters())


@pytest.mark.parametrize("entry", ["model", "state_dict", "net", "ema", "my_own_name"])
def test_a_training_dict_is_searched_by_shape(entry: str, net: nn.Module) -> None:
    optimizer = torch.optim.AdamW(net.parameters())
    net(torch.rand(1, 1, 8, 8)).sum().backward()
    optimizer.step()
    net.zero_grad()
    torch.save(
        {"epoch": 3, "optimizer": optimizer.state_dict(), "nested": {entry: net.state_dict()}},
        "model.pt",
    )

    loaded = load_checkpoint("model.pt", model="networks:Net")

    assert loaded.kind == "training_state"
    assert same(loaded.module, net, 2, 1, 8, 8)
    assert f"took entry 'nested.{entry}' of the file" in loaded.notes


def test_of_two_entries_that_fit_the_trained_one_is_taken_and_the_other_named(
    networks: Any, net: nn.Module
) -> None:
    other = networks.Net()
    torch.save({"ema": other.state_dict(), "model": net.state_dict()}, "model.pt")

    loaded = load_checkpoint("model.pt", model="networks:Net")

    assert same(loaded.module, net, 2, 1, 8, 8)
    assert any("'ema' fits too" in note for note in loaded.notes)


def test_the_entry_that_fits_best_wins_over_the_better_name(networks: Any, net: nn.Module) -> None:
    torch.save({"model": networks.Tied().state_dict(), "zz": net.state_dict()}, "model.pt")

    assert same(load_checkpoint("model.pt", model="networks:Net").module, net, 2, 1, 8, 8)


@pytest.mark.parametrize("prefix", ["module.", "_orig_mod.", "model.", "a.b.", "module.model."])
def test_prefixes_of_wrappers_are_stripped(prefix: str, net: nn.Module) -> None:
    torch.save(prefixed(net.state_dict(), prefix), "model.pt")

    assert same(load_checkpoint("model.pt", model="networks:Net").module, net, 2, 1, 8, 8)


def test_a_prefix_inside_is_stripped(net: nn.Module) -> None:
    net.body = torch.compile(net.body)  # type: ignore[assignment]
    state = net.state_dict()
    assert any("body._orig_mod." in key for key in state)
    torch.save(state, "model.pt")

    loaded = load_checkpoint("model.pt", model="networks:Net")

    assert torch.equal(loaded.module.body[0].weight, state["body._orig_mod.0.weight"])


def test_lightning_keeps_the_models_part_and_names_the_rest(net: nn.Module) -> None:
    state = prefixed(net.state_dict(), "model.")
    state["criterion.weight"] = torch.ones(3)
    torch.save({"state_dict": state, "pytorch-lightning_version": "2.5"}, "model.ckpt")

    loaded = load_checkpoint("model.ckpt", model="networks:Net")

    assert same(loaded.module, net, 2, 1, 8, 8)
    assert any("left out 1 tensor" in note for note in loaded.notes)


def test_a_model_that_has_the_prefix_itself_keeps_it(networks: Any) -> None:
    wrapper = trained(networks.Wrapper())
    torch.save(wrapper.state_dict(), "model.pt")
    torch.save(wrapper.model.state_dict(), "inner.pt")

    for file in ("model.pt", "inner.pt"):
        loaded = load_checkpoint(file, model="networks:Wrapper")
        assert same(loaded.module, wrapper, 2, 1, 8, 8)


@pytest.mark.parametrize("file_old", [True, False])
@pytest.mark.parametrize("model_old", [True, False])
def test_weight_norm_loads_under_both_namings(
    networks: Any, file_old: bool, model_old: bool
) -> None:
    module = trained(networks.Normed(old=file_old))
    torch.save(module.state_dict(), "model.pt")

    loaded = load_checkpoint("model.pt", model=f"networks:Normed(old={model_old})")

    x = torch.rand(1, 2, 5)
    assert torch.allclose(loaded.module(x), module(x), atol=1e-6)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_file_saved_on_cuda_loads(
    zipped: bool, net: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.serialization, "location_tag", lambda storage: "cuda:0")
    torch.save(net.state_dict(), "model.pt", _use_new_zipfile_serialization=zipped)
    assert b"cuda:0" in Path("model.pt").read_bytes()

    assert same(load_checkpoint("model.pt", model="networks:Net").module, net, 2, 1, 8, 8)


def test_safetensors_loads(net: nn.Module) -> None:
    from safetensors.torch import save_file

    save_file(net.state_dict(), "model.safetensors")

    loaded = load_checkpoint("model.safetensors", model="networks:Net")

    assert loaded.kind == "safetensors"
    assert same(loaded.module, net, 2, 1, 8, 8)


@pytest.mark.parametrize("zipped", [True, False], ids=["zip", "legacy"])
def test_a_pickled_module_of_torch_needs_no_flag(zipped: bool, tmp_path: Path) -> None:
    module = trained(nn.Sequential(nn.Linear(4, 3), nn.BatchNorm1d(3), nn.GELU()))
    torch.save(module, tmp_path / "m.pt", _use_new_zipfile_serialization=zipped)

    loaded = load_checkpoint(tmp_path / "m.pt")

    assert loaded.kind == "module"
    assert loaded.architecture == "torch.nn.modules.container.Sequential"
    assert same(loaded.module, module, 2, 4)


def test_a_training_dict_around_a_pickled_module_loads(tmp_path: Path) -> None:
    module = trained(nn.Sequential(nn.Linear(4, 3)))
    torch.save({"epoch": 1, "model": module}, tmp_path / "m.pt")

    assert same(load_checkpoint(tmp_path / "m.pt").module, module, 2, 4)


def test_a_pickled_class_of_main_is_taken_from_the_file_that_model_names(net: nn.Module) -> None:
    script = NETWORKS + '\nnet = Net(width=6)\ntorch.save(net, "whole.pt")\n'
    Path("train.py").write_text(script)
    subprocess.run([sys.executable, "train.py"], check=True)

    with pytest.raises(InputFileError, match=r"__main__\.Net") as refused:
        load_checkpoint("whole.pt")
    assert refused.value.hint == "give --model path/to/file.py:Net, the file that defines it"
    loaded = load_checkpoint("whole.pt", model="train.py:Net")

    assert loaded.kind == "module"
    assert loaded.module.head.in_features == 6
    assert any("__main__.Net" in note for note in loaded.notes)
    assert any("only the parts of train.py" in note for note in loaded.notes)


WRAP: dict[str, Any] = {
    "DataParallel": nn.DataParallel,
    "AveragedModel": torch.optim.swa_utils.AveragedModel,
    "DistributedDataParallel": nn.parallel.DistributedDataParallel,
}


@pytest.fixture
def one_process(tmp_path: Path) -> Any:
    """A process group, which DistributedDataParallel asks for; gone before the file is loaded."""
    torch.distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1
    )
    yield torch.distributed.destroy_process_group
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()


@pytest.mark.parametrize("wrapper", WRAP)
def test_a_pickled_wrapper_is_taken_off(wrapper: str, one_process: Any, tmp_path: Path) -> None:
    module = trained(nn.Sequential(nn.Linear(4, 3), nn.ReLU()))
    path = tmp_path / "wrapped.pt"
    torch.save({"epoch": 1, "model": WRAP[wrapper](module)}, path)
    one_process()

    loaded = load_checkpoint(path)

    assert type(loaded.module) is nn.Sequential
    assert same(loaded.module, module, 2, 4)
    assert f"took the model out of its {wrapper}" in loaded.notes


def test_a_wrapped_class_of_main_is_named_by_its_own_file(net: nn.Module) -> None:
    Path("train.py").write_text(NETWORKS + '\ntorch.save(nn.DataParallel(Net()), "whole.pt")\n')
    subprocess.run([sys.executable, "train.py"], check=True)

    with pytest.raises(InputFileError) as refused:
        load_checkpoint("whole.pt")
    assert "--model path/to/file.py:Net" in (refused.value.hint or "")

    for spec in ("train.py:Net", "train.py:Net(classes=3)"):
        assert type(load_checkpoint("whole.pt", model=spec).module).__name__ == "Net"


@pytest.mark.parametrize("kind", [torch.optim.SGD, torch.optim.AdamW])
@pytest.mark.parametrize("nested", [False, True])
def test_an_optimizers_state_is_named_so(kind: Any, nested: bool, net: nn.Module) -> None:
    optimizer = kind(net.parameters(), lr=0.1)
    net(torch.rand(1, 1, 8, 8)).sum().backward()
    optimizer.step()
    state = optimizer.state_dict()
    torch.save({"epoch": 1, "optimizer": state} if nested else state, "model.pt")

    with pytest.raises(InputFileError, match="an optimizer's state, not a model"):
        load_checkpoint("model.pt", model="networks:Net")


def test_weights_are_read_past_classes_that_are_not_installed(
    net: nn.Module, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("config.py").write_text("class Config:\n    pass\n")
    import config

    torch.save({"config": config.Config(), "model": net.state_dict()}, "model.pt")
    del sys.modules["config"]
    Path("config.py").unlink()

    loaded = load_checkpoint("model.pt", model="networks:Net")

    assert same(loaded.module, net, 2, 1, 8, 8)
    assert any("config.Config" in note for note in loaded.notes)
    assert "config" not in sys.modules


def test_numpy_scalars_beside_the_weights_do_no_harm(net: nn.Module) -> None:
    import numpy as np

    torch.save({"best": np.float64(0.9), "model": net.state_dict()}, "model.pt")

    assert same(load_checkpoint("model.pt", model="networks:Net").module, net, 2, 1, 8, 8)


# What the file does not hold


def test_tensors_computed_while_building_are_right(networks: Any) -> None:
    module = trained(networks.Computed())
    module.table.copy_(torch.arange(4.0) * 2)
    torch.save(module.state_dict(), "model.pt")

    loaded = load_checkpoint("model.pt", model="networks:Computed")

    assert same(loaded.module, module, 2, 4)
    held = [o for o in gc.get_objects() if isinstance(o, torch.Tensor) and o.is_meta]
    assert not held


def test_a_factory_that_reads_values_is_built_on_the_cpu(networks: Any) -> None:
    module = trained(networks.Listed())
    torch.save(module.state_dict(), "model.pt")

    assert same(load_checkpoint("model.pt", model="networks:Listed").module, module, 2, 2)


def test_random_values_that_were_not_saved_are_never_drawn_anew(networks: Any) -> None:
    seeded = networks.Projected(seeded=True).eval()
    torch.save(seeded.state_dict(), "model.pt")

    with pytest.raises(InputFileError, match="does not hold projection"):
        load_checkpoint("model.pt", model="networks:Projected(seeded=False)")
    loaded = load_checkpoint("model.pt", model="networks:Projected(seeded=True)")

    assert same(loaded.module, seeded, 2, 4)


def test_counters_missing_in_old_files_are_excused_and_noted(net: nn.Module) -> None:
    state = {k: v for k, v in net.state_dict().items() if "num_batches" not in k}
    holder = OrderedDict(state)
    holder._metadata = net.state_dict()._metadata  # type: ignore[attr-defined]
    torch.save(holder, "model.pt")

    loaded = load_checkpoint("model.pt", model="networks:Net")

    assert same(loaded.module, net, 2, 1, 8, 8)
    assert any("num_batches_tracked" in note for note in loaded.notes)


# Dtypes and ties


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_another_float_dtype_is_converted_and_noted(dtype: torch.dtype, net: nn.Module) -> None:
    state = {k: v.to(dtype) if v.is_floating_point() else v for k, v in net.state_dict().items()}
    torch.save(state, "model.pt")

    loaded = load_checkpoint("model.pt", model="networks:Net")

    assert loaded.module.head.weight.dtype == torch.float32
    assert torch.equal(loaded.module.head.weight, state["head.weight"].float())
    assert any(str(dtype).removeprefix("torch.") in note for note in loaded.notes)


@pytest.mark.parametrize("drop", [(), ("out.weight",), ("embed.weight",)])
def test_tied_weights_stay_tied(drop: tuple[str, ...], networks: Any) -> None:
    module = trained(networks.Tied())
    state = {k: v.clone() for k, v in module.state_dict().items() if k not in drop}
    torch.save(state, "model.pt")

    loaded = load_checkpoint("model.pt", model="networks:Tied").module

    assert loaded.out.weight is loaded.embed.weight
    assert torch.equal(loaded.out.weight, module.out.weight)


def test_different_values_for_tied_weights_are_an_error(networks: Any) -> None:
    state = {"embed.weight": torch.ones(5, 4), "out.weight": torch.zeros(5, 4)}
    torch.save(state, "model.pt")

    with pytest.raises(InputFileError, match="ties together"):
        load_checkpoint("model.pt", model="networks:Tied")


# Keys that do not fit


def test_missing_unexpected_and_misshaped_keys_are_listed(net: nn.Module) -> None:
    state = net.state_dict()
    state["extra.weight"] = torch.ones(2, 7)
    del state["body.0.bias"]
    state["head.weight"] = torch.ones(9, 4)
    torch.save(state, "model.pt")

    with pytest.raises(InputFileError) as refused:
        load_checkpoint("model.pt", model="networks:Net")

    text = str(refused.value)
    assert "1 missing:\n    body.0.bias 4" in text
    assert "1 unexpected:\n    extra.weight 2x7" in text
    assert "head.weight 9x4 in the file, 3x4 in the model" in text


@pytest.mark.parametrize("drop", ["body.0.bias", "head.weight", "body.1.running_var"])
def test_one_missing_key_is_never_filled_with_random_weights(drop: str, net: nn.Module) -> None:
    state = net.state_dict()
    del state[drop]
    torch.save(state, "model.pt")

    with pytest.raises(InputFileError, match=drop.replace(".", r"\.")):
        load_checkpoint("model.pt", model="networks:Net")


def test_another_number_of_classes_suggests_the_argument(tmp_path: Path) -> None:
    from torchvision.models import resnet18

    torch.save(resnet18(num_classes=7).state_dict(), tmp_path / "m.pt")

    with pytest.raises(InputFileError) as refused:
        load_checkpoint(tmp_path / "m.pt", model="torchvision:resnet18")
    assert '--model "torchvision:resnet18(num_classes=7)"' in (refused.value.hint or "")

    loaded = load_checkpoint(tmp_path / "m.pt", model="torchvision:resnet18(num_classes=7)")
    assert loaded.default_inputs == ("2x3x224x224",)


def test_long_lists_are_cut(net: nn.Module, networks: Any) -> None:
    torch.save({f"k{i}": torch.ones(1) for i in range(50)}, "model.pt")

    with pytest.raises(InputFileError) as refused:
        load_checkpoint("model.pt", model="networks:Net")

    assert "50 unexpected" in refused.value.message
    assert "... and 42 more" in refused.value.message


def test_a_state_dict_without_a_model_says_what_it_holds(net: nn.Module) -> None:
    torch.save(net.state_dict(), "model.pt")

    with pytest.raises(InputFileError) as refused:
        load_checkpoint("model.pt")

    assert "9 tensors (body.0.weight 4x1x3x3" in refused.value.message
    assert "--model" in (refused.value.hint or "")


def test_a_mapping_without_tensors_says_so(tmp_path: Path) -> None:
    torch.save({"epoch": 3}, tmp_path / "m.pt")

    with pytest.raises(InputFileError, match="without tensors"):
        load_checkpoint(tmp_path / "m.pt", model="torchvision:resnet18")


# Files that are no checkpoints


JUNK: dict[str, tuple[bytes, str]] = {
    "empty": (b"", "empty"),
    "html": (b"<!DOCTYPE html><html>404</html>", "web page"),
    "lfs": (b"version https://git-lfs.github.com/spec/v1\noid sha256:0\n", "Git LFS"),
    "text": (b"hello there\n", "text file"),
    "hdf5": (b"\x89HDF\r\n\x1a\n" + bytes(64), "HDF5"),
    "gguf": (b"GGUF" + bytes(64), "GGUF"),
    "tflite": (b"\x1c\x00\x00\x00TFL3" + bytes(64), "LiteRT"),
    "onnx": (b"\x08\x0a\x12\x07pytorch" + bytes(64), "ONNX"),
    "gzip": (b"\x1f\x8b\x08" + bytes(64), "gzip"),
    "random": (bytes(range(200, 256)), "unknown binary"),
    "zip that is cut": (b"PK\x03\x04" + bytes(64), "truncated"),
    "zeros": (bytes(100), "zero bytes"),
}


@pytest.mark.parametrize("name", JUNK)
def test_junk_is_named_for_what_it_is(name: str, tmp_path: Path) -> None:
    content, said = JUNK[name]
    path = tmp_path / "model.pt"
    path.write_bytes(content)

    with pytest.raises(InputFileError, match=said) as refused:
        load_checkpoint(path, model="torchvision:resnet18")
    assert refused.value.hint


def test_a_cut_zip_is_fetched_again_and_a_whole_one_unpacked(net: nn.Module) -> None:
    torch.save(net.state_dict(), "cut.pt")
    Path("cut.pt").write_bytes(Path("cut.pt").read_bytes()[:-300])
    with zipfile.ZipFile("whole.zip", "w") as archive:
        archive.writestr("model.pt", b"anything")

    with pytest.raises(InputFileError, match="cut off") as cut:
        load_checkpoint("cut.pt", model="networks:Net")
    with pytest.raises(InputFileError, match="zip archive") as whole:
        load_checkpoint("whole.zip", model="networks:Net")

    assert "download or save it again" in (cut.value.hint or "")
    assert whole.value.hint == "unpack it first"


def test_missing_and_directory_paths_suggest_files(tmp_path: Path) -> None:
    torch.save({}, tmp_path / "model.pth")

    with pytest.raises(InputFileError, match="does not exist") as missing:
        load_checkpoint(tmp_path / "model.pt")
    with pytest.raises(InputFileError, match="directory") as folder:
        load_checkpoint(tmp_path)

    assert "model.pth" in (missing.value.hint or "")
    assert "model.pth" in (folder.value.hint or "")


@pytest.mark.parametrize("kind", ["zip", "legacy", "safetensors", "pt2", "torchscript"])
@pytest.mark.parametrize("share", [0.05, 0.3, 0.6, 0.95, 0.999])
def test_a_truncated_file_is_an_input_error(kind: str, share: float, tmp_path: Path) -> None:
    path = tmp_path / ("model.pt2" if kind == "pt2" else "model.pt")
    module = nn.Linear(30, 30)
    if kind == "safetensors":
        from safetensors.torch import save_file

        save_file(module.state_dict(), path)
    elif kind == "pt2":
        torch.export.save(torch.export.export(module, (torch.ones(2, 30),)), path)
    elif kind == "torchscript":
        torch.jit.script(module).save(str(path))
    else:
        torch.save(module.state_dict(), path, _use_new_zipfile_serialization=kind == "zip")
    content = path.read_bytes()
    path.write_bytes(content[: int(len(content) * share)])

    with pytest.raises(InputFileError):
        load_checkpoint(path, model="torch.nn:Linear(30, 30)")


def test_an_unknown_model_is_a_usage_error(net: nn.Module) -> None:
    torch.save(net.state_dict(), "model.pt")

    with pytest.raises(UsageError, match="has no Nett"):
        load_checkpoint("model.pt", model="networks:Nett")


# Memory


def test_weights_are_mapped_not_copied(tmp_path: Path) -> None:
    """200 MB of weights raise the anonymous memory by a small part of that."""
    torch.save({f"{i}.weight": torch.ones(2500, 2500) for i in range(8)}, tmp_path / "m.pt")
    code = textwrap.dedent(
        """
        import sys, torch
        from isomorph.exporter.checkpoint import load_checkpoint

        def anonymous():
            for line in open("/proc/self/status"):
                if line.startswith("RssAnon"):
                    return int(line.split()[1]) * 1024

        spec = "big.py:build"
        open("big.py", "w").write(
            "from torch import nn\\n"
            "def build():\\n"
            "    return nn.Sequential(*[nn.Linear(2500, 2500, bias=False) for _ in range(8)])\\n"
        )
        before = anonymous()
        module = load_checkpoint(sys.argv[1], model=spec).module
        assert float(module[3].weight[5, 5]) == 1.0
        print(anonymous() - before)
        """
    )
    if not Path("/proc/self/status").exists():
        pytest.skip("needs Linux's /proc")
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "m.pt")],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert int(done.stdout.split()[-1]) < 60 << 20
