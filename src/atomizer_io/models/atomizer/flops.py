"""The FLOPs of each stage: as computed here (folded), and as the paper writes it (each atom a key).

A multiply-add counts as two; only matrix products count, as in ``torch.utils.flop_counter``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from atomizer_io.data.atoms import AtomSet
from atomizer_io.models.atomizer.atomizer import AtomizerIO
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
    parts: list[tuple[str, nn.Module | None, tuple[float, float]]] = [
        ("tokens", model.tokenizer, (0.0, 0.0)),
        ("encoder", model.encoder, _encoder(model, size)),
        ("processor", model.processor, _processor(model, size)),
        ("temporal", model.temporal, _temporal(model, size)),
        ("decoder", model.decoder, _decoder(model, size)),
        ("head", model.head, _head(model, size)),
    ]
    return [
        Stage(name, sum(parameter.numel() for parameter in module.parameters()), *flops)
        for name, module, flops in parts
        if module is not None
    ]


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
    return _decoder(model, size)[0] + _head(model, size)[0]


def atoms_seen(sites_MA: Tensor | None, owners: Sequence[int] | None, atoms: AtomSet) -> float | None:
    """Return how many atoms a query sees in its footprint, on average; None where it sees one of each kind at most."""
    if owners is None or sites_MA is None or not len(sites_MA):
        return None
    channels = torch.tensor([len(atoms.acquisitions[a].channels) for a in owners], dtype=torch.float64)
    return float((sites_MA >= 0).double().mean(dim=0) @ channels)


def latents_for(model: AtomizerIO, atoms: float, steps: int = 1) -> int:
    """Return the number of latents ⌈N/κ⌉ of a scene, for the N atoms of a time step or of the whole series."""
    counted = atoms if model.config.temporal_residual else atoms / steps
    return math.ceil(counted / model.config.atoms_per_latent)


# The FLOPs of one stage each: as computed here, and as the paper writes it.


def _encoder(model: AtomizerIO, size: InputSize) -> tuple[float, float]:
    c, attention = model.config, model.encoder.attention
    width, heads, inner, latents = c.width, c.cross_heads, c.cross_heads * c.cross_head_dim, size.latents * size.steps
    value, kind, site = attention.parts
    after = latents * width * (inner + 2 * round(width * c.encoder_expansion))
    fold = width * inner + inner * width + width * width * heads + inner * width * width + inner * width
    per_site = (attention.offset_dim + site * size.site_fields) * width
    folded = fold + size.kinds * kind * width + size.sites * per_site + size.atoms * (value + 2 * heads) * width
    per_atom = (value + kind + site + attention.offset_dim) * width + width * width + 2 * width * inner + 2 * inner
    pooled = latents * width * inner
    return 2.0 * (folded + pooled) + 2.0 * after, 2.0 * (size.atoms * per_atom + pooled) + 2.0 * after


def _processor(model: AtomizerIO, size: InputSize) -> tuple[float, float]:
    c = model.config
    tokens, inner = size.latents + c.global_latents, c.self_heads * c.self_head_dim
    per_token = 4 * c.width * inner + 3 * c.width * round(c.width * c.processor_expansion)
    runs = size.steps * c.step_depth + c.depth - c.step_depth
    return (2.0 * runs * (tokens * per_token + 2 * tokens**2 * inner),) * 2


def _temporal(model: AtomizerIO, size: InputSize) -> tuple[float, float]:
    if model.temporal is None:
        return 0.0, 0.0
    width, steps, inner = model.config.width, size.steps + 1, HEADS * model.temporal.attention.head_dim
    block = 4 * steps * width * inner + 2 * steps**2 * inner + 2 * width * round(width * 0.5)
    return (2.0 * size.latents * block,) * 2


def _decoder(model: AtomizerIO, size: InputSize) -> tuple[float, float]:
    decoder, c = model.decoder, model.config
    if decoder is None:
        return 0.0, 0.0
    width, heads, inner, offset = c.width, c.cross_heads, c.cross_heads * c.cross_head_dim, decoder.latent.offset_dim
    neighbors = min(size.neighbors or c.neighbors, size.latents)
    both = 2 * width * inner + 2 * width * round(width * c.decoder_expansion)
    folded: float = both + 2 * neighbors * (inner + heads * offset) + 2 * inner * offset
    literal: float = both + 2 * neighbors * ((width + offset) * inner + inner)
    fixed = 2 * size.latents * width * inner
    if decoder.observation is not None:
        value, kind, site = decoder.observation.parts
        token, site_fields = value + kind + site, site * size.site_fields
        seen = size.kinds if size.seen is None else size.seen
        if isinstance(decoder.observation, DeepObservationAttention):
            hidden = decoder.observation.hidden
            fixed += size.kinds * kind * hidden
            folded += (seen * (value + 2 * heads) + site_fields) * hidden + hidden * inner + inner * width
            literal += width * inner + seen * (token * hidden + hidden * heads + hidden * inner + inner)
        else:
            folded += seen * heads * (2 * value + kind + site_fields) + token * inner + inner * width
            literal += 2 * width * inner + 2 * seen * (token * inner + inner)
    return 2.0 * (size.queries * folded + fixed), 2.0 * size.queries * literal


def _head(model: AtomizerIO, size: InputSize) -> tuple[float, float]:
    rows = size.queries if model.task_spec.dense else 1
    return (2.0 * rows * model.config.width * model.task_spec.num_outputs,) * 2
