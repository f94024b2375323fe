"""The FLOPs of each stage: as computed here (folded), and as the paper writes it (each atom a key).

A multiply-add counts as two; only matrix products count, as in ``torch.utils.flop_counter``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from atomizer_io.data.atoms import AtomSet
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.geometry.neighbors import LocatedQueries, SeenSites
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.atomizer.observations import DeepObservationAttention
from atomizer_io.models.atomizer.temporal import HEADS


@dataclass(frozen=True, slots=True)
class InputSize:
    """The counts of an input on which its FLOPs depend."""

    atoms: int
    sites: int
    kinds: int  # channels of all acquisitions
    latents: int  # per time step
    steps: int = 1
    queries: int = 0
    site_fields: bool = False
    neighbors: int | None = None  # of each query; None: those of the model
    seen: float | None = None  # atoms at each query, of a footprint; None: one of each kind

    @classmethod
    def of(cls, model: AtomizerIO, atoms: AtomSet, queries: int = 0, geometry: Geometry | None = None) -> InputSize:
        """Return the size of a scene under the settings of ``model``, or of a ``geometry`` that is built already."""
        if geometry is None:
            geometry = model.geometry(atoms).sample(None, max_points=model.config.max_points)
        return cls(
            atoms=sum(cells.order_N.numel() for cells in geometry.cells),
            sites=sum(int(cells.site_N.unique().numel()) for cells in geometry.cells),
            kinds=sum(len(a.channels) for a in atoms),
            latents=geometry.anchors_L2.shape[0],
            steps=len(geometry.cells),
            queries=queries,
            site_fields=any(a.site_fields for a in atoms),
        )


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the network: its learned numbers and its FLOPs for one input."""

    name: str
    parameters: int
    flops: float
    literal_flops: float


def stages(model: AtomizerIO, size: InputSize) -> list[Stage]:
    """Return the stages of ``model`` in the order of the data, with their FLOPs for an input of this ``size``."""
    counted = [
        Stage("tokens", _parameters(model.tokenizer), 0.0, 0.0),
        Stage("encoder", _parameters(model.encoder), _encoder(model, size), _encoder_literal(model, size)),
        _same("processor", model.processor, _processor(model, size)),
    ]
    if model.temporal is not None:
        counted.append(_same("temporal", model.temporal, _temporal(model, size)))
    if model.decoder is not None:
        counted.append(
            Stage("decoder", _parameters(model.decoder), _decoder(model, size), _decoder_literal(model, size))
        )
    counted.append(_same("head", model.head, _head(model, size)))
    return counted


def decoder_flops(
    model: AtomizerIO,
    atoms: AtomSet,
    geometry: Geometry,
    queries: int,
    neighbors: int | None = None,
    seen: float | None = None,
) -> float:
    """Return the FLOPs of decoding ``queries`` positions of a scene that is encoded already."""
    if not queries:
        return 0.0
    size = InputSize(
        atoms=0,
        sites=0,
        kinds=sum(len(a.channels) for a in atoms),
        latents=geometry.anchors_L2.shape[0],
        queries=queries,
        site_fields=any(a.site_fields for a in atoms),
        neighbors=neighbors,
        seen=seen,
    )
    return _decoder(model, size) + _head(model, size)


def atoms_seen(located: LocatedQueries | SeenSites, atoms: AtomSet) -> float | None:
    """Return how many atoms a query sees in its footprint, on average; None where it sees one of each kind at most."""
    if located.owners is None or located.sites_MA is None or not len(located.sites_MA):
        return None
    channels = torch.tensor([len(atoms.acquisitions[a].channels) for a in located.owners], dtype=torch.float64)
    return float((located.sites_MA >= 0).double().mean(dim=0) @ channels)


def _encoder(model: AtomizerIO, size: InputSize) -> float:
    c, attention = model.config, model.encoder.attention
    width, inner, heads = c.width, c.cross_heads * c.cross_head_dim, c.cross_heads
    fold = width * inner + inner * width + width * width * heads + inner * width * width + inner * width
    kinds = size.kinds * attention.parts.kind * width
    sites = size.sites * (attention.offset_dim + attention.parts.site * size.site_fields) * width
    atoms = size.atoms * (attention.parts.value + 2 * heads) * width
    pooled = size.latents * size.steps * width * inner
    return 2.0 * (fold + kinds + sites + atoms + pooled) + _after_encoder(model, size)


