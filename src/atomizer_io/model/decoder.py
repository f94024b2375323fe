"""From latents to answers at any position (paper, §3.5).

``q̃ = q_init + CrossAttn_obs(LN(q_init), co-located tokens)``, ``q = q̃ + CrossAttn_dec(LN(q̃), [LN(h_l); φ_δ] of the
nearest latents)``, ``q += FF(LN(q))``. Both attentions are folded: the first has one shared query, so tokens are
pooled before they are projected; in the second, latents are projected to keys and values once, and offsets enter as
66 numbers per neighbour.

Shapes: M queries, k neighbours, L latents, A acquisitions, K kinds (all channels of all acquisitions), P sites and C
channels of one acquisition, H heads, E head dim, D width, F token features, O offset features.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from atomizer_io.atoms import AtomSet
from atomizer_io.model.config import AtomizerConfig
from atomizer_io.model.layers import FeedForward
from atomizer_io.model.tokens import Tokenizer, TokenParts, offset_dim, offset_features, value_features

CHUNK_QUERIES = 4096
CHUNK_SLOTS = 1 << 17  # queries × kinds in flight at once


@dataclass(frozen=True, slots=True)
class Observations:
    """The tokens of a scene, ready to be looked up by site."""

    standard: list[Tensor]  # (P, C) of each acquisition
    valid: list[Tensor]
    site_PF: list[Tensor | None]
    kind_KF: Tensor

    @classmethod
    def of(cls, atoms: AtomSet, tokenizer: Tokenizer) -> Observations:
        """Read a scene with ``tokenizer``."""
        return cls(
            standard=[tokenizer.standardise(a) for a in atoms],
            valid=[a.valid_mask() for a in atoms],
            site_PF=[tokenizer.site_features(a) for a in atoms],
            kind_KF=torch.cat([tokenizer.kind_features(a) for a in atoms]),
        )

    def at(self, sites_MA: Tensor) -> tuple[Tensor, Tensor]:
        """Values and validity (M, K) of every kind at the sites seen by each query (−1: none)."""
        values, valid = [], []
        for a, (standard_PC, valid_PC) in enumerate(zip(self.standard, self.valid, strict=True)):
            site_M = sites_MA[:, a]
            present_MC = valid_PC.index_select(0, site_M.clamp(min=0)) & (site_M >= 0)[:, None]
            values.append(torch.where(present_MC, standard_PC.index_select(0, site_M.clamp(min=0)), 0.0))
            valid.append(present_MC)
        return torch.cat(values, dim=1), torch.cat(valid, dim=1)


class ObservationAttention(nn.Module):
    """CrossAttn_obs: from the shared query to the tokens at each position; one learned token where nothing was seen."""

    def __init__(self, config: AtomizerConfig) -> None:
        super().__init__()
        self.config = config
        self.parts = TokenParts.of(config)
        self.heads, self.head_dim = config.cross_heads, config.cross_head_dim
        inner = self.heads * self.head_dim
        self.norm = nn.LayerNorm(config.width)
        self.query = nn.Linear(config.width, inner, bias=False)
        self.key = nn.Linear(sum(self.parts), inner, bias=False)
        self.value = nn.Linear(sum(self.parts), inner, bias=False)
        self.unseen = nn.Parameter(torch.empty(sum(self.parts)))
        nn.init.trunc_normal_(self.unseen, std=0.02)
        self.out = nn.Linear(inner, config.width)

    def forward(self, q_D: Tensor, seen: Observations, sites_MA: Tensor) -> Tensor:
        """(M, D), to be added to the query."""
        weights_MKH, phi_MKF, valid_MK = self.weights(q_D, seen, sites_MA)
        pooled = [torch.einsum("mkh,mkf->mhf", weights_MKH, phi_MKF)]
        pooled.append(torch.einsum("mkh,kf->mhf", weights_MKH, seen.kind_KF))
        pooled.append(self._pool_sites(weights_MKH, seen, sites_MA))
        value_HEF = self.value.weight.unflatten(0, (self.heads, self.head_dim))
        attended_MHE = torch.einsum("mhf,hef->mhe", torch.cat(pooled, dim=-1), value_HEF)
        anything_M = valid_MK.any(dim=1)
        attended_ME = torch.where(anything_M[:, None], attended_MHE.flatten(1), self.value(self.unseen))
        out_MD: Tensor = self.out(attended_ME)
        return out_MD

    def weights(self, q_D: Tensor, seen: Observations, sites_MA: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Attention (M, K, H) to every kind, its φ_v (M, K, F) and validity (M, K); zero where invalid."""
        query_HE = self.query(self.norm(q_D)).unflatten(0, (self.heads, self.head_dim)) / math.sqrt(self.head_dim)
        logit_FH = torch.einsum("he,hef->fh", query_HE, self.key.weight.unflatten(0, (self.heads, self.head_dim)))
        value_FH, kind_FH, site_FH = logit_FH.split(list(self.parts))
        values_MK, valid_MK = seen.at(sites_MA)
        phi_MKF = value_features(values_MK, self.config)
        logits_MKH = phi_MKF @ value_FH + seen.kind_KF @ kind_FH
        if any(features is not None for features in seen.site_PF):
            parts = [
                self._site(seen, sites_MA, a, standard_PC.shape[1], site_FH)
                for a, standard_PC in enumerate(seen.standard)
            ]
            logits_MKH = logits_MKH + torch.cat(parts, dim=1)
        logits_MKH = logits_MKH.to(torch.promote_types(logits_MKH.dtype, torch.float32))
        hidden = ~valid_MK & valid_MK.any(dim=1, keepdim=True)
        weights_MKH = logits_MKH.masked_fill(hidden[..., None], -torch.inf).softmax(dim=1)
        return weights_MKH.to(phi_MKF.dtype), phi_MKF, valid_MK

    def _site(self, seen: Observations, sites_MA: Tensor, a: int, channels: int, site_FH: Tensor) -> Tensor:
        """Share of the site fields in the logits of one acquisition: (M, C, H)."""
        features_PF = seen.site_PF[a]
        if features_PF is None:
            return site_FH.new_zeros(len(sites_MA), channels, site_FH.shape[1])
        logits_MH = features_PF.index_select(0, sites_MA[:, a].clamp(min=0)) @ site_FH
        return logits_MH[:, None].expand(-1, channels, -1)

    def _pool_sites(self, weights_MKH: Tensor, seen: Observations, sites_MA: Tensor) -> Tensor:
        """Σ α over the site fields: (M, H, F)."""
        pooled_MHF = weights_MKH.new_zeros(len(sites_MA), self.heads, self.parts.site)
        first = 0
        for a, (features_PF, standard_PC) in enumerate(zip(seen.site_PF, seen.standard, strict=True)):
            last = first + standard_PC.shape[1]
            if features_PF is not None:
                features_MF = features_PF.index_select(0, sites_MA[:, a].clamp(min=0))
                pooled_MHF = pooled_MHF + weights_MKH[:, first:last].sum(dim=1)[..., None] * features_MF[:, None]
            first = last
        return pooled_MHF


