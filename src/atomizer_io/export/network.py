"""The network as one function of tensors: the stages of ``AtomizerIO`` for one scene, with nothing to look up.

Where things lie (cells, neighbours, what a query sees) comes in as indices. Channels come in as physical numbers, so
one file takes any set of bands. Names and shapes of the inputs: :data:`INPUTS`.

Shapes: R rows of n slots with atoms, K kinds (all channels of all acquisitions), S sites, L latents, T time steps, M
queries, W atoms that a query sees at most, k neighbours, H heads, E head dim, D width, F features of a part of a token.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor, nn

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.encodings import spectral
from atomizer_io.models.atomizer.geometry.neighbors import LocatedQueries
from atomizer_io.models.atomizer.observations import (
    DeepObservationAttention,
    ObservationAttention,
    RawObservationAttention,
)
from atomizer_io.models.atomizer.ops.attention import Block
from atomizer_io.models.atomizer.tokens import (
    NOMINAL_BANDWIDTH_UM,
    field_features,
    gsd_features,
    time_features,
    value_features,
    zero_unless,
)

OUTPUT = "answer"  # of every exported file, so that readers find it  # old name


class Described(Protocol):
    """Has the settings of a network and its task specification: a model, or a :class:`Description`."""

    @property
    def config(self) -> AtomizerConfig:
        """Return the settings of the network."""
        ...

    @property
    def task_spec(self) -> TaskSpec:
        """Return the task, the outputs and the statistics."""
        ...


@dataclass(frozen=True, slots=True)
class Description:
    """The settings and task specification of a model without its weights."""

    config: AtomizerConfig
    task_spec: TaskSpec


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
        "cell",
        ("rows",),
        _INDEX,
        "cell of each row: step * latents + latent; a cell may have several rows, or none; "
        "steps * latents for atoms that only queries see",
    ),
    Input("wavelength_um", _KINDS, _EXACT, "centre of the band in micrometres, NaN without one"),
    Input("bandwidth_um", _KINDS, _EXACT, "width of the band in micrometres, NaN where unknown"),
    Input("learned", _KINDS, _INDEX, "number of the name in learned_channels, for kinds without a wavelength, else -1"),
    Input("gsd_m", _KINDS, _EXACT, "ground sampling distance in metres, NaN where unknown"),
    Input("day_of_year", _KINDS, _EXACT, "day of the acquisition (1 is the first of January), NaN where unknown"),
    Input("mean", _KINDS, _EXACT, "mean of the channel in raw units, as in training"),
    Input("std", _KINDS, _EXACT, "standard deviation of the channel in raw units, as in training"),
    Input("site_position", ("sites", 2), _EXACT, "x, y in metres from the centre of the scene"),
    Input("site_cell", ("sites",), _INDEX, "latent in whose cell each site is"),
    Input("site_field", ("sites", "fields"), _REAL, "site fields in the order of the settings, NaN where unknown"),
    Input("anchor", ("latents", 2), _EXACT, "x, y of each latent in metres from the centre of the scene"),
    Input("step_day", ("steps",), _EXACT, "day of each time step, counted from the middle of the series"),
    Input("query_position", ("queries", 2), _EXACT, "x, y in metres from the centre of the scene"),
    Input("neighbor", ("queries", "neighbors"), _INDEX, "nearest anchors of each query"),
    Input("seen", ("queries", "views"), _INDEX, "atoms at the query: row * slots + slot of each, -1 for none"),
)


def inputs_of(model: Described) -> tuple[Input, ...]:
    """Return the inputs that this model has when it is exported; they depend on its settings and task."""
    config, dense = model.config, model.task_spec.dense
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


def signature_of(inputs: Sequence[Input]) -> inspect.Signature:
    """Return the signature of a network: torch.export names what it traces after its parameters."""
    own = [inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)]
    return inspect.Signature(
        own + [inspect.Parameter(i.name, inspect.Parameter.KEYWORD_ONLY, default=None) for i in inputs]
    )


class Network(nn.Module):
    """A float32 copy of a model in evaluation mode; :meth:`forward` takes the tensors of :func:`inputs_of` by name."""

    def __init__(self, model: AtomizerIO) -> None:
        super().__init__()
        self.model = copy.deepcopy(model).to("cpu", torch.float32).eval().requires_grad_(False)

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What :meth:`forward` takes."""
        return inputs_of(self.model)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what :meth:`forward` returns."""
        return (OUTPUT,)

    def forward(self, **inputs: Tensor) -> Tensor:
        """Return the predictions (M, outputs) at the queries, or (1, outputs) for the scene."""
        model, decoder = self.model, self.model.decoder
        atoms = self.atoms(inputs)
        h_TLD = self.encode(atoms, inputs)
        h_LD = h_TLD[0]
        if model.temporal is not None:
            h_1LD, rest = model.temporal(h_TLD, inputs["step_day"])[None], slice(model.config.step_depth, None)
            h_LD = model.processor(h_1LD, inputs["anchor"][None], rest)[0]
        if decoder is None:
            logits: Tensor = model.head(h_LD.mean(dim=0, keepdim=True))
            return logits
        near = LocatedQueries(inputs["neighbor"], inputs["query_position"], inputs["anchor"])
        q_MD = decoder.q_init.expand(near.queries_M2.shape[0], -1)
        if decoder.observation is not None:
            q_MD = q_MD + observe(decoder.observation, decoder.q_init, atoms, inputs["seen"])
        latent = decoder.latent
        q_MD = q_MD + latent.combine(*latent.pool(*latent.queries(q_MD), latent.project(h_LD), near))
        logits = model.head(q_MD + decoder.feedforward(q_MD))
        return logits

    forward.__signature__ = signature_of(INPUTS)  # type: ignore[attr-defined]

    def atoms(self, inputs: Mapping[str, Tensor]) -> Atoms:
        """Return the atoms of the scene, standardised, with the features of their kinds and sites."""
        tokenizer, kind_Rn, raw_Rn = self.model.tokenizer, inputs["kind"].clamp(min=0), inputs["value"]
        scale_K = 1.0 / (inputs["std"] * tokenizer.encodings.value_divisor)
        value_Rn = (raw_Rn - inputs["mean"].to(raw_Rn.dtype)[kind_Rn]) * scale_K.to(raw_Rn.dtype)[kind_Rn]
        site_SF = None
        if "site_field" in inputs:
            columns = zip(inputs["site_field"].unbind(dim=1), tokenizer.fields, strict=True)
            site_SF = torch.cat([field_features(raw_S, field, tokenizer.encodings) for raw_S, field in columns], dim=-1)
        real_Rn = inputs["kind"] >= 0
        site_Rn = torch.where(real_Rn, inputs["site"], 0)
        return Atoms(value_Rn, real_Rn, kind_Rn, site_Rn, self.kind_features(inputs), site_SF)

    def kind_features(self, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return [φ_g | φ_λ | φ_t] of each kind (K, F), as ``Tokenizer.kind_features`` makes them from channels."""
        config, table, learned = self.model.config, self.model.tokenizer.learned, inputs["learned"]
        wavelength_um, bandwidth_um = inputs["wavelength_um"], inputs["bandwidth_um"]
        width_K = torch.where(bandwidth_um.isnan(), NOMINAL_BANDWIDTH_UM, bandwidth_um)
        # in float32, for which runtimes have erf; a band is then off by less than 1e-6
        band_KF = spectral(wavelength_um.to(table.dtype), width_K.to(table.dtype))
        band_KF = zero_unless(~wavelength_um.isnan(), band_KF)
        if len(table):
            band_KF = torch.where((learned >= 0)[:, None], table[learned.clamp(min=0)], band_KF)
        time_KF = time_features(inputs["day_of_year"], config) * float(self.model.task_spec.dates)
        gsd_KF = gsd_features(inputs["gsd_m"], config)
        return torch.cat([gsd_KF.to(table.dtype), band_KF, time_KF.to(table.dtype)], dim=-1)

    def encode(self, atoms: Atoms, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return latents (T, L, D) as they are merged; every row of atoms is a segment of its cell."""
        encoder, anchors_L2, cell_R = self.model.encoder, inputs["anchor"], inputs["cell"]
        steps = inputs["step_day"].shape[0] if "step_day" in inputs else 1
        attention, shape = encoder.attention, (steps, anchors_L2.shape[0])
        folded = attention.fold(encoder.query(), atoms.kind_KF)
        block = cell_block(atoms, inputs)
        lse_RH, out_RHE = attention.attend(folded, atoms.value_Rn.flatten(), atoms.site_SF, block)
        cells = shape[0] * shape[1]  # one more is of atoms that only queries see
        merged_LHE = merge_rows(lse_RH, out_RHE, cell_R, cells + 1, attention.of_empty_cell())[:cells]
        h_TLD = encoder.latents(merged_LHE.flatten(1)).unflatten(0, shape)
        processed_TLD: Tensor = self.model.processor(
            h_TLD, anchors_L2.expand(steps, -1, -1), slice(self.model.config.step_depth)
        )
        return processed_TLD


def cell_block(atoms: Atoms, inputs: Mapping[str, Tensor]) -> Block:
    """Return all rows of atoms with their offsets from the anchors of their cells."""
    delta_S2 = (inputs["site_position"] - inputs["anchor"][inputs["site_cell"]]).to(atoms.value_Rn.dtype)
    return Block(
        order_N=torch.arange(atoms.value_Rn.numel()),
        kind_N=atoms.kind_Rn.flatten(),
        slot_N=atoms.site_Rn.flatten(),
        mask_N=atoms.real_Rn.flatten(),
        site_U=torch.arange(delta_S2.shape[0]),
        delta_U2=delta_S2,
        length=atoms.value_Rn.shape[1],
    )


@dataclass(frozen=True, slots=True)
class Atoms:
    """The atoms of a scene in padded rows, and the features of their kinds and sites."""

    value_Rn: Tensor  # standardised
    real_Rn: Tensor  # False where padded
    kind_Rn: Tensor
    site_Rn: Tensor
    kind_KF: Tensor
    site_SF: Tensor | None


def merge_rows(lse_RH: Tensor, out_RHE: Tensor, cell_R: Tensor, cells: int, empty_HE: Tensor) -> Tensor:
    """Return what ``attention.merge`` returns, (cells, H, E), without ``index_add``.

    In ONNX that becomes ScatterND, in which the threads of onnxruntime 1.31 race where two rows belong to one cell: now
    and then a sum lacks a row. ScatterElements, which ``scatter_add`` becomes, does not.
    """
    cell_RH, shape = cell_R[:, None].expand_as(lse_RH), (cells, *out_RHE.shape[1:])
    peak_LH = lse_RH.new_full(shape[:2], -torch.inf).scatter_reduce(0, cell_RH, lse_RH, "amax")
    weight_RH = (lse_RH - peak_LH[cell_R]).exp()
    total_LH = lse_RH.new_zeros(shape[:2]).scatter_add(0, cell_RH, weight_RH)
    share_RHE = (weight_RH / total_LH[cell_R])[..., None] * out_RHE
    merged_LHE = out_RHE.new_zeros(shape).scatter_add(0, cell_RH[..., None].expand_as(share_RHE), share_RHE)
    return torch.where((total_LH > 0)[..., None], merged_LHE, empty_HE)


def observe(attention: ObservationAttention, q_D: Tensor, atoms: Atoms, seen_MW: Tensor) -> Tensor:
    """Return what is added to the shared query (M, D) for the atoms that each query sees."""
    if isinstance(attention, DeepObservationAttention):
        return observe_deep(attention, q_D, atoms, seen_MW)
    return observe_raw(attention, q_D, atoms, seen_MW)


def observe_deep(attention: DeepObservationAttention, q_D: Tensor, atoms: Atoms, seen_MW: Tensor) -> Tensor:
    """Return what a query adds that sees its atoms after a layer of each; every query is a row of atoms."""
    block, any_M1 = seen_block(q_D, atoms, seen_MW)
    _, out_MHE = attention.attend(attention.fold(q_D, atoms.kind_KF), atoms.value_Rn.flatten(), atoms.site_SF, block)
    out_MHE = torch.where(any_M1[..., None], out_MHE, attention.of_empty_cell())
    added_MD: Tensor = attention.out(out_MHE.flatten(1))
    return added_MD


def seen_block(q_D: Tensor, atoms: Atoms, seen_MW: Tensor) -> tuple[Block, Tensor]:
    """Return queries as rows of the atoms that they see, and which see any (M, 1)."""
    valid_MW, slot_MW = seen_MW >= 0, seen_MW.clamp(min=0)
    any_M1 = valid_MW.any(dim=1, keepdim=True)
    block = Block(
        order_N=slot_MW.flatten(),
        kind_N=atoms.kind_Rn.flatten()[slot_MW.flatten()],
        slot_N=atoms.site_Rn.flatten()[slot_MW.flatten()],
        mask_N=(valid_MW | ~any_M1).flatten(),
        site_U=torch.arange(atoms.site_SF.shape[0]) if atoms.site_SF is not None else slot_MW[0],
        delta_U2=q_D.new_zeros(1, 2),
        length=seen_MW.shape[1],
    )
    return block, any_M1


def raw_weights(
    attention: RawObservationAttention, q_D: Tensor, atoms: Atoms, seen_MW: Tensor
) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return attention (M, W, H) to the atoms that each query sees as they are, φ_v of these, and their site fields."""
    value_FH, kind_FH, site_FH = attention.logit_weights(q_D)
    valid_MW, slot_MW = seen_MW >= 0, seen_MW.clamp(min=0)
    kind_MW = atoms.kind_Rn.flatten()[slot_MW]
    values_MW = torch.where(valid_MW, atoms.value_Rn.flatten()[slot_MW], 0.0)
    phi_MWF = value_features(values_MW, attention.encodings)
    logits_MWH, site_MWF = phi_MWF @ value_FH + (atoms.kind_KF @ kind_FH)[kind_MW], None
    if atoms.site_SF is not None:
        site_MWF = atoms.site_SF[atoms.site_Rn.flatten()[slot_MW]]
        logits_MWH = logits_MWH + site_MWF @ site_FH
    return attention.softmax(logits_MWH, valid_MW), phi_MWF, site_MWF


def observe_raw(attention: RawObservationAttention, q_D: Tensor, atoms: Atoms, seen_MW: Tensor) -> Tensor:
    """Return what a query adds that sees its atoms as they are."""
    valid_MW, kind_MW = seen_MW >= 0, atoms.kind_Rn.flatten()[seen_MW.clamp(min=0)]
    weights_MWH, phi_MWF, site_MWF = raw_weights(attention, q_D, atoms, seen_MW)
    site_HMF = None if site_MWF is None else torch.einsum("mwh,mwf->hmf", weights_MWH, site_MWF)
    shape = (seen_MW.shape[0], atoms.kind_KF.shape[0], attention.heads)
    kinds_MKH = weights_MWH.new_zeros(shape).scatter_add(1, kind_MW[..., None].expand_as(weights_MWH), weights_MWH)
    return attention.project(attention.pool(weights_MWH, phi_MWF, kinds_MKH, atoms.kind_KF, site_HMF, valid_MW))