def _encoder_literal(model: AtomizerIO, size: InputSize) -> float:
    c, attention = model.config, model.encoder.attention
    width, inner = c.width, c.cross_heads * c.cross_head_dim
    per_atom = (sum(attention.parts) + attention.offset_dim) * width + width * width + 2 * width * inner + 2 * inner
    return 2.0 * (size.atoms * per_atom + size.latents * size.steps * width * inner) + _after_encoder(model, size)


def _after_encoder(model: AtomizerIO, size: InputSize) -> float:
    c = model.config
    hidden = round(c.width * c.encoder_expansion)
    return 2.0 * size.latents * size.steps * c.width * (c.cross_heads * c.cross_head_dim + 2 * hidden)


def _processor(model: AtomizerIO, size: InputSize) -> float:
    c = model.config
    tokens, inner = size.latents + c.global_latents, c.self_heads * c.self_head_dim
    per_token = 4 * c.width * inner + 3 * c.width * round(c.width * c.processor_expansion)
    return 2.0 * size.steps * c.depth * (tokens * per_token + 2 * tokens**2 * inner)


def _temporal(model: AtomizerIO, size: InputSize) -> float:
    assert model.temporal is not None
    c, steps = model.config, size.steps + 1
    inner = HEADS * model.temporal.attention.head_dim
    block = 4 * steps * c.width * inner + 2 * steps**2 * inner + 2 * c.width * round(c.width * 0.5)
    return 2.0 * size.latents * block


def _decoder(model: AtomizerIO, size: InputSize) -> float:
    decoder = model.decoder
    assert decoder is not None
    c, latent = model.config, decoder.latent
    width, heads, inner = c.width, c.cross_heads, c.cross_heads * c.cross_head_dim
    neighbors = _neighbors(model, size)
    per_query: float = 2 * width * inner + 2 * neighbors * (inner + heads * latent.offset_dim)
    per_query += 2 * inner * latent.offset_dim
    per_query += 2 * width * round(width * c.decoder_expansion)
    fixed = 2 * size.latents * width * inner
    if decoder.observation is not None:
        value, kind, site = decoder.observation.parts
        seen = size.kinds if size.seen is None else size.seen
        site *= size.site_fields
        if isinstance(decoder.observation, DeepObservationAttention):
            hidden = decoder.observation.hidden
            fixed += size.kinds * kind * hidden
            per_query += (seen * (value + 2 * heads) + site) * hidden + hidden * inner + inner * width
        else:
            token = sum(decoder.observation.parts)
            per_query += seen * heads * (2 * value + kind + site) + token * inner + inner * width
    return 2.0 * (size.queries * per_query + fixed)


def _head(model: AtomizerIO, size: InputSize) -> float:
    rows = size.queries if model.task_spec.dense else 1
    return 2.0 * rows * model.config.width * model.task_spec.num_outputs


def _neighbors(model: AtomizerIO, size: InputSize) -> int:
    return min(size.neighbors or model.config.neighbors, size.latents)


def _decoder_literal(model: AtomizerIO, size: InputSize) -> float:
    decoder = model.decoder
    assert decoder is not None
    c, latent = model.config, decoder.latent
    width, heads, inner = c.width, c.cross_heads, c.cross_heads * c.cross_head_dim
    neighbors = _neighbors(model, size)
    context = width + latent.offset_dim
    per_query: float = 2 * width * inner + 2 * neighbors * (context * inner + inner)
    per_query += 2 * width * round(width * c.decoder_expansion)
    if decoder.observation is not None:
        token = sum(decoder.observation.parts)
        seen = size.kinds if size.seen is None else size.seen
        if isinstance(decoder.observation, DeepObservationAttention):
            hidden = decoder.observation.hidden
            per_query += width * inner + seen * (token * hidden + hidden * heads + hidden * inner + inner)
        else:
            per_query += 2 * width * inner + 2 * seen * (token * inner + inner)
    return 2.0 * size.queries * per_query


def latents_for(model: AtomizerIO, atoms_per_step: float) -> int:
    """Return the number of latents ⌈N/κ⌉ of a scene with N atoms per time step."""
    return math.ceil(atoms_per_step / model.config.atoms_per_latent)


def _same(name: str, module: nn.Module, flops: float) -> Stage:
    return Stage(name, _parameters(module), flops, flops)


def _parameters(module: nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())
