"""UniverSat as a network: patches of any sensor become tokens, tokens a map at a stride of pixels.

Shapes: B samples, T dates, C channels, H × W pixels; P patches of S sub-patches of I pixels; D width, L sub-patches of
all patches, Q tokens that are decoded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from atomizer_lab.baselines.modalities import Size, Spectrum
from atomizer_lab.baselines.universat_layers import (
    AxialPool,
    FourierLift,
    GatedBlock,
    GatedCrossBlock,
    Rotary,
    border_places,
    places,
    rms_norm,
    turn_of_days,
)

REGISTERS, DATE_REGISTERS, AREA_REGISTERS = 4, 2, 4
FUSION_HEADS = 8
AT_ONCE, AT_ONCE_CPU = 1 << 18, 1 << 13  # atoms that are encoded together: on a CPU their features stay in its cache
KEPT = 1 << 19  # atoms whose features are kept for the backward pass (some 8 kB each); beyond, they are computed again


@dataclass(frozen=True, slots=True)
class Layout:
    """The channels of a modality, its patches in pixels and its pixels in metres, both down and across."""

    spectrum: Spectrum
    patch: Size
    pixel_m: tuple[float, float]


@dataclass(frozen=True, slots=True)
class Tokens:
    """Tokens (B, rows · columns, D) of one modality, its sub-patches (B, L, D) and where those lie (L, 2)."""

    token_BPD: Tensor
    grid: Size
    sub_BLD: Tensor
    place_L2: Tensor


class PatchEncoder(nn.Module):
    """Pools the pixels of a sub-patch, channels, dates and sub-patches, one after the other (order S1, C, T, S)."""

    def __init__(self, width: int, heads: int, subpatch: int, codes: int) -> None:
        super().__init__()
        narrow = width // 8
        self.subpatch = subpatch
        self.lift, self.wavelength = FourierLift(narrow, 2.5), FourierLift(narrow, 1.0)
        self.code = nn.Parameter(torch.randn(codes, narrow))
        self.pixels = AxialPool(narrow, max(1, heads // 6))
        self.channels = AxialPool(2 * narrow, max(1, heads // 4))
        self.dates = AxialPool(4 * narrow, max(1, heads // 2))
        self.area = AxialPool(8 * narrow, heads)
        self.pixel_rotary, self.area_rotary = Rotary(self.pixels.head), Rotary(self.area.head)
        self.date_register = nn.Parameter(0.02 * torch.randn(DATE_REGISTERS, 4 * narrow))
        self.area_register = nn.Parameter(0.02 * torch.randn(AREA_REGISTERS, 8 * narrow))
        self.sub = nn.Linear(8 * narrow, width)
        self.norm, self.out = rms_norm(16 * narrow), nn.Linear(16 * narrow, width)

    def forward(self, values_BTCHW: Tensor, day_BT: Tensor, layout: Layout) -> Tokens:
        """Encode all patches of one modality, so many at once that memory stays bounded."""
        (batch, dates, channels, height, width), side = values_BTCHW.shape, self.subpatch
        rows, columns = height // layout.patch[0], width // layout.patch[1]
        down, across = (size // side for size in layout.patch)
        cut = values_BTCHW.reshape(batch, dates, channels, rows, down, side, columns, across, side)
        x_BPSTCI = cut.permute(0, 3, 6, 4, 7, 1, 2, 5, 8).reshape(
            batch, rows * columns, down * across, dates, channels, side * side
        )
        code_CD = self.codes(layout.spectrum).to(x_BPSTCI.dtype)
        at_once = (AT_ONCE_CPU if x_BPSTCI.device.type == "cpu" else AT_ONCE) // max(1, x_BPSTCI[:, 0].numel())
        again = torch.is_grad_enabled() and x_BPSTCI.numel() > KEPT
        parts = []
        for part in x_BPSTCI.split(max(1, at_once), dim=1):
            if again:
                parts.append(checkpoint(self.encode, part, day_BT, code_CD, layout, use_reentrant=False))
            else:
                parts.append(self.encode(part, day_BT, code_CD, layout))
        token_BPD, sub_BPSD = (torch.cat(tokens, dim=1) for tokens in zip(*parts, strict=True))
        place = places(rows * down, columns * across).reshape(rows, down, columns, across, 2)
        place_L2 = place.transpose(1, 2).reshape(-1, 2).to(values_BTCHW.device)
        return Tokens(token_BPD, (rows, columns), sub_BPSD.flatten(1, 2), place_L2)

    def codes(self, spectrum: Spectrum) -> Tensor:
        """Return the codes of the channels (C, D / 8): a function of the wavelength, or a learned code."""
        device = self.code.device
        number_C = torch.tensor(spectrum.codes, device=device)
        by_wavelength = self.wavelength(torch.tensor(spectrum.wavelengths_um, device=device).to(self.code.dtype))
        return torch.where(number_C[:, None] < 0, by_wavelength, self.code[number_C.clamp(min=0)])

    def encode(self, x_BPSTCI: Tensor, day_BT: Tensor, code_CD: Tensor, layout: Layout) -> tuple[Tensor, Tensor]:
        """Return the tokens (B, P, D) of patches and those of their sub-patches (B, P, S, D)."""
        batch, patches, subs, dates, channels, pixels = x_BPSTCI.shape
        x = self.lift(x_BPSTCI).reshape(batch, -1, pixels, self.code.shape[-1])
        turn = None
        if pixels > 1:
            scale = self.subpatch * max(layout.pixel_m) / 10
            turn = self.pixel_rotary(scale * places(self.subpatch, self.subpatch))
        x = self.pixels(x, turn).unflatten(1, (-1, channels)) + code_CD.repeat(1, 2)
        x = self.channels(x).unflatten(1, (-1, dates))
        turn = None
        if dates > 1:
            x = torch.cat([self.date_register.to(x.dtype).expand(*x.shape[:2], -1, -1), x], dim=2)
            turn = turn_of_days(F.pad(day_BT, (DATE_REGISTERS, 0)), self.dates.head)
        x = self.dates(x, turn).unflatten(1, (patches, subs))
        sub_BPSD = self.sub(x)
        x = torch.cat([self.area_register.to(x.dtype).expand(*x.shape[:2], -1, -1), x], dim=2)
        down, across = (size // self.subpatch for size in layout.patch)
        metres = max(size * pixel for size, pixel in zip(layout.patch, layout.pixel_m, strict=True))
        scale = metres / 10 * max(down, across) / 100
        place = torch.cat([border_places(AREA_REGISTERS), places(down, across)])
        x = self.area(x, self.area_rotary(scale * place))
        return self.out(self.norm(x)), sub_BPSD


class UniverSatNetwork(nn.Module):
    """Encodes the patches of each modality, fuses them, lets tokens attend, and reads sub-patches at the output."""

    def __init__(
        self, encoder: PatchEncoder, depth: int, heads: int, outputs: int, pixels: int = 1, train_skip: bool = False
    ) -> None:
        super().__init__()
        width = encoder.out.out_features
        self.encoder, self.outputs, self.train_skip = encoder, outputs, train_skip
        self.fusion = AxialPool(width, FUSION_HEADS, expand=1)
        self.register = nn.Parameter(0.02 * torch.randn(REGISTERS, width))
        self.blocks = nn.ModuleList(GatedBlock(width, heads) for _ in range(depth))
        self.decoder = GatedCrossBlock(width, heads)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, pixels * outputs)
        for name, layer in self.named_modules():
            if isinstance(layer, nn.Linear) and not name.endswith(("query", "key", "value", "decoder.out")):
                nn.init.xavier_uniform_(layer.weight)
                nn.init.zeros_(layer.bias)

    def forward(self, tensors: Sequence[Tensor], layouts: Sequence[Layout], output: Size | None = None) -> Tensor:
        """Return (B, Q · pixels, outputs) for the decoded tokens of the ``output`` grid; without one (B, outputs).

        ``tensors`` are values (B, T, C, H, W) and then days (B, T), one of each per modality, and for a dense task the
        numbers (B, Q) of the decoded tokens.
        """
        count = len(layouts)
        parts = zip(tensors[:count], tensors[count : 2 * count], layouts, strict=True)
        seen = [self.encoder(values, days, layout) for values, days, layout in parts]
        latent = max((tokens.grid for tokens in seen), key=lambda grid: grid[0] * grid[1])
        x_BLD = self.attended(self.fused(seen, latent), latent)
        if output is None:  # a scene needs no decoder
            scene: Tensor = self.head(self.norm(x_BLD.mean(dim=1)))
            return scene
        x_BQD = self.decoded(resized(x_BLD, latent, output), places(*output), tensors[2 * count], seen)
        out: Tensor = self.head(self.norm(x_BQD))
        return out.reshape(len(out), -1, self.outputs)

    def attended(self, x_BLD: Tensor, grid: Size) -> Tensor:
        """Return the tokens after self-attention among them and the registers."""
        place_L2 = torch.cat([border_places(REGISTERS), places(*grid)]).to(x_BLD.device)
        x_BLD = torch.cat([self.register.to(x_BLD.dtype).expand(len(x_BLD), -1, -1), x_BLD], dim=1)
        for block in self.blocks:
            x_BLD = block(x_BLD, place_L2)
        return x_BLD[:, REGISTERS:]

    def decoded(self, x_BQD: Tensor, place_Q2: Tensor, decoded_BQ: Tensor, seen: Sequence[Tokens]) -> Tensor:
        """Return the decoded tokens after they read the sub-patches of all modalities; the rest of the map is left out.

        The tokens read independently of each other, so leaving some out changes nothing.
        """
        index = decoded_BQ[..., None]
        x_BQD = x_BQD.gather(1, index.expand(-1, -1, x_BQD.shape[-1]))
        place_BQ2 = place_Q2.to(x_BQD.device).expand(len(x_BQD), -1, -1).gather(1, index.expand(-1, -1, 2))
        sub_BLD = torch.cat([tokens.sub_BLD for tokens in seen], dim=1)
        place_L2 = torch.cat([tokens.place_L2 for tokens in seen])
        out: Tensor = self.decoder(x_BQD, place_BQ2, sub_BLD if self.train_skip else sub_BLD.detach(), place_L2)
        return out

    def fused(self, seen: Sequence[Tokens], grid: Size) -> Tensor:
        """Return one token (B, L, D) per place of ``grid``, pooled over the modalities."""
        tokens = [resized(part.token_BPD, part.grid, grid) for part in seen]
        out: Tensor = self.fusion(torch.stack(tokens, dim=2))
        return out


def resized(x_BLD: Tensor, old: Size, new: Size) -> Tensor:
    """Return tokens of the grid ``old`` on the grid ``new``, interpolated between the nearest four."""
    if old == new:
        return x_BLD
    image = x_BLD.transpose(1, 2).unflatten(2, old)
    return F.interpolate(image, size=new, mode="bilinear", align_corners=True).flatten(2).transpose(1, 2)
