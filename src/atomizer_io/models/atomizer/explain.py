"""Which channels a prediction looked at.

The folded attention weighs single atoms without ever making their keys and values, so the share of attention that
each channel received costs one more pass over the logits.

Shapes: M queries, k neighbours, K kinds (a channel of an acquisition), L latents, H heads, T time steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.errors import QueryError
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.atomizer.decoder import Piece
from atomizer_io.models.atomizer.geometry.neighbors import LocatedQueries
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.atomizer.latents import Latents
from atomizer_io.models.atomizer.observations import Look
from atomizer_io.models.atomizer.temporal import time_steps


@dataclass(frozen=True, slots=True, repr=False, eq=False)
class Explanation:
    """Attention per kind at each position of one sample, averaged over heads.

    ``here`` (M, K) is what the query saw at its own position; rows sum to one, or to zero where nothing was observed.
    ``around`` (M, K) is what reached it through the nearest latents: the decoder's weights times the encoder's,
    summed over the atoms of each kind. ``channels`` and ``days`` name the columns.
    """

    channels: tuple[Channel, ...]
    days: tuple[float | None, ...]
    here: Tensor
    around: Tensor

    def __repr__(self) -> str:
        rows = [
            f"{name:<24}{here.mean():>7.3f}{around.mean():>8.3f}" for name, (here, around) in self.by_channel().items()
        ]
        return "\n".join([f"attention, mean of {len(self.here)} positions", f"{'':<24}{'here':>7}{'around':>8}", *rows])

    def by_channel(self) -> dict[str, tuple[Tensor, Tensor]]:
        """Return attention here and around, (M,) each, by sensor and name of the channel, dates added together."""
        totals: dict[str, tuple[Tensor, Tensor]] = {}
        for column, channel in enumerate(self.channels):
            key = f"{channel.sensor} {channel.name}"
            here, around = self.here[:, column], self.around[:, column]
            if key in totals:
                here, around = totals[key][0] + here, totals[key][1] + around
            totals[key] = (here, around)
        return totals


@torch.no_grad()
def explain(model: AtomizerIO, latents: Latents, positions: Sequence[Tensor | LocatedQueries]) -> list[Explanation]:
    """Return one :class:`Explanation` per sample for the predictions of ``model.decode(latents, positions)``."""
    if model.decoder is None:
        raise QueryError(f"a {model.task_spec.task} model does not predict at positions: there is nothing to explain")
    if len(positions) != len(latents):
        raise QueryError(f"{len(positions)} lists of positions for {len(latents)} samples: pass one per sample")
    explained = []
    for i, where in enumerate(positions):
        atoms, geometry = latents.atoms[i], latents.geometries[i]
        located = where if isinstance(where, LocatedQueries) else model.locate(atoms, geometry, where)
        located.check(geometry, i)
        explained.append(_explain_scene(model, latents, i, located))
    return explained


def _explain_scene(model: AtomizerIO, latents: Latents, index: int, located: LocatedQueries) -> Explanation:
    decoder, atoms, h_LD = model.decoder, latents.atoms[index], latents.features[index]
    assert decoder is not None
    seen = latents.observations(index, model.tokenizer)
    near_L, slot_Mk = located.latents_Mk.unique(return_inverse=True)
    shares_LK = latent_shares(model, atoms, latents.geometries[index], near_L)
    here, around, first = [], [], 0
    look = None if located.sites_MA is None else Look(seen, located.sites_MA, located.owners)
    whole = Piece(located, decoder.project([h_LD])[0], look)
    for (piece,) in decoder.chunks([whole]):
        if decoder.observation is None or piece.look is None:
            here.append(h_LD.new_zeros(len(piece), len(seen.kind_KF)))
        else:
            here.append(decoder.observation.shares(decoder.q_init, piece.look))
        weights_MkH = decoder.latent.weights(decoder.conditioned([piece]), piece.latents, piece.near)
        shares_MkK = shares_LK[slot_Mk[first : first + len(piece)].to(h_LD.device)]
        around.append(torch.einsum("mk,mkc->mc", weights_MkH.mean(dim=-1), shares_MkK))
        first += len(piece)
    return Explanation(
        channels=tuple(channel for a in atoms for channel in a.channels),
        days=tuple(a.day_of_year for a in atoms for _ in a.channels),
        here=torch.cat(here),
        around=torch.cat(around),
    )


def latent_shares(model: AtomizerIO, atoms: AtomSet, geometry: Geometry, latents: Tensor) -> Tensor:
    """Return the share of the attention of some latents that went to each kind (L, K), a mean over heads and steps."""
    tokens = model.tokenizer([atoms], [geometry])
    encoder, anchors_L2 = model.encoder, geometry.anchors_L2[latents]
    query_D = encoder.query()
    shares_TLK = torch.stack(
        [
            encoder.attention.kind_shares(query_D, tokens, cells.take(latents), anchors_L2).mean(dim=1)
            for cells in geometry.cells
        ]
    )
    if model.temporal is None:
        return shares_TLK[0]
    processed_TLD = model.process([atoms], [geometry])[0][:, latents.to(shares_TLK.device)]
    steps_TL = model.temporal.step_shares(processed_TLD, time_steps(atoms)[1])
    return (steps_TL[..., None] * shares_TLK).sum(dim=0)
