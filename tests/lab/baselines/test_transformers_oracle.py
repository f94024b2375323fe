"""ResNet, UPerNet and the vision transformer, with copied weights, against those of the library transformers."""

from __future__ import annotations

import re

import pytest
import torch

from atomizer_lab.baselines.resnet import DenseResNet, ResNetSettings
from atomizer_lab.baselines.vit import SceneViT, ViT, ViTSettings

transformers = pytest.importorskip("transformers")
CLOSE = {"atol": 1e-5, "rtol": 1e-5}
RESNET_NAMES = (
    (r"^backbone\.embedder\.embedder\.convolution\.", "trunk.stem.0."),
    (r"^backbone\.embedder\.embedder\.normalization\.", "trunk.stem.1."),
    (r"^backbone\.encoder\.stages\.(\d)\.layers\.(\d)\.shortcut\.convolution\.", r"trunk.stages.\1.\2.skip.0."),
    (r"^backbone\.encoder\.stages\.(\d)\.layers\.(\d)\.shortcut\.normalization\.", r"trunk.stages.\1.\2.skip.1."),
    (r"^decode_head\.classifier\.", "decoder.head."),
    (r"^decode_head\.psp_modules\.(\d)\.1\.", r"decoder.pools.\1."),
    (r"^decode_head\.bottleneck\.", "decoder.pooled."),
    (r"^decode_head\.lateral_convs\.(\d)\.", r"decoder.laterals.\1."),
    (r"^decode_head\.fpn_convs\.(\d)\.", r"decoder.smooth.\1."),
    (r"^decode_head\.fpn_bottleneck\.", "decoder.join."),
    (r"\.conv\.", ".0."),
    (r"\.batch_norm\.", ".1."),
)
INSIDE = re.compile(r"^backbone\.encoder\.stages\.(\d)\.layers\.(\d)\.layer\.(\d)\.(convolution|normalization)\.(.*)$")


def shaken(module: torch.nn.Module) -> None:
    """Give every number of a network a value of its own, also those that begin at 0 or 1."""
    torch.manual_seed(0)
    for name, tensor in module.state_dict().items():
        if "running_var" in name:
            tensor.uniform_(0.5, 2.0)
        elif tensor.is_floating_point():
            tensor.add_(0.1 * torch.randn_like(tensor))


def test_resnet_and_upernet() -> None:
    trunk = transformers.ResNetConfig(
        num_channels=5, embedding_size=8, hidden_sizes=[32, 64, 128, 256], depths=[1, 2, 2, 1],
        layer_type="bottleneck", out_features=["stage1", "stage2", "stage3", "stage4"],
    )  # fmt: skip
    config = transformers.UperNetConfig(backbone_config=trunk, hidden_size=16, num_labels=3, use_auxiliary_head=False)
    oracle = transformers.UperNetForSemanticSegmentation(config).eval()
    shaken(oracle)
    weights = {}
    for name, tensor in oracle.state_dict().items():
        if (inside := INSIDE.match(name)) is not None:
            stage, block, layer, kind, end = inside.groups()
            place = 3 * int(layer) + (kind == "normalization")  # convolution, normalisation, ReLU
            weights[f"trunk.stages.{stage}.{block}.branch.{place}.{end}"] = tensor
            continue
        for theirs, ours in RESNET_NAMES:
            name = re.sub(theirs, ours, name)
        weights[name] = tensor
    network = DenseResNet(5, 3, ResNetSettings(blocks=(1, 2, 2, 1), width=8, decoder_width=16)).eval()
    network.load_state_dict(weights)
    x = torch.randn(2, 5, 72, 100)  # no multiple of 32
    with torch.no_grad():
        expected = oracle(pixel_values=x).logits
        result = network(x[:, None])
    assert float(expected.std()) > 0.01
    torch.testing.assert_close(result, expected, **CLOSE)


@pytest.mark.parametrize("side", [32, 48])
def test_vision_transformer(side: int) -> None:
    config = transformers.ViTConfig(
        hidden_size=24, num_hidden_layers=3, num_attention_heads=3, intermediate_size=96, image_size=32, patch_size=8,
        num_channels=5, layer_norm_eps=1e-6, hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0,
    )  # fmt: skip
    oracle = transformers.ViTModel(config, add_pooling_layer=False).eval()
    shaken(oracle)
    theirs = oracle.state_dict()
    settings = ViTSettings(width=24, depth=3, heads=3, patch_px=8, image_px=32)
    trunk = ViT(5, settings).eval()
    weights = {
        "class_token_D": theirs["embeddings.cls_token"][0, 0],
        "class_position_D": theirs["embeddings.position_embeddings"][0, 0],
        "position_LD": theirs["embeddings.position_embeddings"][0, 1:],
    }
    for end in ("weight", "bias"):
        weights[f"patches.{end}"] = theirs[f"embeddings.patch_embeddings.projection.{end}"]
        weights[f"blocks.norm.{end}"] = theirs[f"layernorm.{end}"]
        for number in range(3):
            ours, layer = f"blocks.blocks.{number}", f"layers.{number}"
            parts = [theirs[f"{layer}.attention.{part}_proj.{end}"] for part in "qkv"]
            weights[f"{ours}.attention.qkv.{end}"] = torch.cat(parts)
            weights[f"{ours}.attention.out.{end}"] = theirs[f"{layer}.attention.o_proj.{end}"]
            weights[f"{ours}.attention_norm.{end}"] = theirs[f"{layer}.layernorm_before.{end}"]
            weights[f"{ours}.mlp_norm.{end}"] = theirs[f"{layer}.layernorm_after.{end}"]
            weights[f"{ours}.mlp.0.{end}"] = theirs[f"{layer}.mlp.fc1.{end}"]
            weights[f"{ours}.mlp.3.{end}"] = theirs[f"{layer}.mlp.fc2.{end}"]
    trunk.load_state_dict(weights)
    x = torch.randn(2, 5, side, side)
    with torch.no_grad():
        expected = oracle(x, interpolate_pos_encoding=side != 32, output_hidden_states=True)
        tokens = trunk.tokens(x)
        torch.testing.assert_close(trunk.blocks(tokens), expected.last_hidden_state, **CLOSE)
        first, last = trunk.blocks.tapped(tokens, (0, 2))
    torch.testing.assert_close(first, expected.hidden_states[1], **CLOSE)
    torch.testing.assert_close(last, expected.last_hidden_state, **CLOSE)
    scene = SceneViT(5, 4, settings).eval()
    scene.trunk.load_state_dict(weights)
    with torch.no_grad():
        torch.testing.assert_close(scene(x[:, None]), scene.head(expected.last_hidden_state[:, 0]), **CLOSE)
