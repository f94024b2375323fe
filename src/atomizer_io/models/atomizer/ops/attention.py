"""Local cross-attention from one shared query, folded: the same function, about fifty times fewer FLOPs.

Every latent starts from the same ``h_init``, so per head the query is one vector, and the attention over
``z_i = W2 GELU(W1 [f_i; φ_δ]) + b2`` needs neither keys nor values of single atoms:

1. logits ``z_i · W_kᵀ q_h`` are ``g_i · (W2ᵀ W_kᵀ q_h)`` up to a constant that the softmax removes: one D × H product;
2. ``Σ α_i W_v z_i = W_v (W2 Σ α_i g_i + b2)``: pool ``g``, then project once per latent;
3. ``W1 [f; φ_δ]`` is a sum of a part per atom (value), a part per kind and a part per site.

Cells are streamed in blocks of bounded size. A cell longer than a block is cut into segments whose results are merged
by their log-sum-exp. The backward pass recomputes blocks beyond a budget, so memory does not grow with atoms × width.

Shapes: N atoms, K segments of n atoms in a block, L latents, H heads, D width, E head dim, F token features,
2 = (x, y) in metres.
"""

from __future__ import annotations

import abc
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor, nn

from atomizer_io.models.atomizer.config import Encodings
from atomizer_io.models.atomizer.encodings import frequency_step
from atomizer_io.models.atomizer.geometry.cells import Cells, Segments
from atomizer_io.models.atomizer.ops.kernels import cells as kernel
from atomizer_io.models.atomizer.ops.linear import Linear, product_by_head
from atomizer_io.models.atomizer.ops.memory import Keeping, rows_at_once
from atomizer_io.models.atomizer.tokenizer import Tokens
from atomizer_io.models.atomizer.tokens import TokenParts, offset_dim, offset_features, value_features

LONGEST_SEGMENT = 4096


@dataclass(frozen=True, slots=True)
class Folded:
    """The weights of the encoder's cross-attention, multiplied out for its single query."""

    value_FD: Tensor
    kind_KD: Tensor  # of each kind of the batch, first bias included
    site_FD: Tensor
    offset_FD: Tensor | None
    logit_DH: Tensor
    out_HDE: Tensor
    out_HE: Tensor

    def of_no_atoms(self) -> Tensor:
        """Return log-sum-exps (0, H) that depend on all weights: gradients are zero then, as those of the kernels."""
        every = (self.value_FD, self.kind_KD, self.site_FD, self.offset_FD, self.logit_DH, self.out_HDE)
        parts = [weight.flatten()[:0] for weight in every if weight is not None]
        return torch.cat(parts).reshape(0, self.logit_DH.shape[1])


@dataclass(frozen=True, slots=True)
class Block:
    """The atoms of K segments of similar length, padded to n each, and the U sites they stand at."""

    order_N: Tensor  # K · n: number of each atom
    kind_N: Tensor
    slot_N: Tensor  # its index among the sites of the block
    mask_N: Tensor  # False where padded
    site_U: Tensor
    delta_U2: Tensor  # metres from the anchor
    length: int  # n


def plan(
    segments: Segments, cells: Cells, tokens: Tokens, anchors_L2: Tensor, slots: int
) -> tuple[Tensor, list[Block]]:
    """The segments (G,) in the order in which blocks of at most ``slots`` atoms take them, and the blocks.

    Everything is found where the geometry is and moves to the device of the tokens at once, so that the device never
    waits for the host within a block.
    """
    device, exact = tokens.value_N.device, tokens.value_N.dtype
    order, lengths, rows = [torch.zeros(0, dtype=torch.long)], [], []
    for chosen_K, atoms_Kn, mask_Kn in segments.blocks(slots):
        flat = atoms_Kn.flatten()
        site_U, slot_N = torch.unique_consecutive(cells.site_N[flat], return_inverse=True)
        owner_U = torch.empty_like(site_U, dtype=torch.long)
        owner_U[slot_N] = segments.cell_G[chosen_K].repeat_interleave(atoms_Kn.shape[1])
        delta_U2 = (tokens.position_S2[site_U] - anchors_L2[owner_U]).to(exact)
        rows.append((cells.order_N[flat], cells.kind_N[flat], slot_N, mask_Kn.flatten(), site_U, delta_U2))
        order.append(chosen_K)
        lengths.append(atoms_Kn.shape[1])
    columns = [torch.cat(column).to(device).split([len(part) for part in column]) for column in zip(*rows, strict=True)]
    return torch.cat(order), [Block(*parts) for parts in zip(*columns, lengths, strict=True)]


