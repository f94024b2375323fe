"""RAMEN as a network: channels of any number become tokens of one width, which a transformer and UPerNet read.

Shapes: B samples, T dates, C channels, h × w tokens of a modality, L = h·w, D width, E experts, N tokens of all.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from atomizer_lab.baselines.batch_norm import BatchNorm1d
from atomizer_lab.baselines.ltae import LTAE
from atomizer_lab.baselines.modalities import Size, Spectrum
from atomizer_lab.baselines.transformer import EPS, Transformer, taps_of
from atomizer_lab.baselines.upernet import DeconvolvedLevels, UPerNet

EXPERTS = 4
LTAE_HEADS, LTAE_KEY = 16, 16
COLDEST = 1e-3  # temperature of the gate
NM_PER_UM = 1000.0
BASE = 10_000.0


@dataclass(frozen=True, slots=True)
class Reading:
    """The channels of a modality, the scale from its pixels to tokens, and the size of a token in metres."""

    spectrum: Spectrum
    scale: float
    metre: float


def waves(x: Tensor, width: int) -> Tensor:
    """Return sines and then cosines (..., width) of ``x`` times 10000^(−i / (width / 2)); computed in double."""
    half = width // 2
    angle = x.double()[..., None] * BASE ** -(torch.arange(half, dtype=torch.float64, device=x.device) / half)
    return torch.cat([angle.sin(), angle.cos()], dim=-1).float()


def metric_positions(size: Size, metre: float, width: int) -> Tensor:
    """Return the position code (L, D) of tokens by their row and column in metres, half of it for each."""
    rows, columns = (metre * torch.arange(count) for count in size)
    down, across = waves(rows, width // 2), waves(columns, width // 2)
    grid = [down[:, None].expand(-1, size[1], -1), across[None].expand(size[0], -1, -1)]
    return torch.cat(grid, dim=-1).flatten(0, 1)


def projector(width: int) -> nn.Sequential:
    """Return the network from the code of a channel to the vector that its values are multiplied with."""
    return nn.Sequential(nn.Linear(width, 2 * width), nn.GELU(), nn.Linear(2 * width, width), nn.LayerNorm(width))


class LearnedProjector(nn.Module):
    """A learned code per channel and a projector."""

    def __init__(self, codes: int, width: int) -> None:
        super().__init__()
        self.code_CD = nn.Parameter(0.02 * torch.randn(codes, width))
        self.project = projector(width)

    def forward(self, number_C: Tensor) -> Tensor:
        """Numbers (C,) of codes → vectors (C, D)."""
        out: Tensor = self.project(self.code_CD[number_C])
        return out


class ScaleGatedExperts(nn.Module):
    """A residual of four linear experts, x + Σ w_e (W_e x + b_e), whose weights w follow from the scale alone."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.experts = nn.ModuleList(nn.Linear(width, width) for _ in range(EXPERTS))
        self.gate = nn.Sequential(nn.Linear(width, width // 4), nn.GELU(), nn.Linear(width // 4, EXPERTS))
        self.temperature = nn.Parameter(torch.tensor(0.7))

    def weights(self, scale: float) -> Tensor:
        """Return the share (E,) of each expert at a scale."""
        first: nn.Linear = self.gate[0]  # type: ignore[assignment]
        code_D = waves(torch.tensor(scale, device=first.weight.device).log(), first.in_features)
        share: Tensor = self.gate(code_D.to(first.weight.dtype)) / self.temperature.clamp(min=COLDEST)
        return share.softmax(dim=-1)

    def folded(self, scale: float) -> tuple[Tensor, Tensor]:
        """Return the one matrix (D, D) and offset (D,) that all experts together are at a scale."""
        share_E = self.weights(scale)
        weight_EDD = torch.stack([expert.weight for expert in self.experts])  # type: ignore[misc]
        bias_ED = torch.stack([expert.bias for expert in self.experts])  # type: ignore[misc]
        whole_DD = torch.einsum("e,eij->ij", share_E, weight_EDD)
        return whole_DD + torch.eye(len(whole_DD), device=whole_DD.device, dtype=whole_DD.dtype), share_E @ bias_ED


class TemporalReading(nn.Module):
    """An L-TAE behind a linear layer with batch normalisation and ReLU."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.linear, self.norm = nn.Linear(width, width), BatchNorm1d(width)
        self.attend = LTAE(
            width,
            heads=LTAE_HEADS,
            key_width=LTAE_KEY,
            hidden=(width, 2 * width),
            dropout=0.0,
            project=False,
            norm_out=False,
            days=True,
        )

    def forward(self, x_BTLC: Tensor, weight_DC: Tensor, bias_D: Tensor, day_BT: Tensor, size: Size) -> Tensor:
        """Return (B, L, D) of values (B, T, L, C) that ``weight_DC`` and ``bias_D`` make features of."""
        weight_DC = self.linear.weight @ weight_DC
        x_BTLD = F.linear(x_BTLC, weight_DC, F.linear(bias_D, self.linear.weight, self.linear.bias))
        x_BTLD = self.norm(x_BTLD.flatten(0, 2)).relu().view_as(x_BTLD)
        merged: Tensor = self.attend(x_BTLD.transpose(2, 3).unflatten(3, size), day_BT)
        return merged.flatten(2).transpose(1, 2)


class RamenNetwork(nn.Module):
    """Projects, attends and decodes; with ``decoder_width`` None it predicts for scenes.

    Everything up to the first nonlinearity, be it of the L-TAE or the layer normalisation, is linear in the values: it
    is folded into one matrix (C, D) per modality, which is the same and takes fewer FLOPs.
    """

    def __init__(
        self,
        width: int,
        depth: int,
        heads: int,
        *,
        codes: int,
        relief: int,
        temporal: bool,
        outputs: int,
        decoder_width: int | None,
    ) -> None:
        super().__init__()
        self.optical, self.learned = projector(width), LearnedProjector(codes, width)
        self.relief = LearnedProjector(relief, width) if relief else None
        self.experts = ScaleGatedExperts(width)
        self.temporal = TemporalReading(width) if temporal else None
        self.norm = nn.LayerNorm(width, EPS)
        self.class_token_D = nn.Parameter(torch.zeros(width))
        self.trunk, self.taps = Transformer(width, depth, heads), taps_of(depth)
        self.levels = None if decoder_width is None else DeconvolvedLevels(width)
        self.decoder = None if decoder_width is None else UPerNet([width] * 4, outputs, decoder_width)
        self.head = nn.Linear(4 * width, outputs) if decoder_width is None else None

    def forward(self, tensors: Sequence[Tensor], readings: Sequence[Reading], output: Size | None = None) -> Tensor:
        """Return (B, H · W, outputs) on the grid ``output``, or (B, outputs) for scenes.

        ``tensors`` are values (B, T, C, h, w) and then days (B, T), one of each per modality.
        """
        count, size = len(readings), tensors[0].shape[-2:]
        parts = zip(tensors[:count], tensors[count:], readings, strict=True)
        tokens = [self.norm(self.read(values, days, reading)) for values, days, reading in parts]
        place_LD = metric_positions((size[0], size[1]), readings[0].metre, self.class_token_D.numel())
        place_LD = place_LD.to(tokens[0])
        first_B1D = self.class_token_D.expand(len(tokens[0]), 1, -1)
        x_BND = torch.cat([first_B1D, *(x_BLD + place_LD for x_BLD in tokens)], dim=1)
        # of each tap the mean over modalities (B, D, h, w)
        maps = [
            x_BND[:, 1:].unflatten(1, (count, -1)).mean(dim=1).transpose(1, 2).unflatten(2, size)
            for x_BND in self.trunk.tapped(x_BND, self.taps)
        ]
        if self.head is not None:
            scene: Tensor = self.head(torch.cat([level.mean(dim=(2, 3)) for level in maps], dim=1))
            return scene
        assert self.levels is not None and self.decoder is not None and output is not None
        out: Tensor = self.decoder(self.levels(maps), output)
        return out.flatten(2).transpose(1, 2)

    def read(self, values_BTChw: Tensor, day_BT: Tensor, reading: Reading) -> Tensor:
        """Return the tokens (B, L, D) of one modality, several dates merged."""
        weight_DC, bias_D = self.folded(reading)
        x_BTLC = values_BTChw.flatten(3).transpose(2, 3)
        if x_BTLC.shape[1] == 1:
            return F.linear(x_BTLC[:, 0], weight_DC, bias_D)
        assert self.temporal is not None
        merged: Tensor = self.temporal(x_BTLC, weight_DC, bias_D, day_BT, values_BTChw.shape[-2:])
        return merged

    def folded(self, reading: Reading) -> tuple[Tensor, Tensor]:
        """Return the matrix (D, C) and offset (D,) from channels to tokens: projector and experts together."""
        weight_DD, bias_D = self.experts.folded(reading.scale)
        return weight_DD @ self.vectors(reading.spectrum).T, bias_D

    def vectors(self, spectrum: Spectrum) -> Tensor:
        """Return the vector (C, D) of each channel; a modality is optical, radar or relief as a whole."""
        parameter = self.class_token_D
        if spectrum.codes[0] < 0:
            code_CD = waves(NM_PER_UM * torch.tensor(spectrum.wavelengths_um, device=parameter.device), len(parameter))
            optical: Tensor = self.optical(code_CD.to(parameter.dtype))
            return optical
        number_C = torch.tensor(spectrum.codes, device=parameter.device)
        learned = len(self.learned.code_CD)
        if spectrum.codes[0] < learned:
            radar: Tensor = self.learned(number_C)
            return radar
        assert self.relief is not None
        relief: Tensor = self.relief(number_C - learned)
        return relief
