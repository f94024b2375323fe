"""Read this first: the paper's equations term by term, slow and plain, on the weights of a model.

It is the executable specification: every token is written out, every atom has its own key and value, cells are padded
and masked, rotations are complex numbers. The fast path must equal this in float64 to 1e-9, and in gradients to 1e-7.

Shapes: B scenes, L latents, n atoms of a padded cell, M queries, k neighbours, s padded co-located atoms, H heads, E
head dim, D width, F token features, O offset features, C context features, 2 = (x, y) in metres.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from atomizer_io.data.atoms import AtomSet
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.encodings import compress, fourier
from atomizer_io.models.atomizer.geometry.cells import Cells
from atomizer_io.models.atomizer.geometry.neighbors import Footprint, SitesOfQueries, local_queries, seen_sites
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.atomizer.layers import FeedForward, GatedFeedForward, RotaryAngles, SelfAttention
from atomizer_io.models.atomizer.observations import DeepObservationAttention
from atomizer_io.models.atomizer.processor import TransformerBlock
from atomizer_io.models.atomizer.temporal import time_steps
from atomizer_io.models.atomizer.tokens import value_features
from atomizer_io.models.sites import nearest_anchors


class Reference:
    """Computes what ``model`` computes. ``cells_at_once`` and ``queries_at_once`` bound the memory of large inputs."""

    def __init__(self, model: AtomizerIO, *, cells_at_once: int = 64, queries_at_once: int = 1024) -> None:
        self.model = model
        self.cells_at_once = cells_at_once
        self.queries_at_once = queries_at_once

    def __call__(
        self,
        batch: Sequence[AtomSet],
        positions: Sequence[Tensor] | None = None,
        *,
        geometry: Sequence[Geometry] | None = None,
        sites: Sequence[SitesOfQueries | None] | None = None,
        footprint_m: Footprint | None = None,
    ) -> Tensor | list[Tensor]:
        """Return what ``model(batch, positions)`` returns; sampled cells come in through ``geometry``."""
        most = self.model.config.max_points
        if geometry is None:
            geometry = [self.model.geometry(atoms).sample(None, max_points=most) for atoms in batch]
        geometries = list(geometry)
        latents = [self.encode(atoms, g) for atoms, g in zip(batch, geometries, strict=True)]
        if positions is None:
            return torch.stack([self.head(h_LD.mean(dim=0)) for h_LD in latents])
        sites = [None] * len(batch) if sites is None else list(sites)
        return [
            self.decode(h, g, atoms, where, named, footprint_m)
            for h, g, atoms, where, named in zip(latents, geometries, batch, positions, sites, strict=True)
        ]

    # Tokens (§3.1)

    def tokens(self, atoms: AtomSet) -> Tensor:
        """Return f = [φ_v(v), φ_g, φ_λ, φ_t, site fields] of every valid atom in natural order: (N, F)."""
        t = self.model.tokenizer
        rows = []
        for acquisition in atoms:
            phi_v_PCF = value_features(t.standardise(acquisition), self.model.config)
            kind_PCF = t.kind_features(acquisition).expand(*phi_v_PCF.shape[:2], -1)
            site_PF = t.site_features(acquisition)
            if site_PF is None:
                site_PF = phi_v_PCF.new_zeros(len(phi_v_PCF), t.parts.site)
            site_PCF = site_PF[:, None].expand(-1, phi_v_PCF.shape[1], -1)
            rows.append(torch.cat([phi_v_PCF, kind_PCF, site_PCF], dim=-1)[acquisition.valid_mask()])
        return torch.cat(rows)

    def offsets(self, delta: Tensor) -> Tensor:
        """Return φ_δ of the components of an offset, or no features where the model has no relative encoding."""
        c = self.model.config
        if not c.offset_encoding:
            return delta.new_zeros(*delta.shape[:-1], 0)
        axes = compress(delta, c.offset_scale_m).unbind(-1)
        parts = [fourier(w, c.offset_frequencies, c.offset_max_frequency) for w in axes]
        return torch.cat(parts, dim=-1)

    def positions(self, atoms: AtomSet, geometry: Geometry) -> Tensor:
        """Return x, y of every site from the scene's centre."""
        return torch.cat([acquisition.positions - geometry.center_2 for acquisition in atoms])

    # Encoder (§3.3)

    def encode(self, atoms: AtomSet, geometry: Geometry) -> Tensor:
        """Return processed and, in the temporal mode, aggregated latents (L, D) of one scene."""
        f_NF = self.tokens(atoms)
        positions_S2 = self.positions(atoms, geometry)
        anchors_L2, depth = geometry.anchors_L2, self.model.config.step_depth
        encoded = [self.encode_step(f_NF, positions_S2, cells, anchors_L2) for cells in geometry.cells]
        steps = [self.process(h_LD, anchors_L2, slice(depth)) for h_LD in encoded]
        if self.model.temporal is None:
            return steps[0]
        h_LD = self.aggregate(torch.stack(steps), time_steps(atoms)[1])
        return self.process(h_LD, anchors_L2, slice(depth, None))

    def encode_step(self, f_NF: Tensor, positions_S2: Tensor, cells: Cells, anchors_L2: Tensor) -> Tensor:
        """Return h⁽⁰⁾ (L, D) of one time step."""
        return torch.cat(list(self.encode_cells(f_NF, positions_S2, cells, anchors_L2)))

    def encode_cells(self, f_NF: Tensor, positions_S2: Tensor, cells: Cells, anchors_L2: Tensor) -> Iterator[Tensor]:
        """Yield h⁽⁰⁾ of a few cells at a time: per-atom MLP, then cross-attention within each padded cell."""
        encoder, attention = self.model.encoder, self.model.encoder.attention
        for first in range(0, len(cells), self.cells_at_once):
            last = min(len(cells), first + self.cells_at_once)
            counts = cells.counts_L[first:last]
            slot_n = torch.arange(max(1, int(counts.max())))
            valid_Ln = slot_n < counts[:, None]
            atom_Ln = (cells.start_L1[first:last, None] + torch.where(valid_Ln, slot_n, 0)).clamp(
                max=max(0, len(cells.order_N) - 1)
            )
            f_LnF = f_NF[cells.order_N[atom_Ln]]
            delta_Ln2 = (positions_S2[cells.site_N[atom_Ln].long()] - anchors_L2[first:last, None]).to(f_NF)
            z_LnD = attention.second(gelu(attention.first(torch.cat([f_LnF, self.offsets(delta_Ln2)], dim=-1))))
            dummy_Ln = (counts == 0)[:, None] & (slot_n == 0)  # a cell without atoms attends to one learned token
            z_LnD = torch.where(dummy_Ln[..., None], attention.empty, z_LnD)
            query_LD = encoder.norm(encoder.h_init).expand(len(counts), -1)
            attended_LE = cross_attention(query_LD, z_LnD, valid_Ln | dummy_Ln, attention)
            h_LD = encoder.h_init + encoder.out(attended_LE)
            yield h_LD + feedforward(encoder.feedforward, h_LD)

    # Processor (§3.4)

    def process(self, h_LD: Tensor, anchors_L2: Tensor, blocks: slice) -> Tensor:
        """Return H (L, D) after some blocks over spatial and global latents, spatial ones rotated by their anchors.

        The paper runs all B of them on each time step; those after the aggregation begin with the same global latents.
        """
        processor = self.model.processor
        x_TD = torch.cat([h_LD, processor.global_latents])
        rotation_Te = None if processor.angles is None else rotation_of(processor.angles, anchors_L2, len(x_TD))
        for block in processor.blocks[blocks]:
            assert isinstance(block, TransformerBlock)
            x_TD = x_TD + self_attention(block.attention, x_TD[None], rotation_Te)[0]
            x_TD = x_TD + geglu(block.feedforward, x_TD)
        return x_TD[: len(h_LD)]

    def aggregate(self, h_TLD: Tensor, days_T: Tensor) -> Tensor:
        """Return h̄ (L, D): for each anchor, one block over its T representations and the aggregation token."""
        module = self.model.temporal
        assert module is not None
        steps, latents, _ = h_TLD.shape
        rotation_Te = rotation_of(module.angles, days_T[:, None], steps + 1)
        out = []
        for latent in range(latents):
            x_TD = torch.cat([h_TLD[:, latent], module.token[None]])
            x_TD = x_TD + self_attention(module.attention, x_TD[None], rotation_Te)[0]
            if module.residual:  # the aggregation token starts from the mean over the time steps
                x_TD = torch.cat([x_TD[:-1], x_TD[-1:] + h_TLD[:, latent].mean(dim=0)])
            x_TD = x_TD + feedforward(module.feedforward, x_TD)
            out.append(x_TD[-1])
        return torch.stack(out)

    # Decoder (§3.5)

    def decode(
        self,
        h_LD: Tensor,
        geometry: Geometry,
        atoms: AtomSet,
        positions: Tensor,
        named: SitesOfQueries | None = None,
        footprint_m: Footprint | None = None,
    ) -> Tensor:
        """Return the predictions (M, outputs) at ``positions``."""
        queries = local_queries(positions, geometry)
        sites_MA, owners = seen_sites(queries, atoms, geometry, named, footprint_m)
        queries_M2 = torch.from_numpy(queries)
        nearest_Mk = torch.from_numpy(
            nearest_anchors(queries_M2.numpy(), geometry.anchors_L2.numpy(), self.model.config.neighbors)
        )
        f_NF = self.tokens(atoms)
        outputs = []
        for rows in torch.arange(len(queries_M2)).split(self.queries_at_once):
            q_MD = self.observe(f_NF, atoms, sites_MA[rows], owners)
            outputs.append(self.decode_rows(q_MD, h_LD, geometry.anchors_L2, queries_M2[rows], nearest_Mk[rows]))
        return torch.cat(outputs)

    def observe(self, f_NF: Tensor, atoms: AtomSet, sites_MA: Tensor, owners: tuple[int, ...] | None = None) -> Tensor:
        """Return q̃ (M, D) = q_init + CrossAttn_obs(LN(q_init), {f_i : i ∈ S_j}), or of GELU(W1 f_i + b1).

        ``owners`` is the acquisition of each column of sites, where a footprint holds several of an acquisition.
        """
        decoder = self.model.decoder
        assert decoder is not None
        q_MD = decoder.q_init.expand(len(sites_MA), -1)
        if decoder.observation is None:
            return q_MD
        f_MsF, valid_Ms = [], []
        first = 0
        for a, acquisition in enumerate(atoms):
            valid_PC = acquisition.valid_mask()
            number_PC = (valid_PC.flatten().cumsum(0) - 1).reshape(valid_PC.shape) + first
            for column in [a] if owners is None else [w for w, owner in enumerate(owners) if owner == a]:
                site_M = sites_MA[:, column]
                valid_MC = valid_PC[site_M.clamp(min=0)] & (site_M >= 0)[:, None]
                f_MsF.append(f_NF[torch.where(valid_MC, number_PC[site_M.clamp(min=0)], 0)])
                valid_Ms.append(valid_MC)
            first += int(valid_PC.sum())
        nothing_M = ~torch.cat(valid_Ms, dim=1).any(dim=1)
        mask_Ms = torch.cat([*valid_Ms, nothing_M[:, None]], dim=1)
        attention, unseen_M1X = decoder.observation, decoder.observation.unseen.expand(len(sites_MA), 1, -1)  # old name
        if isinstance(attention, DeepObservationAttention):
            g_MsD = torch.cat([gelu(attention.first(torch.cat(f_MsF, dim=1))), unseen_M1X], dim=1)  # old name
            logits_MsH = attention.logit(g_MsD).masked_fill(~mask_Ms[..., None], -torch.inf)
            values_MsHE = attention.value(g_MsD).unflatten(-1, (attention.heads, attention.head_dim))
            attended_ME = torch.einsum("msh,mshe->mhe", logits_MsH.softmax(dim=1), values_MsHE).flatten(1)
        else:
            context_MsF = torch.cat([*f_MsF, unseen_M1X], dim=1)  # old name
            attended_ME = cross_attention(attention.norm(q_MD), context_MsF, mask_Ms, attention)
        conditioned_MD: Tensor = q_MD + attention.out(attended_ME)
        return conditioned_MD

    def decode_rows(
        self, q_MD: Tensor, h_LD: Tensor, anchors_L2: Tensor, queries_M2: Tensor, nearest_Mk: Tensor
    ) -> Tensor:
        """Return the head's outputs for q = q̃ + CrossAttn_dec(LN(q̃), {[LN(h_l); φ_δ]}), after feed-forward."""
        decoder = self.model.decoder
        assert decoder is not None
        latent = decoder.latent
        delta_Mk2 = (anchors_L2[nearest_Mk] - queries_M2[:, None]).to(h_LD)
        context_MkC = torch.cat([latent.context_norm(h_LD[nearest_Mk]), self.offsets(delta_Mk2)], dim=-1)
        everything = torch.ones(nearest_Mk.shape, dtype=torch.bool)
        q_MD = q_MD + latent.out(cross_attention(latent.norm(q_MD), context_MkC, everything, latent))
        return self.head(q_MD + feedforward(decoder.feedforward, q_MD))

    def head(self, x: Tensor) -> Tensor:
        """Return LN → Linear of ``x``, in the units of the target."""
        head = self.model.head
        out: Tensor = head.linear(head.norm(x))
        task_spec = self.model.task_spec
        return out * task_spec.target_std + task_spec.target_mean if task_spec.regression else out


