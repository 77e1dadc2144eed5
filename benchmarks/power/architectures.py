"""The architectures of the study, small, with random weights; half of them are held out.

The split is by a checksum of the name, so nobody chose which architectures are easy.
"""

from __future__ import annotations

import functools
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import nn

from . import nets_of_images as images
from . import nets_of_sequences as sequences

__all__ = ["ARCHITECTURES", "Architecture", "is_held_out"]


@dataclass(frozen=True)
class Architecture:
    """How to make a network, and the `--input` texts that it takes."""

    make: Callable[[], nn.Module]
    inputs: tuple[str, ...]


def is_held_out(name: str) -> bool:
    """Whether an architecture or a kind of fault belongs to the half that chose no constant."""
    return zlib.crc32(name.encode()) % 2 == 1


def _timm(name: str, size: int = 32, /, **options: Any) -> Architecture:
    def make() -> nn.Module:
        import timm

        return timm.create_model(name, pretrained=False, **options)

    return Architecture(make, (f"x=2x3x{size}x{size}",))


def _torchvision(name: str, size: int = 32, /, **options: Any) -> Architecture:
    def make() -> nn.Module:
        import torchvision

        return torchvision.models.get_model(name, weights=None, **options)

    return Architecture(make, (f"x=2x3x{size}x{size}",))


class _FirstOf(nn.Module):
    """One tensor of those that a model of Hugging Face returns."""

    def __init__(self, model: nn.Module, name: str) -> None:
        super().__init__()
        self.model, self.name = model, name

    def forward(self, ids: Any) -> Any:
        return getattr(self.model(ids), self.name)


def _transformers(kind: str, output: str, **settings: int) -> Architecture:
    def make() -> nn.Module:
        import transformers

        config = getattr(transformers, f"{kind}Config")(**settings)
        config._attn_implementation = "eager"
        return _FirstOf(getattr(transformers, f"{kind}Model")(config).eval(), output)

    return Architecture(make, ("ids=2x9:int64:0..59",))


class _Segmentation(nn.Module):
    """The tensor in the dictionary that torchvision's segmentation models return."""

    def __init__(self) -> None:
        super().__init__()
        import torchvision

        make = torchvision.models.segmentation.lraspp_mobilenet_v3_large
        self.model = make(weights=None, weights_backbone=None, num_classes=4)

    def forward(self, x: Any) -> Any:
        return self.model(x)["out"]


def _dense() -> nn.Module:
    from torchvision.models import DenseNet

    return DenseNet(8, (2, 2, 2), 16, num_classes=10)


def _residual() -> nn.Module:
    from torchvision.models.resnet import BasicBlock, ResNet

    return ResNet(BasicBlock, [1, 1, 1, 1], num_classes=10)


def _windows() -> nn.Module:
    from torchvision.models import SwinTransformer

    return SwinTransformer([4, 4], 24, [2, 2], [2, 4], [4, 4], num_classes=10)


def _vision_transformer() -> nn.Module:
    from torchvision.models import VisionTransformer

    return VisionTransformer(32, 8, 2, 4, 32, 64, num_classes=10)


_make = functools.partial

