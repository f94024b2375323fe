"""From latents to predictions at any position (paper, §3.5).

``q̃ = q_init + CrossAttn_obs(LN(q_init), co-located tokens)``, ``q = q̃ + CrossAttn_dec(LN(q̃), [LN(h_l); φ_δ] of the
nearest latents)``, ``q += FF(LN(q))``. Both attentions are folded: the first is in ``observations.py``; in the second,
latents are projected to keys and values once, and offsets enter as 66 numbers per neighbour.

Shapes: M queries, k neighbours, L latents, A acquisitions, H heads, E head dim, D width, O offset features.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from atomizer_io.models.atomizer.config import Encodings
from atomizer_io.models.atomizer.encodings import frequency_step
from atomizer_io.models.atomizer.geometry.neighbors import LocatedQueries
from atomizer_io.models.atomizer.layers import FeedForward
from atomizer_io.models.atomizer.observations import Look, ObservationAttention
from atomizer_io.models.atomizer.ops.kernels import queries as kernel
from atomizer_io.models.atomizer.ops.linear import Linear, product, product_by_head
from atomizer_io.models.atomizer.ops.memory import Keeping, rows_at_once
from atomizer_io.models.atomizer.tokens import TokenParts, offset_dim, offset_features

TRAINED = 4  # times as many queries at once with gradients as without: fewer and larger products


@dataclass(frozen=True, slots=True)
class Projected:
    """Latents as keys and values (L, H, E), projected once."""

    key_LHE: Tensor
    value_LHE: Tensor


@dataclass(frozen=True, slots=True)
class Piece:
    """Queries of one scene: the latents near them, and what they see at their positions where the model looks."""

    near: LocatedQueries
    latents: Projected
    look: Look | None

    def __len__(self) -> int:
        return len(self.near)

    @property
    def more_atoms(self) -> int:
        """How many atoms a query may see besides one of each kind."""
        if self.look is None or self.look.owners is None:
            return 0
        standard, kind_KF = self.look.seen.standard, self.look.seen.kind_KF
        return sum(standard[a].shape[1] for a in self.look.owners) - len(kind_KF)

    def rows(self, rows: slice) -> Piece:
        """Return the piece with some of its queries only."""
        look = None if self.look is None else replace(self.look, sites_MA=self.look.sites_MA[rows])
        return Piece(self.near.at(rows), self.latents, look)


class LatentAttention(nn.Module):
    """CrossAttn_dec: from each query to its nearest latents and their offsets."""

    def __init__(self, encodings: Encodings, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.encodings = encodings
        self.width, self.heads, self.head_dim = width, heads, head_dim
        self.offset_dim = offset_dim(encodings)
        inner = heads * head_dim
        self.context_norm = nn.LayerNorm(width)
        self.norm = nn.LayerNorm(width)
        self.query = Linear(width, inner, bias=False)
        self.key = Linear(width + self.offset_dim, inner, bias=False)
        self.value = Linear(width + self.offset_dim, inner, bias=False)
        self.out = Linear(inner, width)

    def project(self, h_LD: Tensor) -> Projected:
        """Return keys and values of latents (L, D), without their offsets."""
        context_LD = self.context_norm(h_LD)
        shape = (self.heads, self.head_dim)
        return Projected(
            product(context_LD, self.key.weight[:, : self.width].T).unflatten(1, shape),
            product(context_LD, self.value.weight[:, : self.width].T).unflatten(1, shape),
        )

    def forward(self, q_MD: Tensor, pieces: Sequence[Piece]) -> Tensor:
        """Return what latents add to the queries (M, D), which belong to the pieces one after the other."""
        query_MHE, folded_HMO = self.queries(q_MD)
        attended, pooled = [], []
        first = 0
        for piece in pieces:
            rows = slice(first, first + len(piece))
            folded = None if folded_HMO is None else folded_HMO[:, rows]
            attended_MHE, pooled_HMO = self._attend(query_MHE[rows], folded, piece)
            attended.append(attended_MHE)
            pooled.append(pooled_HMO)
            first = rows.stop
        offsets = [part for part in pooled if part is not None]
        return self.combine(_joined(attended, dim=0), _joined(offsets, dim=1) if offsets else None)

    def combine(self, values_MHE: Tensor, offsets_HMO: Tensor | None) -> Tensor:
        """Return what pooled values and offset features of the neighbours add to the queries: (M, D)."""
        if offsets_HMO is not None:
            offsets_HME = product_by_head(offsets_HMO.unbind(), self._offset_weight(self.value).transpose(1, 2))
            values_MHE = values_MHE + offsets_HME.transpose(0, 1)
        out_MD: Tensor = self.out(values_MHE.flatten(1))
        return out_MD

    def _attend(self, query_MHE: Tensor, folded_HMO: Tensor | None, piece: Piece) -> tuple[Tensor, Tensor | None]:
        """Return values (M, H, E) and offset features (H, M, O) of the neighbours, pooled by attention."""
        near, latents, c = piece.near, piece.latents, self.encodings
        device, neighbors = query_MHE.device, near.latents_Mk.shape[1]
        if kernel.usable(query_MHE.dtype, device, self.heads, self.offset_dim, neighbors, self.head_dim):
            hood = kernel.Neighborhood(
                near.latents_Mk,
                near.queries_M2,
                near.anchors_L2,
                c.offset_frequencies,
                frequency_step(c.offset_frequencies, c.offset_max_frequency),
                c.offset_scale_m,
            )
            return kernel.attend_latents(hood, query_MHE, folded_HMO, latents.key_LHE, latents.value_LHE)
        return self.pool(query_MHE, folded_HMO, latents, near)

    def pool(
        self, query_MHE: Tensor, folded_HMO: Tensor | None, latents: Projected, near: LocatedQueries
    ) -> tuple[Tensor, Tensor | None]:
        """Return what :meth:`_attend` returns, in plain torch: values (M, H, E) and offset features (H, M, O)."""
        weights_MkH, phi_MkO = self._weights(query_MHE, folded_HMO, latents, near)
        device = query_MHE.device
        attended_MHE = torch.einsum("mkh,mkhe->mhe", weights_MkH, latents.value_LHE[near.latents_Mk.to(device)])
        return attended_MHE, None if phi_MkO is None else torch.einsum("mkh,mko->hmo", weights_MkH, phi_MkO)

    def weights(self, q_MD: Tensor, latents: Projected, near: LocatedQueries) -> Tensor:
        """Return the attention (M, k, H) of each query to its neighbours."""
        return self._weights(*self.queries(q_MD), latents, near)[0]

    def queries(self, q_MD: Tensor) -> tuple[Tensor, Tensor | None]:
        """Return projected queries (M, H, E) and their products (H, M, O) with the key weights of offset features."""
        query_MHE = self.query(self.norm(q_MD)).unflatten(1, (self.heads, self.head_dim)) / math.sqrt(self.head_dim)
        if not self.offset_dim:
            return query_MHE, None
        return query_MHE, product_by_head(query_MHE.unbind(1), self._offset_weight(self.key))

    def _weights(
        self, query_MHE: Tensor, folded_HMO: Tensor | None, latents: Projected, near: LocatedQueries
    ) -> tuple[Tensor, Tensor | None]:
        """Return the attention (M, k, H) to the neighbours, and φ_δ (M, k, O) of their offsets."""
        keys_MkHE = latents.key_LHE[near.latents_Mk.to(query_MHE.device)]
        logits_MkH = torch.einsum("mhe,mkhe->mkh", query_MHE, keys_MkHE)
        phi_MkO = None
        if folded_HMO is not None:
            exact = torch.promote_types(query_MHE.dtype, torch.float32)
            phi_MkO = offset_features(near.offsets().to(query_MHE.device, exact), self.encodings).to(query_MHE.dtype)
            logits_MkH = logits_MkH + torch.einsum("hmo,mko->mkh", folded_HMO, phi_MkO)
        logits_MkH = logits_MkH.to(torch.promote_types(logits_MkH.dtype, torch.float32))
        return logits_MkH.softmax(dim=1).to(query_MHE.dtype), phi_MkO

    def _offset_weight(self, layer: nn.Linear) -> Tensor:
        weight_HEO: Tensor = layer.weight[:, self.width :].unflatten(0, (self.heads, self.head_dim))
        return weight_HEO


class Decoder(nn.Module):
    """From latents and observations to predictions at the queries, chunk by chunk: memory does not grow with M × D."""

    def __init__(
        self,
        width: int,
        observation: Callable[[], ObservationAttention] | None,
        latent: Callable[[], LatentAttention],
        feedforward: Callable[[], FeedForward],
    ) -> None:
        super().__init__()
        self.q_init = nn.Parameter(torch.empty(width))
        nn.init.trunc_normal_(self.q_init, std=0.02)
        self.observation = None if observation is None else observation()
        self.latent, self.feedforward = latent(), feedforward()

    def project(self, h: Sequence[Tensor]) -> list[Projected]:
        """Return keys and values of the latents (L, D) of each scene."""
        projected = self.latent.project(torch.cat(list(h)))
        lengths = [len(h_LD) for h_LD in h]
        keys, values = projected.key_LHE.split(lengths), projected.value_LHE.split(lengths)
        return [Projected(key, value) for key, value in zip(keys, values, strict=True)]

    def forward(self, head: nn.Module, pieces: Sequence[Piece]) -> Tensor:
        """Predict (M, outputs) of ``head`` at the queries of all pieces."""
        keeping = Keeping()
        logits = []
        for chunk in self.chunks(pieces):
            size = sum(len(piece) * self.query_bytes(piece) for piece in chunk)
            logits.append(keeping.run(self._predict, head, chunk, size=size))
        return _joined(logits, dim=0)

    def chunks(self, pieces: Sequence[Piece]) -> list[list[Piece]]:
        """The queries of all pieces in groups small enough for memory, in order; at least one group."""
        groups: list[list[Piece]] = [[]]
        room = 1.0  # share of a group that is still free
        for piece in pieces:
            size = rows_at_once(self.query_bytes(piece), self.q_init.device)
            if torch.is_grad_enabled():  # what the backward pass needs is kept anyway
                size *= TRAINED
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
        like, heads, head_dim, offset = self.q_init, self.latent.heads, self.latent.head_dim, self.latent.offset_dim
        inner = heads * head_dim
        numbers = 7 * len(like) + 5 * inner + 2 * self.feedforward.up.out_features + 2 * heads * offset
        if self.observation is not None:
            numbers += self.observation.numbers_per_query + 8 * piece.more_atoms
        neighbors = piece.near.latents_Mk.shape[1]
        if not kernel.usable(like.dtype, like.device, heads, offset, neighbors, head_dim):
            kinds = 0 if piece.look is None else len(piece.look.seen.kind_KF)
            numbers += neighbors * (2 * inner + 2 * offset)
            numbers += 2 * (kinds + piece.more_atoms) * TokenParts.of(self.latent.encodings).value
        return numbers * like.element_size()

    def _predict(self, head: nn.Module, pieces: Sequence[Piece]) -> Tensor:
        q_MD = self.conditioned(pieces)
        q_MD = q_MD + self.latent(q_MD, pieces)
        logits_MC: Tensor = head(q_MD + self.feedforward(q_MD))
        return logits_MC

    def conditioned(self, pieces: Sequence[Piece]) -> Tensor:
        """Return q̃ (M, D): the shared query, updated with what was observed at each position."""
        if self.observation is None:
            return self.q_init.expand(sum(map(len, pieces)), -1)
        looks = [look for piece in pieces if (look := piece.look) is not None]
        added_MD: Tensor = self.observation(self.q_init, looks)
        return self.q_init + added_MD


def _joined(parts: Sequence[Tensor], dim: int) -> Tensor:
    """Return the parts as one tensor; a single one is not copied."""
    return parts[0] if len(parts) == 1 else torch.cat(list(parts), dim=dim)
