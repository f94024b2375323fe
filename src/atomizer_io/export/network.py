"""The network as one function of tensors: what ``AtomizerIO`` computes for one scene, with nothing to look up.

Where things lie (cells, neighbours, what a query sees) comes in as indices. Channels come in as physical numbers, so
one file takes any set of bands. Names and shapes of the inputs: :data:`INPUTS`.

Shapes: R rows of n slots with atoms, K kinds (all channels of all acquisitions), S sites, L latents, T time steps, M
queries, k neighbours, H heads, E head dim, D width, F features of a part of a token.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu

from atomizer_io.export.description import Described
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.attention import FoldedCrossAttention
from atomizer_io.models.atomizer.decoder import LatentAttention, Near, ObservationAttention
from atomizer_io.models.atomizer.encodings import compress, fourier, spectral, time_of_year
from atomizer_io.models.atomizer.tokens import NOMINAL_BANDWIDTH_UM, Tokenizer, Tokens, offset_features, value_features

OUTPUT = "answer"


@dataclass(frozen=True, slots=True)
class Input:
    """One input of the exported network; ``dims`` are names of dimensions that may differ from run to run, or sizes."""

    name: str
    dims: tuple[str | int, ...]
    dtype: torch.dtype
    meaning: str


_REAL, _INDEX, _EXACT = torch.float32, torch.int64, torch.float64
_ATOMS, _KINDS = ("rows", "slots"), ("kinds",)

INPUTS = (
    Input("value", _ATOMS, _REAL, "atoms in raw units; each row holds atoms of one cell, and at least one"),
    Input("kind", _ATOMS, _INDEX, "kind of each atom, -1 where a row is padded"),
    Input("site", _ATOMS, _INDEX, "site of each atom; any where padded"),
    Input(
        "cell", ("rows",), _INDEX, "cell of each row: step * latents + latent; a cell may have several rows, or none"
    ),
    Input("wavelength_um", _KINDS, _EXACT, "centre of the band in micrometres, NaN without one"),
    Input("bandwidth_um", _KINDS, _EXACT, "width of the band in micrometres, NaN where unknown"),
    Input("learned", _KINDS, _INDEX, "number of the name in learned_channels, for kinds without a wavelength, else -1"),
    Input("gsd_m", _KINDS, _EXACT, "ground sampling distance in metres, NaN where unknown"),
    Input("day_of_year", _KINDS, _EXACT, "day of the acquisition (1 is the first of January), NaN where unknown"),
    Input("mean", _KINDS, _EXACT, "mean of the channel in raw units, as in training"),
    Input("std", _KINDS, _EXACT, "standard deviation of the channel in raw units, as in training"),
    Input("site_position", ("sites", 2), _EXACT, "x, y in metres from the centre of the scene"),
    Input("site_cell", ("sites",), _INDEX, "nearest anchor of each site"),
    Input("site_field", ("sites", "fields"), _REAL, "site fields in the order of the settings, NaN where unknown"),
    Input("anchor", ("latents", 2), _EXACT, "x, y of each latent in metres from the centre of the scene"),
    Input("step_day", ("steps",), _EXACT, "day of each time step, counted from the middle of the series"),
    Input("query_position", ("queries", 2), _EXACT, "x, y in metres from the centre of the scene"),
    Input("neighbor", ("queries", "neighbors"), _INDEX, "nearest anchors of each query"),
    Input("seen", ("queries", "kinds"), _INDEX, "atom of each kind at the query: row * slots + slot, -1 where none"),
)


def inputs_of(model: Described) -> tuple[Input, ...]:
    """The inputs that an exported model has."""
    config, dense = model.config, model.problem.dense
    absent = set[str]()
    if not config.site_fields:
        absent |= {"site_field"}
    if not config.temporal:
        absent |= {"step_day"}
    if not dense:
        absent |= {"query_position", "neighbor"}
    if not (dense and config.observation_conditioning):
        absent |= {"seen"}
    sizes = {"fields": len(config.site_fields)}
    return tuple(
        Input(i.name, tuple(sizes.get(str(dim), dim) for dim in i.dims), i.dtype, i.meaning)
        for i in INPUTS
        if i.name not in absent
    )


class Network(nn.Module):
    """A float32 copy of a model in evaluation mode; :meth:`forward` takes the tensors of :func:`inputs_of`."""

    def __init__(self, model: AtomizerIO) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).to("cpu", torch.float32).eval().requires_grad_(False)

    def forward(
        self,
        value: Tensor,
        kind: Tensor,
        site: Tensor,
        cell: Tensor,
        wavelength_um: Tensor,
        bandwidth_um: Tensor,
        learned: Tensor,
        gsd_m: Tensor,
        day_of_year: Tensor,
        mean: Tensor,
        std: Tensor,
        site_position: Tensor,
        site_cell: Tensor,
        anchor: Tensor,
        site_field: Tensor | None = None,
        step_day: Tensor | None = None,
        query_position: Tensor | None = None,
        neighbor: Tensor | None = None,
        seen: Tensor | None = None,
    ) -> Tensor:
        """Answers (M, outputs) at the queries, or (1, outputs) for the scene."""
        model, c = self.model, self.model.config
        kind_KF = self.kind_features(wavelength_um, bandwidth_um, learned, gsd_m, day_of_year)
        fields_SF = None if site_field is None else field_features(site_field, model.tokenizer)
        known_Rn = kind.clamp(min=0)
        scale_K = (1.0 / (std * c.value_divisor)).to(value.dtype)
        value_Rn = (value - mean.to(value.dtype)[known_Rn]) * scale_K[known_Rn]

        delta_S2 = (site_position - anchor[site_cell]).to(value.dtype)
        steps = 1 if step_day is None else step_day.shape[0]
        atoms = Atoms(value_Rn, kind, site, cell, kind_KF, delta_S2, fields_SF)
        h_TLD = self.encode(atoms, anchor, steps)
        h_LD = h_TLD[0] if model.temporal is None else model.temporal(h_TLD, step_day)
        if model.decoder is None:
            answer: Tensor = model.head(h_LD.mean(dim=0, keepdim=True))
            return answer

        assert query_position is not None and neighbor is not None
        q_MD = model.decoder.q_init.expand(query_position.shape[0], -1)
        if model.decoder.observation is not None:
            assert seen is not None
            q_MD = q_MD + observe(model.decoder.observation, model.decoder.q_init, atoms, seen)
        q_MD = q_MD + attend(model.decoder.latent, q_MD, h_LD, Near(neighbor, query_position, anchor))
        answer = model.head(q_MD + model.decoder.feedforward(q_MD))
        return answer

    def kind_features(
        self, wavelength_um: Tensor, bandwidth_um: Tensor, learned: Tensor, gsd_m: Tensor, day_of_year: Tensor
    ) -> Tensor:
        """[φ_g | φ_λ | φ_t] of each kind (K, F), as :meth:`Tokenizer.kind_features` makes them from channels."""
        c, table = self.model.config, self.model.tokenizer.learned
        gsd_KF = _known(gsd_m, fourier(compress(gsd_m, c.gsd_scale_m), c.gsd_frequencies, c.gsd_max_frequency))
        time_KF = _known(day_of_year, time_of_year(day_of_year, c.time_frequencies)) * float(self.model.problem.dates)
        width_K = torch.where(bandwidth_um.isnan(), NOMINAL_BANDWIDTH_UM, bandwidth_um)
        # in float32, for which runtimes have erf; a band is then off by less than 1e-6
        band_KF = _known(wavelength_um, spectral(wavelength_um.to(table.dtype), width_K.to(table.dtype)))
        if len(table):
            band_KF = torch.where((learned >= 0)[:, None], table[learned.clamp(min=0)], band_KF)
        return torch.cat([gsd_KF.to(table.dtype), band_KF, time_KF.to(table.dtype)], dim=-1)

    def encode(self, atoms: Atoms, anchors_L2: Tensor, steps: int) -> Tensor:
        """Encoded and processed latents (T, L, D)."""
        encoder, processor = self.model.encoder, self.model.processor
        query_D, latents = encoder.norm(encoder.h_init), anchors_L2.shape[0]
        attended_LE = pool(encoder.attention, query_D, atoms, steps * latents)
        h_LD = encoder.h_init + encoder.out(attended_LE)
        h_TLD = (h_LD + encoder.feedforward(h_LD)).unflatten(0, (steps, latents))
        globals_TGD = processor.global_latents.expand(steps, -1, -1)
        x_TXD = torch.cat([h_TLD, globals_TGD], dim=1)
        angles = None if processor.angles is None else processor.angles(anchors_L2).expand(steps, -1, -1)
        for block in processor.blocks:
            x_TXD = block(x_TXD, angles)
        return x_TXD[:, :latents]


@dataclass(frozen=True, slots=True)
class Atoms:
    """The atoms of a scene, standardised, in rows that belong to cells."""

    value_Rn: Tensor
    kind_Rn: Tensor
    site_Rn: Tensor
    cell_R: Tensor
    kind_KF: Tensor
    delta_S2: Tensor  # metres from the anchor of its cell
    fields_SF: Tensor | None


def pool(attention: FoldedCrossAttention, query_D: Tensor, atoms: Atoms, cells: int) -> Tensor:
    """``FoldedCrossAttention.forward`` with every row a segment: (cells, H·E)."""
    folded = attention.fold(query_D, _tokens(atoms))
    real_Rn = atoms.kind_Rn >= 0
    hidden_RnD = folded.kind_KD[atoms.kind_Rn.clamp(min=0)]
    of_sites = []
    if folded.offset_FD is not None:
        of_sites.append(offset_features(atoms.delta_S2, attention.config) @ folded.offset_FD)
    if atoms.fields_SF is not None:
        of_sites.append(atoms.fields_SF @ folded.site_FD)
    if of_sites:
        hidden_RnD = hidden_RnD + sum(of_sites[1:], of_sites[0])[atoms.site_Rn]
    hidden_RnD = gelu(hidden_RnD + value_features(atoms.value_Rn, attention.config) @ folded.value_FD)
    logits_RnH = (hidden_RnD @ folded.logit_DH).masked_fill(~real_Rn[..., None], -torch.inf)
    lse_RH = logits_RnH.logsumexp(dim=1)
    weight_RHn = (logits_RnH - lse_RH[:, None]).exp().transpose(1, 2)
    out_RHE = attention._project(folded, weight_RHn @ hidden_RnD)
    empty_HE = attention.value(attention.empty).unflatten(0, (attention.heads, attention.head_dim))
    return merge_rows(lse_RH, out_RHE, atoms.cell_R, cells, empty_HE).flatten(1)


def merge_rows(lse_RH: Tensor, out_RHE: Tensor, cell_R: Tensor, cells: int, empty_HE: Tensor) -> Tensor:
    """``attention.merge`` without ``index_add``.

    That becomes ScatterND, in which the threads of onnxruntime 1.31 race where two rows belong to one cell: now and
    then a sum lacks a row. ScatterElements, which ``scatter_add`` becomes, does not.
    """
    cell_RH, shape = cell_R[:, None].expand_as(lse_RH), (cells, *out_RHE.shape[1:])
    peak_LH = lse_RH.new_full(shape[:2], -torch.inf).scatter_reduce(0, cell_RH, lse_RH, "amax")
    weight_RH = (lse_RH - peak_LH[cell_R]).exp()
    total_LH = lse_RH.new_zeros(shape[:2]).scatter_add(0, cell_RH, weight_RH)
    share_RHE = (weight_RH / total_LH[cell_R])[..., None] * out_RHE
    merged_LHE = out_RHE.new_zeros(shape).scatter_add(0, cell_RH[..., None].expand_as(share_RHE), share_RHE)
    return torch.where((total_LH > 0)[..., None], merged_LHE, empty_HE)


def observe(attention: ObservationAttention, q_D: Tensor, atoms: Atoms, seen_MK: Tensor) -> Tensor:
    """``ObservationAttention.forward`` over the atoms that each query sees, one of each kind at most: (M, D)."""
    value_FH, kind_FH, site_FH = attention._logit_weights(q_D)
    valid_MK, slot_MK = seen_MK >= 0, seen_MK.clamp(min=0)
    phi_MKF = value_features(torch.where(valid_MK, atoms.value_Rn.flatten()[slot_MK], 0.0), attention.config)
    logits_MKH = phi_MKF @ value_FH + atoms.kind_KF @ kind_FH
    parts = [phi_MKF]
    if atoms.fields_SF is not None:
        fields_MKF = atoms.fields_SF[atoms.site_Rn.flatten()[slot_MK]]
        logits_MKH = logits_MKH + fields_MKF @ site_FH
        parts.append(fields_MKF)
    any_M1 = valid_MK.any(dim=1, keepdim=True)
    weights_MHK = logits_MKH.masked_fill((~valid_MK & any_M1)[..., None], -torch.inf).softmax(dim=1).transpose(1, 2)
    pooled = [weights_MHK @ part_MKF for part_MKF in parts]
    pooled.insert(1, weights_MHK @ atoms.kind_KF)
    pooled_MHF = torch.where(any_M1[..., None], torch.cat(pooled, dim=-1), attention.unseen)
    value_HEF = attention.value.weight.unflatten(0, (attention.heads, attention.head_dim))
    out_MD: Tensor = attention.out(torch.einsum("mhf,hef->mhe", pooled_MHF, value_HEF).flatten(1))
    return out_MD


def attend(attention: LatentAttention, q_MD: Tensor, h_LD: Tensor, near: Near) -> Tensor:
    """``LatentAttention.forward`` for the queries of one scene: (M, D)."""
    latents = attention.project(h_LD)
    query_MHE, turned_HMO = attention._queries(q_MD)
    weights_MkH, phi_MkO = attention._weights(query_MHE, turned_HMO, latents, near)
    values_MHE = torch.einsum("mkh,mkhe->mhe", weights_MkH, latents.value_LHE[near.latents_Mk])
    if phi_MkO is not None:
        offsets_MHO = weights_MkH.transpose(1, 2) @ phi_MkO
        values_MHE = values_MHE + torch.einsum("mho,heo->mhe", offsets_MHO, attention._offset_weight(attention.value))
    out_MD: Tensor = attention.out(values_MHE.flatten(1))
    return out_MD


def field_features(raw_SX: Tensor, tokenizer: Tokenizer) -> Tensor:
    """Encoded site fields (S, F), zero where unknown, as :meth:`Tokenizer.site_features` makes them."""
    parts, config = [], tokenizer.config
    for raw_S, field in zip(raw_SX.unbind(dim=1), tokenizer.fields, strict=True):
        number_S = torch.where(raw_S.isfinite(), raw_S, 0.0)
        if field.fourier:
            number_S = number_S.clamp(min=0).log1p() if field.log else number_S
            features = value_features((number_S - field.mean) / (field.std * config.value_divisor), config)
        else:
            features = torch.stack([number_S, torch.ones_like(number_S)], dim=-1)
        parts.append(torch.where(raw_S.isfinite()[:, None], features, 0.0))
    return torch.cat(parts, dim=-1)


def _known(number_K: Tensor, features_KF: Tensor) -> Tensor:
    """Zero where the number is not known."""
    return torch.where(number_K.isnan()[:, None], 0.0, features_KF)


def _tokens(atoms: Atoms) -> Tokens:
    """What folding wants to know of the tokens."""
    return Tokens(atoms.value_Rn, atoms.kind_KF, atoms.fields_SF, atoms.delta_S2, [0], [0], [0])
