"""Rotary positions: neighbours are distinguished everywhere, and only relative positions matter."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

import atomizer_io as aio
from atomizer_io.models.atomizer import stages
from atomizer_io.models.atomizer.encodings import compress
from atomizer_io.models.atomizer.geometry.anchors import HexLattice
from atomizer_io.models.atomizer.layers import RotaryAngles, SelfAttention, rotate

HALF_EXTENT_M = 2560.0
CLEAR = 0.03  # an anchor resembles itself by 1; nobody else may come nearer to that than this


class TextbookAngles(nn.Module):
    """θ^(−2i/E') radians per unit of the same compressed coordinates, as in language and vision transformers."""

    def __init__(self, theta: float, head_dim: int) -> None:
        super().__init__()
        self.radians = theta ** (-torch.arange(head_dim // 4, dtype=torch.float64) * 4 / head_dim)

    def forward(self, coordinates: Tensor) -> Tensor:
        return (compress(coordinates, HALF_EXTENT_M)[..., None] * self.radians).flatten(-2)


def anchors() -> Tensor:
    lattice = HexLattice.over((-HALF_EXTENT_M, -HALF_EXTENT_M, HALF_EXTENT_M, HALF_EXTENT_M), 2000)
    return torch.from_numpy(lattice.anchors_L2)


def separation(angles_Le: Tensor) -> Tensor:
    """1 − the rotary kernel to the most similar other anchor: (L,). The kernel is mean cos of the angle differences."""
    unit_LE = torch.cat([angles_Le.cos(), angles_Le.sin()], dim=-1) / math.sqrt(angles_Le.shape[-1])
    kernel_LL = unit_LE @ unit_LE.T
    return 1 - kernel_LL.fill_diagonal_(-1.0).amax(dim=1)


def model_angles(preset: str, **changes) -> RotaryAngles:
    with torch.device("meta"):
        config = aio.create_model(preset, **changes).config
    angles = stages.processor(config.replace(depth=1, width=32, global_latents=1)).angles
    assert angles is not None
    return angles.double().requires_grad_(False)


@pytest.mark.parametrize("preset", ["atomizer_io_seg", "atomizer_io_tiny", "atomizer_io_3d"])
def test_adjacent_anchors_are_distinguished(preset: str) -> None:
    where = anchors()
    assert len(where) == 48 * 42  # the lattice nearest to 2000 anchors
    apart = separation(model_angles(preset, rope_scale_m=HALF_EXTENT_M)(where))
    assert apart.min() > CLEAR  # the border included, where compression brings neighbours nearest
    border = where.abs().amax(dim=1) > 0.95 * HALF_EXTENT_M
    assert border.sum() > 100 and apart[border].min() > CLEAR


@pytest.mark.parametrize("theta", [10.0, 100.0, 10000.0])
@pytest.mark.parametrize("head_dim", [64, 24])
def test_textbook_frequencies_tell_no_neighbours_apart(theta: float, head_dim: int) -> None:
    apart = separation(TextbookAngles(theta, head_dim)(anchors()))
    assert apart.max() < CLEAR / 100  # not one anchor in the whole scene


def test_logits_of_identical_content_peak_at_the_anchor_itself() -> None:
    """The same statement on the attention layer: queries and keys of equal content, rotated by their anchors."""
    where = anchors()
    content_1HTE = torch.randn(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64).expand(
        1, 1, len(where), 64
    )

    def contrast(angles_Le: Tensor) -> float:
        rotated_TE = rotate(content_1HTE, angles_Le[None])[0, 0]
        logits_TT = rotated_TE @ rotated_TE.T / math.sqrt(64)
        others = logits_TT.clone().fill_diagonal_(-torch.inf).amax(dim=1)
        return float((logits_TT.diagonal() - others).min())

    ours = contrast(model_angles("atomizer_io_seg")(where))
    assert ours > 0.3
    assert contrast(TextbookAngles(100.0, 64)(where)) < ours / 100


def test_rotation_preserves_norms_and_leaves_the_global_latents_alone() -> None:
    generator = torch.Generator().manual_seed(1)
    x_BHTE = torch.randn(2, 3, 9, 16, generator=generator, dtype=torch.float64)
    where_BR2 = (torch.rand(2, 6, 2, generator=generator, dtype=torch.float64) - 0.5) * 5000
    rotated = rotate(x_BHTE, RotaryAngles(2, 16, HALF_EXTENT_M, 0.25, 16.0).double()(where_BR2))
    torch.testing.assert_close(rotated.norm(dim=-1), x_BHTE.norm(dim=-1))
    pairs = x_BHTE.unflatten(-1, (-1, 2)).norm(dim=-1)
    torch.testing.assert_close(rotated.unflatten(-1, (-1, 2)).norm(dim=-1), pairs)
    assert torch.equal(rotated[:, :, 6:], x_BHTE[:, :, 6:])
    assert (rotated[:, :, :6] - x_BHTE[:, :, :6]).abs().amax(dim=-1).min() > 1e-3


def pairwise_rotation(x_BHTE: Tensor, angles_BRe: Tensor) -> Tensor:
    """The formula itself: (a, b) becomes (a cos − b sin, a sin + b cos), pair by pair."""
    rotated, rest = x_BHTE[:, :, : angles_BRe.shape[1]], x_BHTE[:, :, angles_BRe.shape[1] :]
    cos, sin = (part[:, None].to(x_BHTE.dtype) for part in (angles_BRe.cos(), angles_BRe.sin()))
    even, odd = rotated[..., 0::2], rotated[..., 1::2]
    pairs = torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1)
    return torch.cat([pairs.flatten(-2), rest], dim=2)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("still", [0, 3])
@pytest.mark.parametrize("head_dim", [12, 24, 64])
def test_rotation_is_the_formula_pair_by_pair_to_the_bit(dtype: torch.dtype, still: int, head_dim: int) -> None:
    generator = torch.Generator().manual_seed(3)
    angles = torch.randn(2, 6, head_dim // 2, generator=generator, dtype=torch.promote_types(dtype, torch.float32))
    x = torch.randn(2, 6 + still, 4, head_dim, generator=generator).to(dtype).transpose(1, 2)  # as heads come
    weights = torch.randn(2, 4, 6 + still, head_dim, generator=generator).to(dtype)
    result = []
    for rotation in (rotate, pairwise_rotation):
        own, by = x.clone().requires_grad_(), angles.clone().requires_grad_()
        rotated = rotation(own, by)
        (rotated * weights).sum().backward()
        result.append((rotated, own.grad, by.grad))
    (rotated, grad, angle_grad), (expected, expected_grad, expected_angle_grad) = result
    assert torch.equal(rotated, expected) and torch.equal(grad, expected_grad)
    tolerance = {"rtol": 0.05, "atol": 0.05} if dtype == torch.bfloat16 else {}
    torch.testing.assert_close(angle_grad, expected_angle_grad, **tolerance)  # summed over heads in another order


def test_the_processor_rotates_spatial_latents_only(monkeypatch: pytest.MonkeyPatch) -> None:
    config = aio.AtomizerConfig(width=32, depth=2, global_latents=5, self_heads=2, self_head_dim=16)
    processor = stages.processor(config)
    seen = []
    original = SelfAttention.forward

    def watch(self: SelfAttention, x_BTD: Tensor, angles_BRe: Tensor | None = None) -> Tensor:
        assert angles_BRe is not None
        seen.append((x_BTD.shape[1], angles_BRe.shape[1]))
        return original(self, x_BTD, angles_BRe)

    monkeypatch.setattr(SelfAttention, "forward", watch)
    out = processor(torch.randn(2, 7, 32), torch.rand(2, 7, 2) * 100)
    assert seen == [(12, 7), (12, 7)] and out.shape == (2, 7, 32)


def test_logits_depend_on_relative_compressed_position_only() -> None:
    angles = RotaryAngles(2, 32, 100.0, 0.25, 16.0).double()
    generator = torch.Generator().manual_seed(2)
    squeezed = (torch.rand(5, 2, generator=generator, dtype=torch.float64) - 0.5) * 0.6
    q, k = torch.randn(2, 1, 1, 5, 32, generator=generator, dtype=torch.float64)

    def logits(u: Tensor) -> Tensor:
        metres = 100.0 * u / (1 - u.abs())  # the inverse of the compression
        rotations = angles(metres)[None]
        return rotate(q, rotations) @ rotate(k, rotations).transpose(-1, -2)

    shift = torch.tensor([0.13, -0.21], dtype=torch.float64)
    torch.testing.assert_close(logits(squeezed), logits(squeezed + shift), rtol=1e-6, atol=1e-6)
    assert (logits(squeezed) - logits(squeezed * 1.1)).abs().max() > 1e-2


def test_the_two_axes_have_their_own_channels() -> None:
    angles = RotaryAngles(2, 32, 100.0, 0.25, 16.0)
    east, north = angles(torch.tensor([[30.0, 0.0], [0.0, 30.0]]))
    assert torch.equal(east[:8], north[8:]) and not east[8:].any() and not north[:8].any()
    assert east[:8].abs().min() > 0
    cycles = angles.cycles
    assert isinstance(cycles, list) and all(type(f) is float for f in cycles)
    assert cycles == pytest.approx([0.25 * 64 ** (i / 7) for i in range(8)], rel=1e-15)
    torch.testing.assert_close(east[:8] / east[0], torch.tensor(cycles) / 0.25)


def test_the_scale_starts_at_its_setting_and_learns() -> None:
    torch.manual_seed(0)
    model = aio.create_model("atomizer_io_tiny", width=32, depth=1, self_head_dim=16, self_heads=2, rope_scale_m=317.0)
    processor = model.processor
    torch.testing.assert_close(processor.angles.scale, torch.tensor(317.0))
    out = processor(torch.randn(1, 6, 32), (torch.rand(1, 6, 2) - 0.5) * 600)
    out.square().sum().backward()
    assert processor.angles.log_ratio.grad.abs() > 0
    with torch.no_grad():
        processor.angles.log_ratio.fill_(-50.0)
    assert processor.angles.scale > 0  # whatever training does to it


def test_a_bfloat16_model_has_exact_frequencies() -> None:
    settings = {"width": 32, "depth": 1, "global_latents": 2, "self_heads": 2, "self_head_dim": 64}
    exact = aio.create_model("atomizer_io_tiny", **settings).processor.angles.cycles
    half = aio.create_model("atomizer_io_tiny", **settings).bfloat16().processor.angles
    assert half.cycles == exact  # to the last bit
    assert max(abs(float(torch.tensor(f).bfloat16()) / f - 1) for f in exact) > 5e-4  # which bfloat16 cannot hold
    east = half(torch.tensor([[37.0, 0.0]], dtype=torch.float64))[0, :16].detach().double()
    torch.testing.assert_close(east / east[0], torch.tensor(exact, dtype=torch.float64) / exact[0], rtol=1e-6, atol=0)


def test_angles_keep_their_precision_under_bfloat16() -> None:
    where = anchors()
    exact = RotaryAngles(2, 64, HALF_EXTENT_M, 0.25, 16.0)
    half = RotaryAngles(2, 64, HALF_EXTENT_M, 0.25, 16.0).bfloat16()
    assert half.log_ratio.dtype == torch.bfloat16
    angles = half(where)
    assert angles.dtype == torch.float32
    torch.testing.assert_close(angles, exact(where), rtol=0, atol=0.05)  # bfloat16 itself steps by 0.25 at 50 rad
    assert separation(angles.detach().double()).min() > CLEAR
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(exact(where), exact(where).float())
        assert exact(where).dtype == torch.float32
    assert RotaryAngles(2, 64, HALF_EXTENT_M, 0.25, 16.0).double()(where).dtype == torch.float64
