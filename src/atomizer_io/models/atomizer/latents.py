"""What a network knows of a batch between encoding and decoding.

Shapes: L latents, D width.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from atomizer_io.data.atoms import AtomSet
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.atomizer.tokenizer import Observations, Tokenizer


@dataclass(frozen=True, slots=True, eq=False)
class Latents:
    """A batch after :meth:`AtomizerIO.encode`: encode once, then decode as often as needed.

    ``features`` holds (L, D) per sample; anchors are in ``geometries``, relative to the scene's centre. The atoms are
    kept because the decoder looks at what was observed at each position.
    """

    features: list[Tensor]
    geometries: list[Geometry]
    atoms: list[AtomSet]
    _observations: dict[int, tuple[AtomSet, Observations]] = field(default_factory=dict, repr=False)  # of these atoms

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(h_LD)} × {h_LD.shape[1]}" for h_LD in self.features)
        return f"Latents({len(self)} samples: {sizes})"

    def observations(self, index: int, tokenizer: Tokenizer) -> Observations:
        """Return the tokens of one sample by site: those it was encoded from, unless gradients could not reach them."""
        learns = torch.is_grad_enabled() and tokenizer.learned.requires_grad
        atoms, kept = self._observations.get(index, (None, None))
        if kept is None or atoms is not self.atoms[index] or (learns and not kept.kind_KF.requires_grad):
            (kept,) = tokenizer.observe([self.atoms[index]])
            if not learns:
                self._observations[index] = self.atoms[index], kept
        return kept

    def only(self, index: int) -> Latents:
        """Return the latents of one sample only."""
        kept = {0: self._observations[index]} if index in self._observations else {}
        return Latents([self.features[index]], [self.geometries[index]], [self.atoms[index]], kept)

    def anchors(self, index: int) -> Tensor:
        """Return the anchor positions (L, 2) of one sample in the frame of its atoms."""
        geometry = self.geometries[index]
        return geometry.anchors_L2 + geometry.center_2
