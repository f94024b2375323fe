"""The parts of Perceiver-IO: its settings, the latents that read atoms, what queries see, and the decoder.

Shapes: L latents, M queries, P sites and C channels of an acquisition, K kinds, n atoms of a block, F token features,
H heads, E head dim, D width.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, linear, scaled_dot_product_attention

from atomizer_io.errors import ConfigError, check_count
from atomizer_io.models.atomizer.config import LEARNED_CHANNELS, SITE_FIELDS, SiteField
from atomizer_io.models.atomizer.encodings import fourier, fourier_dim
from atomizer_io.models.atomizer.layers import FeedForward, GatedFeedForward
from atomizer_io.models.atomizer.ops.memory import Keeping, rows_at_once
from atomizer_io.models.atomizer.tokenizer import Tokenizer
from atomizer_io.models.atomizer.tokens import value_features
from atomizer_lab.baselines.perceiver_scene import Block, PerceiverInput
from atomizer_lab.baselines.streaming import streamed_attention


@dataclass(frozen=True, slots=True)
class PerceiverSettings:
    """Settings of a Perceiver-IO; the defaults are the paper's for dense tasks.

    Positions are divided by ``position_scale_m``, half the usual width of a scene. ``point_tokens`` lets queries see
    the point that they look at. Maps are learned and read in windows of ``window_px`` pixels (None: whole), where
    positions are divided by half the width of a window. ``budget`` is how many atoms of a scene or window a training
    step reads, drawn anew each time (None: all); ``max_points`` how many points of a point cloud are read at all.
    """

    learned_channels: tuple[str, ...] = LEARNED_CHANNELS
    site_fields: tuple[SiteField, ...] = SITE_FIELDS
    latents: int = 512
    width: int = 512
    depth: int = 6
    heads: int = 8
    head_dim: int = 64
    expansion: float = 4.0
    gated: bool = True  # feed-forward layers have a gate (GEGLU)
    cross_feedforward: bool = True  # latents have a feed-forward layer after they read the atoms
    position_frequencies: int = 16
    position_max_frequency: float = 16.0
    position_scale_m: float = 2560.0
    point_tokens: bool = False
    window_px: int | None = None
    budget: int | None = None
    max_points: int | None = None

    def __post_init__(self) -> None:
        fields = (field if isinstance(field, SiteField) else SiteField(**field) for field in self.site_fields)
        object.__setattr__(self, "site_fields", tuple(fields))  # plain values where they come from a file
        for name in ("latents", "width", "depth", "heads", "head_dim", "position_frequencies"):
            check_count(name, getattr(self, name))
        for name in ("window_px", "budget", "max_points"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name))
        for name in ("expansion", "position_scale_m"):
            if not getattr(self, name) > 0:
                raise ConfigError(f"{name} must be positive, got {getattr(self, name)}")

    @property
    def position_dim(self) -> int:
        """The number of features of a position."""
        return 2 * fourier_dim(self.position_frequencies)

    def position_features(self, where_M2: Tensor, exact: torch.dtype) -> Tensor:
        """Return Fourier features (M, F) of positions in metres from the centre of the scene."""
        scaled_M2 = (where_M2 / self.position_scale_m).to(exact)
        return fourier(scaled_M2, self.position_frequencies, self.position_max_frequency).flatten(-2)

    def feedforward(self) -> nn.Module:
        """Return a new feed-forward layer."""
        return (GatedFeedForward if self.gated else FeedForward)(self.width, self.expansion)


class AtomReader(nn.Module):
    """``h = h + CrossAttn(LN(h), LN(tokens))``, ``h += FF(LN(h))``: the learned latents read all atoms of a scene."""

    def __init__(self, settings: PerceiverSettings, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.chosen, inner = settings, settings.heads * settings.head_dim
        self.latents = nn.Parameter(torch.empty(settings.latents, settings.width))
        nn.init.trunc_normal_(self.latents, std=0.02)
        self.norm = nn.LayerNorm(settings.width)
        self.query = nn.Linear(settings.width, inner, bias=False)
        self.token_norm = nn.LayerNorm(sum(tokenizer.parts) + settings.position_dim)
        self.key_value = nn.Linear(self.token_norm.normalized_shape[0], 2 * inner, bias=False)
        self.out = nn.Linear(inner, settings.width)
        self.feedforward = settings.feedforward() if settings.cross_feedforward else None

    def forward(self, scene: PerceiverInput, tokenizer: Tokenizer) -> Tensor:
        """Return the latents (L, D) of a scene."""
        heads = (self.chosen.heads, self.chosen.head_dim)
        kinds = [tokenizer.kind_features(acquisition) for acquisition in scene.atoms]
        firsts = [sum(map(len, kinds[:number])) for number in range(len(kinds))]

        def keys_and_values(
            block: Block, kind_KF: Tensor, scale_F: Tensor, shift_F: Tensor, weight_EF: Tensor
        ) -> tuple[Tensor, Tensor]:
            token_nF = self.tokens(block, scene, kind_KF[firsts[block.acquisition] :], tokenizer)
            normed_nF = layer_norm(token_nF, scale_F.shape, scale_F, shift_F)
            key_HnE, value_HnE = linear(normed_nF, weight_EF).unflatten(1, (2, *heads)).permute(1, 2, 0, 3)
            return key_HnE, value_HnE

        attended_HLE = streamed_attention(
            self.query(self.norm(self.latents)).unflatten(1, heads).transpose(0, 1),
            scene.blocks(rows_at_once(self.atom_bytes(), self.latents.device)),
            keys_and_values,
            torch.cat(kinds),
            *(self.token_norm.weight, self.token_norm.bias, self.key_value.weight),
        )
        h_LD: Tensor = self.latents + self.out(attended_HLE.transpose(0, 1).flatten(1))
        return h_LD if self.feedforward is None else h_LD + self.feedforward(h_LD)

    def atom_bytes(self) -> int:
        """What one atom takes on its way, roughly: its token, its key and value, and its logits for all latents."""
        numbers = 2 * self.chosen.latents * self.chosen.heads + 3 * self.key_value.in_features
        return (numbers + self.key_value.out_features) * self.latents.element_size()

    def tokens(self, block: Block, scene: PerceiverInput, kind_KF: Tensor, tokenizer: Tokenizer) -> Tensor:
        """Return the tokens (n, F) of the valid atoms of a block; ``kind_KF`` begins with those of its acquisition."""
        acquisition, used = scene.atoms.acquisitions[block.acquisition], scene.used[block.acquisition]
        device, channels = self.latents.device, len(acquisition.channels)
        index_n = torch.arange(block.first, block.last) if used is None else used[block.first : block.last]
        sites_P, slot_n = torch.unique_consecutive(index_n // channels, return_inverse=True)
        channel_n = index_n % channels
        part = acquisition.with_sites(sites_P)
        if part.valid is not None:
            keep_n = part.valid.cpu()[slot_n, channel_n]
            slot_n, channel_n = slot_n[keep_n], channel_n[keep_n]
        slot_n, channel_n = slot_n.to(device), channel_n.to(device)
        position_PF = self.chosen.position_features(part.positions - scene.center_2, tokenizer.exact)
        fields_PF = tokenizer.site_features(part)
        if fields_PF is None:
            fields_PF = kind_KF.new_zeros(len(sites_P), tokenizer.parts.site)
        site_PF = torch.cat([fields_PF, position_PF.to(kind_KF)], dim=1)
        value_nF = value_features(tokenizer.standardise(part)[slot_n, channel_n], tokenizer.encodings).to(kind_KF.dtype)
        return torch.cat([value_nF, kind_KF[channel_n], site_PF[slot_n]], dim=1)


class PointTokens(nn.Module):
    """What a query sees of the points it looks at: ``W₂ mean(GELU(W₁ token))`` over their atoms, 0 where it sees none.

    The tokens are those without a position, which the query has itself.
    """

    def __init__(self, width: int, tokenizer: Tokenizer) -> None:
        super().__init__()
        self.up = nn.Linear(sum(tokenizer.parts), width)
        self.out = nn.Linear(width, width, bias=False)

    def forward(self, scene: PerceiverInput, rows: slice, tokenizer: Tokenizer) -> Tensor:
        """Return what is to be added to some of the queries: (M, D)."""
        assert scene.sites_MA is not None
        weight, device = self.up.weight, self.up.weight.device
        sum_MD = weight.new_zeros(len(scene.sites_MA[rows]), weight.shape[0])
        count_M = weight.new_zeros(len(sum_MD), dtype=tokenizer.exact)
        for number, acquisition in scene.points:
            site_M = scene.sites_MA[rows, number]
            row_P = (site_M >= 0).nonzero()[:, 0]
            part = acquisition.with_sites(site_M[row_P])
            valid_PC, row_P = part.valid_mask().to(device), row_P.to(device)
            value_PCF = value_features(torch.where(valid_PC, tokenizer.standardise(part), 0.0), tokenizer.encodings)
            value, kind, site = self.up.weight.split(list(tokenizer.parts), dim=1)
            hidden_PCD = linear(value_PCF.to(weight.dtype), value, self.up.bias)
            hidden_PCD = hidden_PCD + linear(tokenizer.kind_features(acquisition), kind)
            fields_PF = tokenizer.site_features(part)
            if fields_PF is not None:
                hidden_PCD = hidden_PCD + linear(fields_PF, site)[:, None]
            seen_PD = (gelu(hidden_PCD) * valid_PC[..., None]).sum(dim=1)
            sum_MD = sum_MD.index_add(0, row_P, seen_PD.to(sum_MD.dtype))
            count_M = count_M.index_add(0, row_P, valid_PC.sum(dim=1).to(count_M.dtype))
        found_MD: Tensor = self.out(sum_MD / count_M.clamp(min=1).to(sum_MD.dtype)[:, None])
        return found_MD


class Decoder(nn.Module):
    """``q = W φ(p)``, ``q += CrossAttn(LN(q), LN(h))``, ``q += FF(LN(q))``, then a head of three layers."""

    def __init__(self, settings: PerceiverSettings, tokenizer: Tokenizer, outputs: int) -> None:
        super().__init__()
        self.chosen, width, inner = settings, settings.width, settings.heads * settings.head_dim
        self.position = nn.Linear(settings.position_dim, width)
        self.points = PointTokens(width, tokenizer) if settings.point_tokens else None
        self.norm, self.latent_norm = nn.LayerNorm(width), nn.LayerNorm(width)
        self.query = nn.Linear(width, inner, bias=False)
        self.key_value = nn.Linear(width, 2 * inner, bias=False)
        self.out = nn.Linear(inner, width)
        self.feedforward = settings.feedforward()
        self.head = nn.Sequential(
            *(nn.Linear(width, 2 * width), nn.LayerNorm(2 * width), nn.GELU()),
            *(nn.Linear(2 * width, width), nn.LayerNorm(width), nn.GELU()),
            nn.Linear(width, outputs),
        )

    def forward(self, h_LD: Tensor, scene: PerceiverInput, tokenizer: Tokenizer) -> Tensor:
        """Return the logits (M, outputs) at the queries of a scene, computed in blocks."""
        assert scene.queries_M2 is not None
        heads = (self.chosen.heads, self.chosen.head_dim)
        key_HLE, value_HLE = self.key_value(self.latent_norm(h_LD)).unflatten(1, (2, *heads)).permute(1, 2, 0, 3)
        count, size, keeping = len(scene.queries_M2), self.query_bytes(scene), Keeping()
        step = rows_at_once(size, h_LD.device)

        def decode(key_HLE: Tensor, value_HLE: Tensor, rows: slice) -> Tensor:
            return self.logits(key_HLE, value_HLE, scene, rows, tokenizer)

        blocks = []
        for first in range(0, max(count, 1), step):  # without queries one block, which is empty
            rows = slice(first, min(first + step, count))
            blocks.append(keeping.run(decode, key_HLE, value_HLE, rows, size=size * (rows.stop - first)))
        return blocks[0] if len(blocks) == 1 else torch.cat(blocks)

    def logits(
        self, key_HLE: Tensor, value_HLE: Tensor, scene: PerceiverInput, rows: slice, tokenizer: Tokenizer
    ) -> Tensor:
        """Return the logits (M, outputs) at the queries of ``rows``."""
        assert scene.queries_M2 is not None
        features_MF = self.chosen.position_features(scene.queries_M2[rows], tokenizer.exact)
        q_MD = self.position(features_MF.to(self.position.weight))
        if self.points is not None:
            q_MD = q_MD + self.points(scene, rows, tokenizer)
        query_HME = self.query(self.norm(q_MD)).unflatten(1, (self.chosen.heads, self.chosen.head_dim)).transpose(0, 1)
        attended_HME = scaled_dot_product_attention(query_HME[None], key_HLE[None], value_HLE[None])[0]
        q_MD = q_MD + self.out(attended_HME.transpose(0, 1).flatten(1))
        logits_MC: Tensor = self.head(q_MD + self.feedforward(q_MD))
        return logits_MC

    def query_bytes(self, scene: PerceiverInput) -> int:
        """What one query takes on its way, roughly: about twice the hidden features of the layers."""
        c = self.chosen
        numbers = 2 * round(c.width * c.expansion) * (2 + c.gated) + 14 * c.width + 2 * c.position_dim
        seen = sum(len(acquisition.channels) for _, acquisition in scene.points) if self.points is not None else 0
        return (numbers + 4 * seen * c.width) * self.position.weight.element_size()
