"""nn.TransformerEncoder with a padding mask, whose fused eager path cannot be captured."""

import isomorph
import pytest
import torch
from torch import nn


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(100, 32)
        layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, 2)

    def forward(self, ids, padding):
        return self.encoder(self.table(ids), src_key_padding_mask=padding)


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    torch.manual_seed(0)
    return isomorph.export(
        Encoder(),
        inputs=["ids=2x11:int64", "padding=2x11:bool"],
        output=tmp_path_factory.mktemp("encoder") / "encoder.onnx",
    )


def test_it_exports_and_passes_on_masks_as_padding_makes_them(result):
    assert result.verdict == "pass"
    verdicts = {case.name: case.verdict for case in result.artifacts[0].report.cases}
    assert verdicts["mask-prefix"] == verdicts["mask-suffix"] == "pass"


def test_the_values_at_padded_positions_are_noted(result):
    assert any("zeros at padded positions" in note for note in result.notes)


def test_without_a_mask_there_is_nothing_to_note():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True)
    graph = isomorph.trace(nn.TransformerEncoder(layer, 2), args=(torch.randn(2, 5, 32),))
    assert not graph.notes


def test_the_fused_path_is_on_again_afterwards(result):
    assert torch.backends.mha.get_fastpath_enabled()