class CellAttention(nn.Module, abc.ABC):
    """Attention from one shared query to the atoms of each cell, after a layer ``g = GELU(W1 [f; φ_δ] + b1)`` per atom.

    What the shared query makes of ``g`` is for subclasses to say, in :meth:`fold`.
    """

    first: nn.Linear  # W1 and b1
    value: nn.Linear  # W_v

    def __init__(self, encodings: Encodings, heads: int, head_dim: int, hidden: int, *, offsets: bool) -> None:
        super().__init__()
        self.encodings = encodings
        self.parts = TokenParts.of(encodings)
        self.offset_dim = offset_dim(encodings) if offsets else 0
        self.heads, self.head_dim, self.hidden = heads, head_dim, hidden

    @abc.abstractmethod
    def fold(self, query_D: Tensor, kind_KF: Tensor, value_HED: Tensor | None = None) -> Folded:
        """Multiply the weights out for the shared query and these kinds; little work, and gradients flow through it.

        ``value_HED`` replaces the weights of the value layer.
        """

    @abc.abstractmethod
    def of_empty_cell(self, value_HED: Tensor | None = None) -> Tensor:
        """Return what a cell without atoms attends to, a learned token, as an attention output (H, E)."""

    def value_weights(self) -> Tensor:
        """Return the weights of the value layer by head."""
        value_HED: Tensor = self.value.weight.unflatten(0, (self.heads, self.head_dim))
        return value_HED

    def forward(self, query_D: Tensor, tokens: Tokens, cells: Cells, anchors_L2: Tensor) -> Tensor:
        """Attend from the shared query to the atoms of each cell; return (L, H·E)."""
        return self._attended(self.value_weights(), query_D, tokens, cells, anchors_L2)

    def gathered(self, query_D: Tensor, tokens: Tokens, cells: Cells, anchors_L2: Tensor) -> Tensor:
        """Return what the value layer reads of each cell, pooled by each head: (L, H, D)."""
        width = self.value.in_features
        identity_HDD = torch.eye(width).to(query_D).expand(self.heads, width, width)
        pooled_LE = self._attended(identity_HDD, query_D, tokens, cells, anchors_L2)
        pooled_LHD: Tensor = pooled_LE.unflatten(1, (self.heads, width))
        return pooled_LHD

    def _attended(self, value_HED: Tensor, query_D: Tensor, tokens: Tokens, cells: Cells, anchors_L2: Tensor) -> Tensor:
        """Return what the values of these weights add up to in each cell: (L, H·E)."""
        folded = self.fold(query_D, tokens.kind_KF, value_HED)
        segments = cells.segments(LONGEST_SEGMENT)
        empty_HE = self.of_empty_cell(value_HED)
        features = max(*self.parts, self.offset_dim)
        if kernel.usable(query_D.dtype, query_D.device, self.hidden, self.heads, features):
            lse_GH, pooled = self._pool_compiled(folded, tokens, cells, segments, anchors_L2)
            if len(segments.cell_G) == len(cells) and bool(cells.counts_L.all()):  # each cell is one segment
                whole = replace(folded, out_HE=folded.out_HE + 0.0 * empty_HE)  # the empty cell takes part in the graph
                return self._project(whole, pooled).flatten(1)
            out_GHE = self._project(folded, pooled)
            return merge(lse_GH, out_GHE, segments.cell_G, len(cells), empty_HE).flatten(1)
        order_G, blocks = plan(segments, cells, tokens, anchors_L2, rows_at_once(self.atom_bytes(), query_D.device))
        none_0H = query_D.new_zeros(0, self.heads) if blocks else folded.of_no_atoms()
        keeping, lse, out = Keeping(), [none_0H], [query_D.new_zeros(0, *empty_HE.shape)]
        for block in blocks:
            size = len(block.order_N) * self.atom_bytes()
            lse_KH, out_KHE = keeping.run(self.attend, folded, tokens.value_N, tokens.site_SF, block, size=size)
            lse.append(lse_KH)
            out.append(out_KHE)
        cell_G = segments.cell_G[order_G].to(query_D.device)
        return merge(torch.cat(lse), torch.cat(out), cell_G, len(cells), empty_HE).flatten(1)

    def atom_bytes(self) -> int:
        """What one atom takes on its way without the compiled kernel, roughly."""
        numbers = 4 * self.hidden + 2 * self.parts.value + 2 * self.offset_dim + 3 * self.heads
        return numbers * self.first.weight.element_size()

    def _pool_compiled(
        self, folded: Folded, tokens: Tokens, cells: Cells, segments: Segments, anchors_L2: Tensor
    ) -> tuple[Tensor, Sequence[Tensor]]:
        """Return log-sum-exp (G, H) and, of each head, pooled g (G, D) of all segments, by the compiled kernel."""
        c = self.encodings
        atoms = kernel.CellAtoms(
            value=tokens.value_N,
            order=cells.order_N,
            site=cells.site_N,
            kind=cells.kind_N,
            cell=segments.cell_G,
            begin=segments.begin_G,
            length=segments.length_G,
            position=tokens.position_S2,
            anchor=anchors_L2,
            site_field=tokens.site_SF,
            value_frequencies=c.value_frequencies,
            value_step=frequency_step(c.value_frequencies, c.value_max_frequency),
            offset_frequencies=c.offset_frequencies,
            offset_step=frequency_step(c.offset_frequencies, c.offset_max_frequency),
            offset_scale=c.offset_scale_m,
        )
        return kernel.pool_cells(
            atoms, folded.value_FD, folded.kind_KD, folded.site_FD, folded.offset_FD, folded.logit_DH.T
        )

    def _project(self, folded: Folded, pooled: Sequence[Tensor]) -> Tensor:
        """Return W_v (W2 Σ α g + b2): (K, D) of each head → (K, H, E)."""
        return product_by_head(pooled, folded.out_HDE).transpose(0, 1) + folded.out_HE

    def kind_shares(self, query_D: Tensor, tokens: Tokens, cells: Cells, anchors_L2: Tensor) -> Tensor:
        """Return the share of each cell's attention that went to each kind (L, H, kinds), zero for empty cells."""
        folded, kinds = self.fold(query_D, tokens.kind_KF), len(tokens.kind_KF)
        segments = cells.segments(LONGEST_SEGMENT)
        order_G, blocks = plan(segments, cells, tokens, anchors_L2, rows_at_once(self.atom_bytes(), query_D.device))
        if not blocks:
            return query_D.new_zeros(len(cells), self.heads, kinds)
        lse, shares = [], []
        for block in blocks:
            _, logits_KnH = self.hidden_and_logits(folded, tokens.value_N, tokens.site_SF, block)
            lse.append(logits_KnH.logsumexp(dim=1))
            weight_KHn = (logits_KnH - lse[-1][:, None]).exp().transpose(1, 2)
            kind_KHn = block.kind_N.long().unflatten(0, (-1, block.length))[:, None].expand_as(weight_KHn)
            empty = weight_KHn.new_zeros(*weight_KHn.shape[:2], kinds)
            shares.append(empty.scatter_add(2, kind_KHn, weight_KHn))
        cell_G = segments.cell_G[order_G].to(query_D.device)
        nothing = shares[0].new_zeros(self.heads, kinds)
        return merge(torch.cat(lse), torch.cat(shares), cell_G, len(cells), nothing)

    def attend(self, folded: Folded, value_N: Tensor, site_SF: Tensor | None, block: Block) -> tuple[Tensor, Tensor]:
        """Return log-sum-exp (K, H) and attention output (K, H, E) of one block of segments."""
        hidden_KnD, logits_KnH = self.hidden_and_logits(folded, value_N, site_SF, block)
        lse_KH = logits_KnH.logsumexp(dim=1)
        weight_KnH = (logits_KnH - lse_KH[:, None]).exp()
        pooled_KHD = weight_KnH.transpose(1, 2).to(hidden_KnD.dtype) @ hidden_KnD
        return lse_KH, self._project(folded, pooled_KHD.unbind(1))

    def hidden_and_logits(
        self, folded: Folded, value_N: Tensor, site_SF: Tensor | None, block: Block
    ) -> tuple[Tensor, Tensor]:
        """Return ``g`` (K, n, D) and the logits (K, n, H) of the atoms of a block, −∞ where padded."""
        dtype, shape = folded.value_FD.dtype, (-1, block.length)
        hidden = folded.kind_KD.index_select(0, block.kind_N)
        if folded.offset_FD is not None:
            offset_UD = offset_features(block.delta_U2, self.encodings).to(dtype) @ folded.offset_FD
            hidden = hidden + offset_UD.index_select(0, block.slot_N)
        if site_SF is not None:
            site_UD = site_SF.index_select(0, block.site_U) @ folded.site_FD
            hidden = hidden + site_UD.index_select(0, block.slot_N)
        phi = value_features(value_N.index_select(0, block.order_N), self.encodings).to(dtype)
        hidden = nn.functional.gelu(torch.addmm(hidden, phi, folded.value_FD))
        logits = hidden @ folded.logit_DH
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        logits = logits.masked_fill(~block.mask_N[:, None], -torch.inf)
        return hidden.unflatten(0, shape), logits.unflatten(0, shape)


