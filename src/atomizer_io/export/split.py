"""A model as two graphs: ``encode`` makes the latents of a scene, ``decode`` predicts at positions of it.

A scene is encoded once; each query then only decodes. ``decode`` also returns how much attention each kind received
(as ``model.explain``: what the query saw, and what reached it through the latents, averaged), for which ``encode``
returns the share of each latent's attention by kind.

Shapes: R rows of n slots with atoms, K kinds, L latents, T steps, M queries, W atoms that a query sees, H heads, D
width.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from atomizer_io.errors import ConfigError
from atomizer_io.export.formats import Written, write_networks
from atomizer_io.export.network import (
    INPUTS,
    OUTPUT,
    Atoms,
    Input,
    Network,
    cell_block,
    inputs_of,
    merge_rows,
    observe,
    raw_weights,
    seen_block,
    signature_of,
)
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.geometry.neighbors import LocatedQueries
from atomizer_io.models.atomizer.observations import DeepObservationAttention, ObservationAttention

LATENTS, SHARES, ATTENTION = "latents", "shares", "attention"
OF_QUERIES = ("query_position", "neighbor", "seen")
OF_CELLS = ("cell", "site_position", "site_cell", "step_day")
MADE = (
    Input(LATENTS, ("latents", "width"), torch.float32, "output of the graph encode"),
    Input(SHARES, ("latents", "kinds"), torch.float32, "output of the graph encode"),
)


class EncodingNetwork(Network):
    """From the atoms of a scene to its latents (L, D) and the share of their attention by kind (L, K)."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What :meth:`forward` takes: what a whole network takes, but for queries."""
        return tuple(i for i in inputs_of(self.model) if i.name not in OF_QUERIES)

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what :meth:`forward` returns."""
        return LATENTS, SHARES

    def forward(self, **inputs: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return latents (L, D) and shares (L, K)."""
        atoms = self.atoms(inputs)
        h_TLD = self.encode(atoms, inputs)
        shares_TLK = self.shares(atoms, inputs).unflatten(0, h_TLD.shape[:2])
        if self.model.temporal is None:
            return h_TLD[0], shares_TLK[0]
        steps_TL = self.model.temporal.step_shares(h_TLD, inputs["step_day"])
        return self.model.temporal(h_TLD, inputs["step_day"]), (steps_TL[..., None] * shares_TLK).sum(dim=0)

    forward.__signature__ = signature_of(INPUTS)  # type: ignore[attr-defined]

    def shares(self, atoms: Atoms, inputs: Mapping[str, Tensor]) -> Tensor:
        """Return the share of the attention of each cell that went to each kind (T·L, K), a mean over heads."""
        attention = self.model.encoder.attention
        folded = attention.fold(self.model.encoder.query(), atoms.kind_KF)
        block = cell_block(atoms, inputs)
        _, logits_RnH = attention.hidden_and_logits(folded, atoms.value_Rn.flatten(), atoms.site_SF, block)
        lse_RH = logits_RnH.logsumexp(dim=1)
        shares_RHK = by_kind((logits_RnH - lse_RH[:, None]).exp(), atoms.kind_Rn, atoms.kind_KF.shape[0])
        steps = inputs["step_day"].shape[0] if "step_day" in inputs else 1
        cells = steps * inputs["anchor"].shape[0]
        nothing_HK = shares_RHK.new_zeros(shares_RHK.shape[1:])
        return merge_rows(lse_RH, shares_RHK, inputs["cell"], cells + 1, nothing_HK)[:cells].mean(dim=1)


