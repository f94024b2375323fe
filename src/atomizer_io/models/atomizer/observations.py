"""What a query sees at its own position, and what that adds to it (paper, §3.5).

Co-located tokens are read in one of two ways, which the setting ``observation_mlp`` chooses:

- raw, as the paper writes it: one attention over the tokens as they are. A value and its wavelength meet only in the
  softmax, so with H heads about H bands can be distinguished.
- after a layer per atom, ``GELU(W1 f + b1)``, as in the encoder. The shared query is one vector, so its products with
  all keys are learned as one matrix, and the layer before is followed by no second one.

Both are folded: tokens are pooled first and projected once per query.

A query with a footprint may see several sites of an acquisition: that acquisition then has several columns.

Shapes: M queries, A acquisitions (or columns), K kinds (all channels of all acquisitions), P sites and C channels of
one of them, N atoms, S sites of all acquisitions, H heads, E head dim, D width, F token features.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from atomizer_io.models.atomizer.config import Encodings
from atomizer_io.models.atomizer.encodings import frequency_step
from atomizer_io.models.atomizer.geometry.cells import Cells
from atomizer_io.models.atomizer.ops.attention import CellAttention, Folded
from atomizer_io.models.atomizer.ops.kernels import queries as kernel
from atomizer_io.models.atomizer.ops.linear import Linear, product_by_head
from atomizer_io.models.atomizer.tokenizer import Observations, Tokens
from atomizer_io.models.atomizer.tokens import TokenParts, value_features


@dataclass(frozen=True, slots=True)
class Look:
    """Queries of one scene that look at its tokens: the site (M, A) of each acquisition that each sees, −1 for none.

    ``owners`` is the acquisition of each column where some have several; None: one column each.
    """

    seen: Observations
    sites_MA: Tensor
    owners: tuple[int, ...] | None = None

    @property
    def by_column(self) -> Observations:
        """The tokens as if each column were of an acquisition of its own, with kinds of its own."""
        if self.owners is None:
            return self.seen
        seen = self.seen
        return Observations(
            standard=[seen.standard[a] for a in self.owners],
            valid=[seen.valid[a] for a in self.owners],
            site_PF=[seen.site_PF[a] for a in self.owners],
            kind_KF=seen.kind_KF[self.kinds().to(seen.kind_KF.device)],
        )

    def kinds(self) -> Tensor:
        """Return the kind of each channel of each column."""
        channels = [standard_PC.shape[1] for standard_PC in self.seen.standard]
        first = list(itertools.accumulate(channels, initial=0))
        owners = range(len(channels)) if self.owners is None else self.owners
        return torch.cat([torch.arange(first[a], first[a] + channels[a]) for a in owners])

    def only(self, index_N: Tensor) -> Look:
        """Return some of the queries, with nothing but what these see; each column is an acquisition then."""
        sites_NA, whole = self.sites_MA[index_N], self.by_column
        columns = sites_NA.clamp(min=0).T
        seen = Observations(
            standard=[_at(site_N, rows_PC) for site_N, rows_PC in zip(columns, whole.standard, strict=True)],
            valid=[None if v is None else _at(site_N, v) for site_N, v in zip(columns, whole.valid, strict=True)],
            site_PF=[None if f is None else _at(site_N, f) for site_N, f in zip(columns, whole.site_PF, strict=True)],
            kind_KF=whole.kind_KF,
        )
        own_N1 = torch.arange(len(sites_NA)).to(sites_NA)[:, None]
        return Look(seen, torch.where(sites_NA >= 0, own_N1, -1))


def _at(site_N: Tensor, rows_P: Tensor) -> Tensor:
    """Return the rows of sites; none where there is no site at all."""
    return rows_P[site_N] if len(rows_P) else rows_P


class RawObservationAttention(nn.Module):
    """CrossAttn_obs: from the shared query to the tokens at each position; one learned token where nothing was seen."""

    def __init__(self, encodings: Encodings, width: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.encodings = encodings
        self.parts = TokenParts.of(encodings)
        self.heads, self.head_dim = heads, head_dim
        inner = heads * head_dim
        self.norm = nn.LayerNorm(width)
        self.query = Linear(width, inner, bias=False)
        self.key = Linear(sum(self.parts), inner, bias=False)
        self.value = Linear(sum(self.parts), inner, bias=False)
        self.unseen = nn.Parameter(torch.empty(sum(self.parts)))  # old name
        nn.init.trunc_normal_(self.unseen, std=0.02)  # old name
        self.out = Linear(inner, width)

    def forward(self, q_D: Tensor, looks: Sequence[Look]) -> Tensor:
        """Return what observations add to the shared query, (M, D) for the queries of all looks."""
        return self.project(self._pooled(q_D, looks))

    def gathered(self, q_D: Tensor, looks: Sequence[Look]) -> Tensor:
        """Return what the value layer reads at each query, pooled by each head: (M, H, F)."""
        return self._pooled(q_D, looks).transpose(0, 1)

    def _pooled(self, q_D: Tensor, looks: Sequence[Look]) -> Tensor:
        """Return the tokens that the queries of all looks see, pooled by attention: (H, M, F)."""
        compiled = kernel.usable(q_D.dtype, q_D.device, self.heads, sum(self.parts))
        pool = self._pool_compiled if compiled else self._pool
        pooled = [pool(q_D, look.by_column, look.sites_MA.to(q_D.device)) for look in looks]
        return pooled[0] if len(pooled) == 1 else torch.cat(pooled, dim=1)

    @property
    def numbers_per_query(self) -> int:
        """How many numbers a query takes on its way through here, roughly."""
        return self.heads * sum(self.parts)

    def shares(self, q_D: Tensor, look: Look) -> Tensor:
        """Return the attention of each query to each kind (M, K), a mean over heads; zero where nothing was seen."""
        weights_MKH, _, valid_MK = self.weights(q_D, look.by_column, look.sites_MA.to(q_D.device))
        shares_MK = torch.where(valid_MK, weights_MKH.mean(dim=-1), 0.0)
        if look.owners is None:
            return shares_MK
        total_MK = shares_MK.new_zeros(len(shares_MK), len(look.seen.kind_KF))
        return total_MK.index_add(1, look.kinds().to(shares_MK.device), shares_MK)

    def project(self, pooled_HMF: Tensor) -> Tensor:
        """Return what pooled tokens (H, M, F) add to the shared query: (M, D)."""
        value_HEF = self.value.weight.unflatten(0, (self.heads, self.head_dim))
        attended_HME = product_by_head(pooled_HMF.unbind(), value_HEF.transpose(1, 2))
        out_MD: Tensor = self.out(attended_HME.transpose(0, 1).flatten(1))
        return out_MD

    def _pool(self, q_D: Tensor, seen: Observations, sites_MA: Tensor) -> Tensor:
        """Return the tokens that each query sees, pooled by attention: (H, M, F)."""
        weights_MKH, phi_MKF, valid_MK = self.weights(q_D, seen, sites_MA)
        site_HMF = self._pool_sites(weights_MKH, seen, sites_MA)
        return self.pool(weights_MKH, phi_MKF, weights_MKH, seen.kind_KF, site_HMF, valid_MK)

    def pool(
        self,
        weights_MWH: Tensor,
        phi_MWF: Tensor,
        kinds_MKH: Tensor,
        kind_KF: Tensor,
        site_HMF: Tensor | None,
        valid_MW: Tensor,
    ) -> Tensor:
        """Return pooled tokens (H, M, F), a learned one where nothing is valid; site fields come in pooled already.

        ``weights_MWH`` is the attention to W atoms, ``kinds_MKH`` the sum of it over the atoms of each kind.
        """
        value_HMF = torch.einsum("mkh,mkf->hmf", weights_MWH, phi_MWF)
        kind_HMF = torch.einsum("mkh,kf->hmf", kinds_MKH, kind_KF)
        parts = [value_HMF, kind_HMF] if site_HMF is None else [value_HMF, kind_HMF, site_HMF]
        pooled_HMF = torch.cat(parts, dim=-1)
        return torch.where(valid_MW.any(dim=1)[:, None], pooled_HMF, self.unseen)  # old name

    def _pool_compiled(self, q_D: Tensor, seen: Observations, sites_MA: Tensor) -> Tensor:
        value_FH, kind_FH, site_FH = self.logit_weights(q_D)
        c = self.encodings
        tokens = kernel.SeenTokens(
            seen.standard,
            seen.valid,
            seen.site_PF,
            sites_MA,
            c.value_frequencies,
            frequency_step(c.value_frequencies, c.value_max_frequency),
        )
        kind_logit_KH, empty_F = seen.kind_KF @ kind_FH, self.unseen  # old name
        return kernel.pool_observations(tokens, seen.kind_KF, kind_logit_KH, value_FH, site_FH, empty_F)

    def logit_weights(self, q_D: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return the weights from value, kind and site of a token to logits, (F, H) each: query and keys, folded."""
        shape = (self.heads, self.head_dim)
        query_HE = self.query(self.norm(q_D)).unflatten(0, shape) / math.sqrt(self.head_dim)
        logit_FH = torch.einsum("he,hef->fh", query_HE, self.key.weight.unflatten(0, shape))
        value_FH, kind_FH, site_FH = logit_FH.split(list(self.parts))
        return value_FH, kind_FH, site_FH

    def weights(self, q_D: Tensor, seen: Observations, sites_MA: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return attention (M, K, H) to every kind, zero where invalid, with its φ_v (M, K, F) and validity (M, K)."""
        value_FH, kind_FH, site_FH = self.logit_weights(q_D)
        values_MK, valid_MK = seen.at(sites_MA)
        phi_MKF = value_features(values_MK, self.encodings).to(value_FH.dtype)
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


class DeepObservationAttention(CellAttention):
    """CrossAttn_obs after a layer per atom; each query is a cell of the tokens that it sees, without offsets."""

    def __init__(self, encodings: Encodings, width: int, heads: int, head_dim: int, hidden: int) -> None:
        super().__init__(encodings, heads, head_dim, hidden, offsets=False)
        inner = heads * head_dim
        self.first = Linear(sum(self.parts), self.hidden)
        self.logit = Linear(self.hidden, self.heads, bias=False)  # the shared query, multiplied with all keys
        self.value = Linear(self.hidden, inner, bias=False)
        self.unseen = nn.Parameter(torch.empty(self.hidden))  # old name
        nn.init.trunc_normal_(self.unseen, std=0.02)  # old name
        self.out = Linear(inner, width)

    def forward(self, q_D: Tensor, looks: Sequence[Look]) -> Tensor:  # type: ignore[override]
        """Return what observations add to the shared query, (M, D) for the queries of all looks."""
        added_MD: Tensor = self.out(super().forward(q_D, *self._cells(looks)))
        return added_MD

    @property
    def numbers_per_query(self) -> int:
        """How many numbers a query takes on its way through here, roughly."""
        return 2 * self.heads * self.hidden

    def shares(self, q_D: Tensor, look: Look) -> Tensor:
        """Return the attention of each query to each kind (M, K), a mean over heads; zero where nothing was seen."""
        return self.kind_shares(q_D, *self._cells([look])).mean(dim=1)

    def gathered(self, q_D: Tensor, looks: Sequence[Look]) -> Tensor:  # type: ignore[override]
        """Return what the value layer reads at each query, pooled by each head: (M, H, D)."""
        return super().gathered(q_D, *self._cells(looks))

    def fold(self, query_D: Tensor, kind_KF: Tensor, value_HED: Tensor | None = None) -> Folded:
        """Return the weights for these kinds; nothing is left to multiply out."""
        value_HED = self.value_weights() if value_HED is None else value_HED
        value, kind, site = self.first.weight.T.split(list(self.parts))
        return Folded(
            value_FD=value,
            kind_KD=kind_KF @ kind + self.first.bias,
            site_FD=site,
            offset_FD=None,
            logit_DH=self.logit.weight.T,
            out_HDE=value_HED.transpose(1, 2),
            out_HE=value_HED.new_zeros(value_HED.shape[:2]),
        )

    def of_empty_cell(self, value_HED: Tensor | None = None) -> Tensor:
        """Return what a query that sees nothing attends to, a learned token, as an attention output (H, E)."""
        return (self.value_weights() if value_HED is None else value_HED) @ self.unseen  # old name

    def _cells(self, looks: Sequence[Look]) -> tuple[Tokens, Cells, Tensor]:
        """Return the tokens of all scenes, the cells of all queries, and anchors that nothing depends on."""
        parts, first = [], _First()
        for look in looks:
            parts.append(cells_of_look(look, first))
            first = first.after(look.seen)
        standard = [standard_PC for look in looks for standard_PC in look.seen.standard]
        site_fields = [features_PF for look in looks for features_PF in look.seen.site_PF]
        site_SF = None
        if any(features_PF is not None for features_PF in site_fields):
            zeros = (standard_PC.new_zeros(len(standard_PC), self.parts.site) for standard_PC in standard)
            known = [zero if f is None else f for f, zero in zip(site_fields, zeros, strict=True)]
            site_SF = torch.cat(known).to(self.first.weight)
        tokens = Tokens(
            value_N=torch.cat([standard_PC.flatten() for standard_PC in standard]),
            kind_KF=torch.cat([look.seen.kind_KF for look in looks]),
            site_SF=site_SF,
            position_S2=torch.zeros(1, 2, dtype=torch.float64).expand(first.site, 2),
            first_atom=[0],
            first_site=[0],
            first_kind=[0],
        )
        count_M, order_N, site_N, kind_N = (torch.cat(column) for column in zip(*parts, strict=True))
        start_M1 = torch.cat([torch.zeros(1, dtype=torch.long), count_M.cumsum(0)])
        anchors_M2 = torch.zeros(1, 2, dtype=torch.float64).expand(len(count_M), 2)
        return tokens, Cells(start_M1, order_N, site_N, kind_N), anchors_M2


@dataclass(frozen=True, slots=True)
class _First:
    """Where the numbering of a scene begins among the values, sites and kinds of several."""

    value: int = 0
    site: int = 0
    kind: int = 0

    def after(self, seen: Observations) -> _First:
        """Return where the numbering of the next scene begins."""
        values = sum(standard_PC.numel() for standard_PC in seen.standard)
        sites = sum(len(standard_PC) for standard_PC in seen.standard)
        return _First(self.value + values, self.site + sites, self.kind + len(seen.kind_KF))


def cells_of_look(look: Look, first: _First) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return how many atoms each query sees (M,), and the numbers of their values, sites and kinds, query by query."""
    sites_MA, seen = look.sites_MA.to("cpu"), look.seen
    kind_K = (first.kind + look.kinds()).to(torch.int32)  # of each channel of each column
    kinds = len(kind_K)
    number_MK = torch.empty(len(sites_MA), kinds, dtype=torch.long)
    site_MK = torch.empty(len(sites_MA), kinds, dtype=torch.int32)
    absent = bool((sites_MA < 0).any())
    masked = absent or any(valid_PC is not None for valid_PC in seen.valid)
    valid_MK = torch.ones(len(sites_MA), kinds, dtype=torch.bool) if masked else None
    values = list(itertools.accumulate((standard_PC.numel() for standard_PC in seen.standard), initial=first.value))
    sites = list(itertools.accumulate((len(standard_PC) for standard_PC in seen.standard), initial=first.site))
    kind = 0
    for column, a in enumerate(range(len(seen.standard)) if look.owners is None else look.owners):
        channels, valid_PC = seen.standard[a].shape[1], seen.valid[a]
        here_M1 = sites_MA[:, column, None].clamp(min=0)
        columns = slice(kind, kind + channels)
        torch.add(values[a] + here_M1 * channels, torch.arange(channels), out=number_MK[:, columns])
        site_MK[:, columns] = sites[a] + here_M1
        if valid_MK is not None:
            valid_MK[:, columns] = sites_MA[:, column, None] >= 0
            if valid_PC is not None:
                valid_MK[:, columns] &= valid_PC.to("cpu")[here_M1[:, 0]]
        kind += channels
    if valid_MK is None:
        counts_M = torch.full((len(sites_MA),), kinds)
        return counts_M, number_MK.flatten(), site_MK.flatten(), kind_K.repeat(len(sites_MA))
    return valid_MK.sum(dim=1), number_MK[valid_MK], site_MK[valid_MK], kind_K.expand_as(valid_MK)[valid_MK]


ObservationAttention = RawObservationAttention | DeepObservationAttention