class FoldedCrossAttention(CellAttention):
    """CrossAttn_enc of the paper (§3.3) with the per-atom MLP before it, without residual and output projection."""

    def __init__(self, encodings: Encodings, width: int, heads: int, head_dim: int) -> None:
        super().__init__(encodings, heads, head_dim, width, offsets=True)
        inner = heads * head_dim
        self.first = Linear(sum(self.parts) + self.offset_dim, width)
        self.second = Linear(width, width)
        self.query = Linear(width, inner, bias=False)
        self.key = Linear(width, inner, bias=False)
        self.value = Linear(width, inner, bias=False)
        self.empty = nn.Parameter(torch.empty(width))  # the one token of a cell without atoms
        nn.init.trunc_normal_(self.empty, std=0.02)

    def fold(self, query_D: Tensor, kind_KF: Tensor, value_HED: Tensor | None = None) -> Folded:
        """Multiply the weights out for the shared query and these kinds; little work, and gradients flow through it."""
        value_HED = self.value_weights() if value_HED is None else value_HED
        value, kind, site, offset = self.first.weight.T.split([*self.parts, self.offset_dim])
        query_HE = self.query(query_D).unflatten(0, (self.heads, self.head_dim)) / math.sqrt(self.head_dim)
        key_HED = self.key.weight.unflatten(0, (self.heads, self.head_dim))
        return Folded(
            value_FD=value,
            kind_KD=kind_KF @ kind + self.first.bias,
            site_FD=site,
            offset_FD=offset if self.offset_dim else None,
            logit_DH=self.second.weight.T @ torch.einsum("he,hed->dh", query_HE, key_HED),
            out_HDE=(value_HED @ self.second.weight).transpose(1, 2),
            out_HE=value_HED @ self.second.bias,
        )

    def of_empty_cell(self, value_HED: Tensor | None = None) -> Tensor:
        """Return what a cell without atoms attends to, a learned token, as an attention output (H, E)."""
        return (self.value_weights() if value_HED is None else value_HED) @ self.empty


def merge(lse_GH: Tensor, out_GHE: Tensor, cell_G: Tensor, latents: int, empty_HE: Tensor) -> Tensor:
    """Join the segments of each cell by a softmax over them; return (L, H, E), ``empty_HE`` where a cell has none."""
    cell_GH = cell_G[:, None].expand_as(lse_GH)
    peak_LH = lse_GH.new_full((latents, lse_GH.shape[1]), -torch.inf)
    peak_LH = peak_LH.scatter_reduce(0, cell_GH, lse_GH.detach(), "amax")
    weight_GH = (lse_GH - peak_LH[cell_G]).exp()
    total_LH = torch.zeros_like(peak_LH).index_add(0, cell_G, weight_GH)
    share_GH = (weight_GH / total_LH[cell_G]).to(out_GHE.dtype)
    merged_LHE = out_GHE.new_zeros(latents, *out_GHE.shape[1:]).index_add(0, cell_G, share_GH[..., None] * out_GHE)
    return torch.where((total_LH > 0)[..., None], merged_LHE, empty_HE)