def cross_attention(query_RD: Tensor, context_RnC: Tensor, valid_Rn: Tensor, layer: nn.Module) -> Tensor:
    """Attend from R queries, each to its own padded context, whose invalid slots get a bias of −∞: (R, H·E)."""
    heads, head_dim = layer.heads, layer.head_dim
    assert isinstance(heads, int) and isinstance(head_dim, int)
    q_RHE = layer.query(query_RD).unflatten(-1, (heads, head_dim))  # type: ignore[operator]
    k_RnHE = layer.key(context_RnC).unflatten(-1, (heads, head_dim))  # type: ignore[operator]
    v_RnHE = layer.value(context_RnC).unflatten(-1, (heads, head_dim))  # type: ignore[operator]
    logits_RHn = torch.einsum("rhe,rnhe->rhn", q_RHE, k_RnHE) / math.sqrt(head_dim)
    bias_Rn = torch.zeros(valid_Rn.shape, dtype=logits_RHn.dtype).masked_fill(~valid_Rn, -torch.inf)
    alpha_RHn = (logits_RHn + bias_Rn[:, None]).softmax(dim=-1)
    return torch.einsum("rhn,rnhe->rhe", alpha_RHn, v_RnHE).flatten(1)


def rotation_of(module: RotaryAngles, coordinates_Rx: Tensor, tokens: int) -> Tensor:
    """Return e^{iθ} (T, E/2) with θ = 2π f compress(w, s) for the first R tokens, 0 for the others."""
    scale = module.reference_scale * torch.log(1 + torch.exp(module.log_ratio))
    angles = [
        2 * math.pi * compress(w, scale)[:, None] * w.new_tensor(module.cycles)
        for w in coordinates_Rx.to(module.log_ratio.dtype).unbind(-1)
    ]
    angles_Re = torch.cat(angles, dim=-1)
    still = angles_Re.new_zeros(tokens - len(angles_Re), angles_Re.shape[1])
    angles_Te = torch.cat([angles_Re, still])
    return torch.polar(torch.ones_like(angles_Te), angles_Te)


