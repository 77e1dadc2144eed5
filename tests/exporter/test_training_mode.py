"""A module that is in training mode is captured in eval mode, and that is said."""

import isomorph
import pytest
import torch


def export(model, folder):
    return isomorph.export(
        model, "torchscript", args=(torch.randn(2, 4),), output=folder, validate=False
    )


class OwnDropout(torch.nn.Module):
    def forward(self, x):
        return torch.nn.functional.dropout(x, 0.5, self.training)


@pytest.mark.parametrize(
    "part", [torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(3), OwnDropout(), torch.nn.RReLU()]
)
def test_a_module_in_training_mode_is_noted(part, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), part)
    told = f"the module was in training mode ({type(part).__name__}); it was captured in eval mode"
    assert told in export(model, tmp_path).notes


@pytest.mark.parametrize(
    "part", [torch.nn.Dropout(0.5).eval(), torch.nn.Dropout(0.0), torch.nn.LayerNorm(3)]
)
def test_training_mode_that_changes_nothing_is_not_noted(part, tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 3), part)
    assert not export(model, tmp_path).notes


@pytest.mark.parametrize("save", [torch.save, lambda m, path: torch.jit.script(m).save(path)])
def test_a_file_with_a_module_in_training_mode_is_noted(save, tmp_path):
    save(torch.nn.Sequential(torch.nn.Linear(4, 3), torch.nn.Dropout(0.5)), tmp_path / "m.pt")
    result = isomorph.export(
        tmp_path / "m.pt", "torchscript", inputs=["3x4"], output=tmp_path / "m.ts", validate=False
    )
    assert any("in training mode (Dropout)" in note for note in result.notes)