ARCHITECTURES: dict[str, Architecture] = {
    "lstm": Architecture(_make(sequences.Recurrent, nn.LSTM), ("x=2x9x16",)),
    "gru": Architecture(_make(sequences.Recurrent, nn.GRU), ("x=2x9x16",)),
    "token_encoder": Architecture(
        sequences.TokenEncoder, ("ids=2x11:int64:0..99", "keep=2x11:int64:0..1")
    ),
    "decoder": Architecture(sequences.Decoder, ("ids=2x12:int64:0..79",)),
    "rms_llama": Architecture(sequences.RmsLlama, ("x=2x10x32",)),
    "unet": Architecture(images.UNet, ("x=2x3x32x32",)),
    "unet_transposed": Architecture(_make(images.UNet, True), ("x=2x3x32x32",)),
    "volume": Architecture(images.Volume, ("x=1x1x8x8x8",)),
    "anchor_head": Architecture(images.AnchorHead, ("x=2x3x64x64",)),
    "fcos_head": Architecture(images.FcosHead, ("x=2x3x64x64",)),
    "mixer": Architecture(images.Mixer, ("x=2x3x32x32",)),
    "waves": Architecture(sequences.Waves, ("x=2x1x128",)),
    "speech_encoder": Architecture(sequences.SpeechEncoder, ("x=2x8x20",)),
    "super_resolution": Architecture(images.SuperResolution, ("x=2x3x16x16",)),
    "style_transfer": Architecture(images.StyleTransfer, ("x=2x3x32x32",)),
    "fake_quantised": Architecture(images.FakeQuantised, ("x=2x3x30x30",)),
    "pooling": Architecture(images.Pooling, ("x=2x3x24x24",)),
    "sampler": Architecture(images.Sampler, ("x=2x3x24x24",)),
    "graph_net": Architecture(sequences.GraphNet, ("nodes=2x10x8", "edges=2x10x10")),
    "radiance": Architecture(sequences.Radiance, ("x=64x3",)),
    "tabular": Architecture(sequences.Tabular, ("numbers=16x8", "codes=16x3:int64:0..19")),
    "point_cloud": Architecture(sequences.PointCloud, ("x=4x3x50",)),
    "autoencoder": Architecture(images.Autoencoder, ("x=2x1x28x28",)),
    "denoiser": Architecture(images.Denoiser, ("x=2x4x16x16", "t=2:float32:0..10")),
    "retrieval": Architecture(sequences.Retrieval, ("a=6x12", "b=9x12")),
    "bert": _transformers(
        "Bert",
        "last_hidden_state",
        vocab_size=60,
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=64,
        max_position_embeddings=16,
    ),
    "gpt2": _transformers(
        "GPT2", "last_hidden_state", vocab_size=60, n_embd=32, n_layer=2, n_head=4, n_positions=16
    ),
    "densenet": Architecture(_dense, ("x=2x3x32x32",)),
    "swin": Architecture(_windows, ("x=2x3x32x32",)),
    "vision_transformer": Architecture(_vision_transformer, ("x=2x3x32x32",)),
    "lraspp": Architecture(_Segmentation, ("x=2x3x64x64",)),
    "resnet": Architecture(_residual, ("x=2x3x32x32",)),
    "mobilenet_v2": _torchvision("mobilenet_v2", width_mult=0.25),
    "mobilenet_v3_small": _torchvision("mobilenet_v3_small"),
    "shufflenet_v2": _torchvision("shufflenet_v2_x0_5"),
    "squeezenet": _torchvision("squeezenet1_1"),
    "mnasnet": _torchvision("mnasnet0_5"),
    "regnet": _torchvision("regnet_x_400mf"),
    "test_vit": _timm("test_vit", 64, img_size=64),
    "test_vit3": _timm("test_vit3", 64, img_size=64),
    "test_resnet": _timm("test_resnet"),
    "test_convnext": _timm("test_convnext"),
    "test_convnext3": _timm("test_convnext3"),
    "test_efficientnet": _timm("test_efficientnet"),
    "test_efficientnet_gn": _timm("test_efficientnet_gn"),
    "test_efficientnet_ln": _timm("test_efficientnet_ln"),
    "test_efficientnet_evos": _timm("test_efficientnet_evos"),
    "test_byobnet": _timm("test_byobnet"),
    "test_mambaout": _timm("test_mambaout"),
    "test_nfnet": _timm("test_nfnet"),
    "lcnet": _timm("lcnet_050"),
    "tinynet": _timm("tinynet_e"),
    "ghostnet": _timm("ghostnet_050"),
    "mobilevit": _timm("mobilevit_xxs", 64),
    "mobilevitv2": _timm("mobilevitv2_050", 64),
    "edgenext": _timm("edgenext_xx_small", 64),
    "dla": _timm("dla46_c"),
    "regnety": _timm("regnety_002"),
    "pvt": _timm("pvt_v2_b0", 64),
}