def self_attention(layer: SelfAttention, x_BTD: Tensor, rotation_Te: Tensor | None) -> Tensor:
    """Return softmax(q kᵀ / √E) v over all tokens, pairs of channels of q and k rotated as complex numbers."""
    q, k, v = layer.qkv(layer.norm(x_BTD)).unflatten(-1, (3, layer.heads, layer.head_dim)).unbind(2)  # (B, T, H, E)
    if rotation_Te is not None:
        q, k = (
            torch.view_as_real(
                torch.view_as_complex(w.unflatten(-1, (-1, 2)).contiguous()) * rotation_Te[:, None]
            ).flatten(-2)
            for w in (q, k)
        )
    alpha_BHTS = (torch.einsum("bthe,bshe->bhts", q, k) / math.sqrt(layer.head_dim)).softmax(dim=-1)
    out: Tensor = layer.out(torch.einsum("bhts,bshe->bthe", alpha_BHTS, v).flatten(2))
    return out


def feedforward(layer: FeedForward, x: Tensor) -> Tensor:
    """Return W_down GELU(W_up LN(x))."""
    out: Tensor = layer.down(gelu(layer.up(layer.norm(x))))
    return out


def geglu(layer: GatedFeedForward, x: Tensor) -> Tensor:
    """Return W_down (a · GELU(b)) with [a, b] = W_up LN(x)."""
    a, b = layer.up(layer.norm(x)).chunk(2, dim=-1)
    out: Tensor = layer.down(a * gelu(b))
    return out