@dataclass(frozen=True, slots=True)
class Projected:
    """Latents as keys and values (L, H, E), projected once."""

    key_LHE: Tensor
    value_LHE: Tensor


class LatentAttention(nn.Module):
    """CrossAttn_dec: from each query to its nearest latents and their offsets."""

    def __init__(self, config: AtomizerConfig) -> None:
        super().__init__()
        self.config = config
        self.heads, self.head_dim = config.cross_heads, config.cross_head_dim
        self.offset_dim = offset_dim(config)
        inner = self.heads * self.head_dim
        self.context_norm = nn.LayerNorm(config.width)
        self.norm = nn.LayerNorm(config.width)
        self.query = nn.Linear(config.width, inner, bias=False)
        self.key = nn.Linear(config.width + self.offset_dim, inner, bias=False)
        self.value = nn.Linear(config.width + self.offset_dim, inner, bias=False)
        self.out = nn.Linear(inner, config.width)

    def project(self, h_LD: Tensor) -> Projected:
        """Keys and values of the latents, without their offsets."""
        context_LD = self.context_norm(h_LD)
        width = h_LD.shape[1]
        shape = (self.heads, self.head_dim)
        return Projected(
            (context_LD @ self.key.weight[:, :width].T).unflatten(1, shape),
            (context_LD @ self.value.weight[:, :width].T).unflatten(1, shape),
        )

    def forward(self, q_MD: Tensor, latents: Projected, neighbors_Mk: Tensor, delta_Mk2: Tensor) -> Tensor:
        """(M, D), to be added to the query."""
        weights_MkH, phi_MkO = self.weights(q_MD, latents, neighbors_Mk, delta_Mk2)
        values_MkHE = latents.value_LHE[neighbors_Mk]
        attended_MHE = torch.einsum("mkh,mkhe->mhe", weights_MkH, values_MkHE)
        if phi_MkO is not None:
            pooled_MHO = torch.einsum("mkh,mko->mho", weights_MkH, phi_MkO)
            attended_MHE = attended_MHE + torch.einsum("mho,heo->mhe", pooled_MHO, self._offset_weight(self.value))
        out_MD: Tensor = self.out(attended_MHE.flatten(1))
        return out_MD

    def weights(
        self, q_MD: Tensor, latents: Projected, neighbors_Mk: Tensor, delta_Mk2: Tensor
    ) -> tuple[Tensor, Tensor | None]:
        """Attention (M, k, H) to the neighbours, and φ_δ (M, k, O) of their offsets."""
        query_MHE = self.query(self.norm(q_MD)).unflatten(1, (self.heads, self.head_dim)) / math.sqrt(self.head_dim)
        logits_MkH = torch.einsum("mhe,mkhe->mkh", query_MHE, latents.key_LHE[neighbors_Mk])
        phi_MkO = None
        if self.offset_dim:
            phi_MkO = offset_features(delta_Mk2, self.config)
            turned_MHO = torch.einsum("mhe,heo->mho", query_MHE, self._offset_weight(self.key))
            logits_MkH = logits_MkH + torch.einsum("mho,mko->mkh", turned_MHO, phi_MkO)
        logits_MkH = logits_MkH.to(torch.promote_types(logits_MkH.dtype, torch.float32))
        return logits_MkH.softmax(dim=1).to(q_MD.dtype), phi_MkO

    def _offset_weight(self, layer: nn.Linear) -> Tensor:
        weight_HEO: Tensor = layer.weight[:, self.config.width :].unflatten(0, (self.heads, self.head_dim))
        return weight_HEO