class DecodingNetwork(Network):
    """From latents and what queries see to predictions (M, C) and attention by kind (M, K)."""

    @property
    def inputs(self) -> tuple[Input, ...]:
        """What :meth:`forward` takes: what the other graph makes, the queries, and the atoms that they see."""
        sizes = {"width": self.model.config.width}
        made = (Input(i.name, tuple(sizes.get(str(d), d) for d in i.dims), i.dtype, i.meaning) for i in MADE)
        every = [i for i in inputs_of(self.model) if i.name not in OF_CELLS]
        looks = self.model.config.observation_conditioning
        return (*made, *(i for i in every if looks or i.name in ("anchor", *OF_QUERIES)))

    @property
    def outputs(self) -> tuple[str, ...]:
        """The names of what :meth:`forward` returns."""
        return OUTPUT, ATTENTION

    def forward(self, **inputs: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        """Return predictions (M, C) and attention (M, K)."""
        model, decoder = self.model, self.model.decoder
        assert decoder is not None
        near = LocatedQueries(inputs["neighbor"], inputs["query_position"], inputs["anchor"])
        q_MD = decoder.q_init.expand(near.queries_M2.shape[0], -1)
        here_MK = inputs[SHARES].new_zeros(1)
        if decoder.observation is not None:
            atoms = self.atoms(inputs)
            q_MD = q_MD + observe(decoder.observation, decoder.q_init, atoms, inputs["seen"])
            here_MK = seen_shares(decoder.observation, decoder.q_init, atoms, inputs["seen"])
        latent, latents = decoder.latent, decoder.latent.project(inputs[LATENTS])
        weights_Mk = latent.weights(q_MD, latents, near).mean(dim=2)
        around_MK = (weights_Mk[..., None] * inputs[SHARES][near.latents_Mk]).sum(dim=1)
        q_MD = q_MD + latent.combine(*latent.pool(*latent.queries(q_MD), latents, near))
        return model.head(q_MD + decoder.feedforward(q_MD)), (here_MK + around_MK) / 2

    forward.__signature__ = signature_of((*MADE, *INPUTS))  # type: ignore[attr-defined]


def seen_shares(attention: ObservationAttention, q_D: Tensor, atoms: Atoms, seen_MW: Tensor) -> Tensor:
    """Return the attention of each query to each kind that it sees (M, K), a mean over heads; zero without any."""
    if isinstance(attention, DeepObservationAttention):
        block, _ = seen_block(q_D, atoms, seen_MW)
        folded = attention.fold(q_D, atoms.kind_KF)
        _, logits_MWH = attention.hidden_and_logits(folded, atoms.value_Rn.flatten(), atoms.site_SF, block)
        weights_MWH = logits_MWH.softmax(dim=1)
    else:
        weights_MWH, _, _ = raw_weights(attention, q_D, atoms, seen_MW)
    weights_MWH = torch.where((seen_MW >= 0)[..., None], weights_MWH, 0.0)
    kind_MW = atoms.kind_Rn.flatten()[seen_MW.clamp(min=0)]
    return by_kind(weights_MWH, kind_MW, atoms.kind_KF.shape[0]).mean(dim=1)


def by_kind(weights_RnH: Tensor, kind_Rn: Tensor, kinds: int) -> Tensor:
    """Return the sum of weights of each kind (R, H, K)."""
    weights_RHn = weights_RnH.transpose(1, 2)
    total_RHK = weights_RHn.new_zeros(*weights_RHn.shape[:2], kinds)
    return total_RHK.scatter_add(2, kind_Rn[:, None].expand_as(weights_RHn), weights_RHn)


def write_split(model: AtomizerIO, path: str | Path) -> list[Written]:
    """Write ``NAME.encode.onnx`` and ``NAME.decode.onnx`` for a path ``NAME.onnx``, and try both."""
    import onnxruntime  # noqa: F401  before the work, not after it
    import onnxscript  # noqa: F401

    path = Path(path)
    if model.decoder is None:
        raise ConfigError(f"a {model.task_spec.task} model does not predict at positions: it is one graph")
    if path.suffix != ".onnx":
        raise ConfigError(f"{path}: the two graphs are ONNX, so the name must end in .onnx")
    networks = {"encode": EncodingNetwork(model), "decode": DecodingNetwork(model)}
    return write_networks({path.with_suffix(f".{name}.onnx"): network for name, network in networks.items()})
