"""From latents to answers at any position (paper, §3.5).

``q̃ = q_init + CrossAttn_obs(LN(q_init), co-located tokens)``, ``q = q̃ + CrossAttn_dec(LN(q̃), [LN(h_l); φ_δ] of the
nearest latents)``, ``q += FF(LN(q))``. Both attentions are folded: the first has one shared query, so tokens are
pooled before they are projected; in the second, latents are projected to keys and values once, and offsets enter as
66 numbers per neighbour. As a setting, the height z of the point that a query names enters too: ``q̃ += MLP(φ(z))``.

Shapes: M queries, k neighbours, L latents, A acquisitions, K kinds (all channels of all acquisitions), P sites and C
channels of one acquisition, H heads, E head dim, D width, F token features, O offset features.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from atomizer_io.atoms import AtomSet
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.encodings import fourier_dim, frequency_step
from atomizer_io.models.atomizer.height import QueryHeight
from atomizer_io.models.atomizer.kernels import queries as kernel
from atomizer_io.models.atomizer.layers import FeedForward
from atomizer_io.models.atomizer.memory import Keeping, rows_at_once
from atomizer_io.models.atomizer.queries import Near
from atomizer_io.models.atomizer.tokens import Tokenizer, TokenParts, offset_dim, offset_features, value_features


@dataclass(frozen=True, slots=True)
class Observations:
    """The tokens of a scene, ready to be looked up by site."""

    standard: list[Tensor]  # (P, C) of each acquisition
    valid: list[Tensor | None]  # None: everything
    site_PF: list[Tensor | None]
    kind_KF: Tensor

    @classmethod
    def of(cls, atoms: AtomSet, tokenizer: Tokenizer) -> Observations:
        """Return the tokens of a scene as ``tokenizer`` makes them."""
        return cls(
            standard=[tokenizer.standardise(a) for a in atoms],
            valid=[a.valid for a in atoms],
            site_PF=[tokenizer.site_features(a) for a in atoms],
            kind_KF=torch.cat([tokenizer.kind_features(a) for a in atoms]),
        )

    def at(self, sites_MA: Tensor) -> tuple[Tensor, Tensor]:
        """Return values and validity (M, K) of every kind at the sites that each query sees (−1: none)."""
        values, valid = [], []
        for a, (standard_PC, valid_PC) in enumerate(zip(self.standard, self.valid, strict=True)):
            site_M = sites_MA[:, a]
            present_MC = (site_M >= 0)[:, None].expand(-1, standard_PC.shape[1])
            if valid_PC is not None:
                present_MC = present_MC & valid_PC.index_select(0, site_M.clamp(min=0))
            values.append(torch.where(present_MC, standard_PC.index_select(0, site_M.clamp(min=0)), 0.0))
            valid.append(present_MC)
        return torch.cat(values, dim=1), torch.cat(valid, dim=1)


@dataclass(frozen=True, slots=True)
class Projected:
    """Latents as keys and values (L, H, E), projected once."""

    key_LHE: Tensor
    value_LHE: Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """Queries of one scene: what they see at their positions, and the latents near them."""

    near: Near
    latents: Projected
    seen: Observations | None
    sites_MA: Tensor | None
    heights_M: Tensor | None = None  # metres, NaN where unknown; None where the model does not use them

    def __len__(self) -> int:
        return len(self.near)

    def rows(self, rows: slice) -> Piece:
        """Return the piece with some of its queries only."""
        sites_MA = None if self.sites_MA is None else self.sites_MA[rows]
        heights_M = None if self.heights_M is None else self.heights_M[rows]
        return Piece(self.near.rows(rows), self.latents, self.seen, sites_MA, heights_M)


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

    def forward(self, q_D: Tensor, pieces: Sequence[Piece]) -> Tensor:
        """Return what observations add to the shared query, (M, D) for the queries of all pieces."""
        compiled = kernel.usable(q_D.dtype, q_D.device, self.heads, sum(self.parts))
        pool = self._pool_compiled if compiled else self._pool
        pooled = []
        for piece in pieces:
            assert piece.seen is not None and piece.sites_MA is not None
            pooled.append(pool(q_D, piece.seen, piece.sites_MA.to(q_D.device)))
        return self.project(_joined(pooled, dim=1))

    def project(self, pooled_HMF: Tensor) -> Tensor:
        """Return what pooled tokens (H, M, F) add to the shared query: (M, D)."""
        value_HEF = self.value.weight.unflatten(0, (self.heads, self.head_dim))
        attended_HME = pooled_HMF @ value_HEF.transpose(1, 2)
        out_MD: Tensor = self.out(attended_HME.transpose(0, 1).flatten(1))
        return out_MD

    def _pool(self, q_D: Tensor, seen: Observations, sites_MA: Tensor) -> Tensor:
        """Return the tokens that each query sees, pooled by attention: (H, M, F)."""
        weights_MKH, phi_MKF, valid_MK = self.weights(q_D, seen, sites_MA)
        site_HMF = self._pool_sites(weights_MKH, seen, sites_MA)
        return self.pool(weights_MKH, phi_MKF, seen.kind_KF, site_HMF, valid_MK)

    def pool(
        self, weights_MKH: Tensor, phi_MKF: Tensor, kind_KF: Tensor, site_HMF: Tensor | None, valid_MK: Tensor
    ) -> Tensor:
        """Return pooled tokens (H, M, F), a learned one where nothing is valid; site fields come in pooled already."""
        value_HMF = torch.einsum("mkh,mkf->hmf", weights_MKH, phi_MKF)
        kind_HMF = torch.einsum("mkh,kf->hmf", weights_MKH, kind_KF)
        parts = [value_HMF, kind_HMF] if site_HMF is None else [value_HMF, kind_HMF, site_HMF]
        pooled_HMF = torch.cat(parts, dim=-1)
        return torch.where(valid_MK.any(dim=1)[:, None], pooled_HMF, self.unseen)

    def _pool_compiled(self, q_D: Tensor, seen: Observations, sites_MA: Tensor) -> Tensor:
        value_FH, kind_FH, site_FH = self.logit_weights(q_D)
        c = self.config
        tokens = kernel.SeenTokens(
            seen.standard,
            seen.valid,
            seen.site_PF,
            sites_MA,
            c.value_frequencies,
            frequency_step(c.value_frequencies, c.value_max_frequency),
        )
        return kernel.pool_observations(tokens, seen.kind_KF, seen.kind_KF @ kind_FH, value_FH, site_FH, self.unseen)

    def logit_weights(self, q_D: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return what turns value, kind and site of a token into logits, (F, H) each: query and keys, folded."""
        shape = (self.heads, self.head_dim)
        query_HE = self.query(self.norm(q_D)).unflatten(0, shape) / math.sqrt(self.head_dim)
        logit_FH = torch.einsum("he,hef->fh", query_HE, self.key.weight.unflatten(0, shape))
        value_FH, kind_FH, site_FH = logit_FH.split(list(self.parts))
        return value_FH, kind_FH, site_FH

    def weights(self, q_D: Tensor, seen: Observations, sites_MA: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention (M, K, H) to every kind, zero where invalid, with its φ_v (M, K, F) and validity (M, K)."""
        value_FH, kind_FH, site_FH = self.logit_weights(q_D)
        values_MK, valid_MK = seen.at(sites_MA)
        phi_MKF = value_features(values_MK, self.config).to(value_FH.dtype)
        logits_MKH = phi_MKF @ value_FH + seen.kind_KF @ kind_FH
        if any(features is not None for features in seen.site_PF):
            parts = [
                self._site(seen, sites_MA, a, standard_PC.shape[1], site_FH)
                for a, standard_PC in enumerate(seen.standard)
            ]
            logits_MKH = logits_MKH + torch.cat(parts, dim=1)
        return self.softmax(logits_MKH, valid_MK), phi_MKF, valid_MK

    def softmax(self, logits_MKH: Tensor, valid_MK: Tensor) -> Tensor:
        """Return attention (M, K, H) among the valid kinds of each query, or among all where none is valid."""
        exact_MKH = logits_MKH.to(torch.promote_types(logits_MKH.dtype, torch.float32))
        hidden = ~valid_MK & valid_MK.any(dim=1, keepdim=True)
        return exact_MKH.masked_fill(hidden[..., None], -torch.inf).softmax(dim=1).to(logits_MKH.dtype)

    def _site(self, seen: Observations, sites_MA: Tensor, a: int, channels: int, site_FH: Tensor) -> Tensor:
        """Return what the site fields add to the logits of one acquisition: (M, C, H)."""
        features_PF = seen.site_PF[a]
        if features_PF is None:
            return site_FH.new_zeros(len(sites_MA), channels, site_FH.shape[1])
        logits_MH = features_PF.index_select(0, sites_MA[:, a].clamp(min=0)) @ site_FH
        return logits_MH[:, None].expand(-1, channels, -1)

    def _pool_sites(self, weights_MKH: Tensor, seen: Observations, sites_MA: Tensor) -> Tensor:
        """Return the site fields that each query sees, pooled by attention: (H, M, F)."""
        pooled_HMF = weights_MKH.new_zeros(self.heads, len(sites_MA), self.parts.site)
        first = 0
        for a, (features_PF, standard_PC) in enumerate(zip(seen.site_PF, seen.standard, strict=True)):
            last = first + standard_PC.shape[1]
            if features_PF is not None:
                features_MF = features_PF.index_select(0, sites_MA[:, a].clamp(min=0))
                pooled_HMF = pooled_HMF + weights_MKH[:, first:last].sum(dim=1).T[..., None] * features_MF
            first = last
        return pooled_HMF


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
        """Return keys and values of latents (L, D), without their offsets."""
        context_LD = self.context_norm(h_LD)
        width = h_LD.shape[1]
        shape = (self.heads, self.head_dim)
        return Projected(
            (context_LD @ self.key.weight[:, :width].T).unflatten(1, shape),
            (context_LD @ self.value.weight[:, :width].T).unflatten(1, shape),
        )

    def forward(self, q_MD: Tensor, pieces: Sequence[Piece]) -> Tensor:
        """Return what latents add to the queries (M, D), which belong to the pieces one after the other."""
        query_MHE, turned_HMO = self.queries(q_MD)
        attended, pooled = [], []
        first = 0
        for piece in pieces:
            rows = slice(first, first + len(piece))
            turned = None if turned_HMO is None else turned_HMO[:, rows]
            attended_MHE, pooled_HMO = self._attend(query_MHE[rows], turned, piece)
            attended.append(attended_MHE)
            pooled.append(pooled_HMO)
            first = rows.stop
        offsets = [part for part in pooled if part is not None]
        return self.combine(_joined(attended, dim=0), _joined(offsets, dim=1) if offsets else None)

    def combine(self, values_MHE: Tensor, offsets_HMO: Tensor | None) -> Tensor:
        """Return what pooled values and offset features of the neighbours add to the queries: (M, D)."""
        if offsets_HMO is not None:
            offsets_HME = offsets_HMO @ self._offset_weight(self.value).transpose(1, 2)
            values_MHE = values_MHE + offsets_HME.transpose(0, 1)
        out_MD: Tensor = self.out(values_MHE.flatten(1))
        return out_MD

    def _attend(self, query_MHE: Tensor, turned_HMO: Tensor | None, piece: Piece) -> tuple[Tensor, Tensor | None]:
        """Return values (M, H, E) and offset features (H, M, O) of the neighbours, pooled by attention."""
        near, latents, c = piece.near, piece.latents, self.config
        device, neighbors = query_MHE.device, near.latents_Mk.shape[1]
        if kernel.usable(query_MHE.dtype, device, self.heads, self.offset_dim, neighbors, self.head_dim):
            hood = kernel.Neighborhood(
                near.latents_Mk,
                near.queries_MX,
                near.anchors_LX,
                c.offset_frequencies,
                frequency_step(c.offset_frequencies, c.offset_max_frequency),
                c.offset_scale_m,
            )
            return kernel.attend_latents(hood, query_MHE, turned_HMO, latents.key_LHE, latents.value_LHE)
        return self.pool(query_MHE, turned_HMO, latents, near)

    def pool(
        self, query_MHE: Tensor, turned_HMO: Tensor | None, latents: Projected, near: Near
    ) -> tuple[Tensor, Tensor | None]:
        """Return what :meth:`_attend` returns, in plain torch: values (M, H, E) and offset features (H, M, O)."""
        weights_MkH, phi_MkO = self._weights(query_MHE, turned_HMO, latents, near)
        device = query_MHE.device
        attended_MHE = torch.einsum("mkh,mkhe->mhe", weights_MkH, latents.value_LHE[near.latents_Mk.to(device)])
        return attended_MHE, None if phi_MkO is None else torch.einsum("mkh,mko->hmo", weights_MkH, phi_MkO)

    def weights(self, q_MD: Tensor, latents: Projected, near: Near) -> Tensor:
        """Return the attention (M, k, H) of each query to its neighbours."""
        return self._weights(*self.queries(q_MD), latents, near)[0]

    def queries(self, q_MD: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return projected queries (M, H, E) and their products (H, M, O) with the key weights of offset features."""
        query_MHE = self.query(self.norm(q_MD)).unflatten(1, (self.heads, self.head_dim)) / math.sqrt(self.head_dim)
        if not self.offset_dim:
            return query_MHE, None
        return query_MHE, query_MHE.transpose(0, 1) @ self._offset_weight(self.key)

    def _weights(
        self, query_MHE: Tensor, turned_HMO: Tensor | None, latents: Projected, near: Near
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attention (M, k, H) to the neighbours, and φ_δ (M, k, O) of their offsets."""
        keys_MkHE = latents.key_LHE[near.latents_Mk.to(query_MHE.device)]
        logits_MkH = torch.einsum("mhe,mkhe->mkh", query_MHE, keys_MkHE)
        phi_MkO = None
        if turned_HMO is not None:
            exact = torch.promote_types(query_MHE.dtype, torch.float32)
            phi_MkO = offset_features(near.offsets().to(query_MHE.device, exact), self.config).to(query_MHE.dtype)
            logits_MkH = logits_MkH + torch.einsum("hmo,mko->mkh", turned_HMO, phi_MkO)
        logits_MkH = logits_MkH.to(torch.promote_types(logits_MkH.dtype, torch.float32))
        return logits_MkH.softmax(dim=1).to(query_MHE.dtype), phi_MkO

    def _offset_weight(self, layer: nn.Linear) -> Tensor:
        weight_HEO: Tensor = layer.weight[:, self.config.width :].unflatten(0, (self.heads, self.head_dim))
        return weight_HEO


class Decoder(nn.Module):
    """From latents and observations to answers at the queries, chunk by chunk: memory does not grow with M × D."""

    def __init__(self, config: AtomizerConfig) -> None:
        super().__init__()
        self.config = config
        self.q_init = nn.Parameter(torch.empty(config.width))
        nn.init.trunc_normal_(self.q_init, std=0.02)
        self.observation = ObservationAttention(config) if config.observation_conditioning else None
        self.latent = LatentAttention(config)
        self.feedforward = FeedForward(config.width, config.decoder_expansion, config.feedforward_dropout)
        self.height = QueryHeight(config) if config.query_height else None

    def project(self, h: Sequence[Tensor]) -> list[Projected]:
        """Return keys and values of the latents (L, D) of each scene."""
        projected = self.latent.project(torch.cat(list(h)))
        lengths = [len(h_LD) for h_LD in h]
        keys, values = projected.key_LHE.split(lengths), projected.value_LHE.split(lengths)
        return [Projected(key, value) for key, value in zip(keys, values, strict=True)]

    def forward(self, head: nn.Module, pieces: Sequence[Piece]) -> Tensor:
        """Answers (M, outputs) of ``head`` at the queries of all pieces."""
        keeping = Keeping()
        answers = []
        for chunk in self.chunks(pieces):
            size = sum(len(piece) * self.query_bytes(piece) for piece in chunk)
            answers.append(keeping.run(self._answer, head, chunk, size=size))
        return _joined(answers, dim=0)

    def chunks(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        """The queries of all pieces in groups small enough for memory, in order; at least one group."""
        groups: list[list[Piece]] = [[]]
        room = 1.0  # share of a group that is still free
        for piece in pieces:
            size = rows_at_once(self.query_bytes(piece), self.q_init.device)
            for start in range(0, max(1, len(piece)), size):
                part = piece.rows(slice(start, min(len(piece), start + size)))
                if groups[-1] and len(part) / size > room:
                    groups.append([])
                    room = 1.0
                groups[-1].append(part)
                room -= len(part) / size
        return groups

    def query_bytes(self, piece: Piece) -> int:
        """What one query of ``piece`` takes on its way, roughly; without a compiled kernel it copies neighbours."""
        c, like = self.config, self.q_init
        inner, offset = c.cross_heads * c.cross_head_dim, offset_dim(c)
        numbers = 7 * c.width + 5 * inner + 2 * round(c.width * c.decoder_expansion) + 2 * c.cross_heads * offset
        if self.observation is not None:
            numbers += c.cross_heads * sum(self.observation.parts)
        if self.height is not None:
            numbers += 4 * c.width + 2 * fourier_dim(c.offset_frequencies)
        neighbors = piece.near.latents_Mk.shape[1]
        if not kernel.usable(like.dtype, like.device, c.cross_heads, offset, neighbors, c.cross_head_dim):
            kinds = 0 if piece.seen is None else len(piece.seen.kind_KF)
            numbers += neighbors * (2 * inner + 2 * offset) + 2 * kinds * TokenParts.of(c).value
        return numbers * like.element_size()

    def _answer(self, head: nn.Module, pieces: Sequence[Piece]) -> Tensor:
        q_MD = self.conditioned(pieces)
        q_MD = q_MD + self.latent(q_MD, pieces)
        answer_MC: Tensor = head(q_MD + self.feedforward(q_MD))
        return answer_MC

    def conditioned(self, pieces: Sequence[Piece]) -> Tensor:
        """Return q̃ (M, D): the shared query, updated with what was observed at each position and its height."""
        query_MD: Tensor
        if self.observation is None:
            query_MD = self.q_init.expand(sum(map(len, pieces)), -1)
        else:
            query_MD = self.q_init + self.observation(self.q_init, pieces)
        if self.height is not None:
            heights = [piece.heights_M for piece in pieces if piece.heights_M is not None]
            query_MD = query_MD + self.height(_joined(heights, dim=0))
        return query_MD


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Return the parts as one tensor; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)