class Decoder(nn.Module):
    """Decoded representations and the answers of the head, chunk by chunk: memory does not grow with M × D."""

    def __init__(self, config: AtomizerConfig) -> None:
        super().__init__()
        self.q_init = nn.Parameter(torch.empty(config.width))
        nn.init.trunc_normal_(self.q_init, std=0.02)
        self.observation = ObservationAttention(config) if config.observation_conditioning else None
        self.latent = LatentAttention(config)
        self.feedforward = FeedForward(config.width, config.decoder_expansion, config.feedforward_dropout)

    def forward(
        self,
        head: nn.Module,
        h_LD: Tensor,
        anchors_L2: Tensor,
        queries_M2: Tensor,
        neighbors_Mk: Tensor,
        seen: Observations | None,
        sites_MA: Tensor | None,
    ) -> Tensor:
        """Answers (M, outputs) of ``head`` at ``queries_M2`` (metres from the scene's centre, float64)."""
        latents = self.latent.project(h_LD)

        def chunk(rows: slice) -> Tensor:
            neighbors = neighbors_Mk[rows].to(h_LD.device)
            delta_Mk2 = (anchors_L2[neighbors_Mk[rows]] - queries_M2[rows, None]).to(h_LD)
            sites = None if sites_MA is None else sites_MA[rows].to(h_LD.device)
            q_MD = self.conditioned(seen, sites, rows.stop - rows.start)
            q_MD = q_MD + self.latent(q_MD, latents, neighbors, delta_Mk2)
            answer: Tensor = head(q_MD + self.feedforward(q_MD))
            return answer

        answers = []
        for rows in chunks(len(queries_M2), 0 if seen is None else len(seen.kind_KF)):
            answers.append(checkpoint(chunk, rows, use_reentrant=False) if torch.is_grad_enabled() else chunk(rows))
        return torch.cat(answers)

    def conditioned(self, seen: Observations | None, sites_MA: Tensor | None, count: int) -> Tensor:
        """q̃ (M, D): the shared query, updated with what was observed at each position."""
        if self.observation is None or seen is None or sites_MA is None:
            return self.q_init.expand(count, -1)
        query_MD: Tensor = self.q_init + self.observation(self.q_init, seen, sites_MA)
        return query_MD


def chunks(queries: int, kinds: int) -> Iterator[slice]:
    """Runs of queries small enough for memory; one empty run if there are none."""
    size = max(1, min(CHUNK_QUERIES, CHUNK_SLOTS // max(1, kinds)))
    for start in range(0, max(1, queries), size):
        yield slice(start, min(queries, start + size))
