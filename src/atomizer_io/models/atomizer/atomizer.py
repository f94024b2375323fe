"""The whole network: atoms in, answers at any position out (paper, §3).

Shapes: B samples, L latents, M queries, D width, T time steps.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from atomizer_io.atoms import AtomSet
from atomizer_io.errors import ConfigError, QueryError
from atomizer_io.models.atomizer import geometry as geo
from atomizer_io.models.atomizer import placing
from atomizer_io.models.atomizer.config import AtomizerConfig, check_count
from atomizer_io.models.atomizer.decoder import Decoder, Observations, Piece
from atomizer_io.models.atomizer.encoder import Encoder
from atomizer_io.models.atomizer.geometry import Cells, Geometry
from atomizer_io.models.atomizer.heads import Head
from atomizer_io.models.atomizer.placing import Located, SitesOfQueries
from atomizer_io.models.atomizer.processor import Processor
from atomizer_io.models.atomizer.temporal import TemporalAggregator, time_steps
from atomizer_io.models.atomizer.tokens import Tokenizer

if TYPE_CHECKING:
    from atomizer_io.models.atomizer.explain import Explanation


@dataclass(frozen=True, slots=True, eq=False)
class Latents:
    """What a batch became: encode once, then ask as often as needed.

    ``features`` holds (L, D) per sample; anchors are in ``geometries``, relative to the scene's centre. The atoms are
    kept because the decoder looks at what was observed at each position.
    """

    features: list[Tensor]
    geometries: list[Geometry]
    atoms: list[AtomSet]
    _observations: dict[int, Observations] = field(default_factory=dict, repr=False)

    def __len__(self) -> int:
        return len(self.features)

    def __repr__(self) -> str:
        sizes = ", ".join(f"{len(h_LD)} × {h_LD.shape[1]}" for h_LD in self.features)
        return f"Latents({len(self)} samples: {sizes})"

    def observations(self, index: int, tokenizer: Tokenizer) -> Observations:
        """The tokens of one sample by site; kept for the next question where no gradient has to flow through them."""
        if torch.is_grad_enabled():
            return Observations.of(self.atoms[index], tokenizer)
        if index not in self._observations:
            self._observations[index] = Observations.of(self.atoms[index], tokenizer)
        return self._observations[index]

    def only(self, index: int) -> Latents:
        """Those of one sample."""
        kept = {0: self._observations[index]} if index in self._observations else {}
        return Latents([self.features[index]], [self.geometries[index]], [self.atoms[index]], kept)

    def anchors(self, index: int) -> Tensor:
        """Anchor positions (L, 2) of one sample in the frame of its atoms, in metres."""
        geometry = self.geometries[index]
        return geometry.anchors_L2 + geometry.center_2


class AtomizerIO(nn.Module):
    """Atomizer-IO. A batch is a list of AtomSets; samples may differ in sensors, sizes, dates and geometry."""

    def __init__(self, config: AtomizerConfig, preset: str | None = None) -> None:
        super().__init__()
        self.config = config
        self.preset = preset
        self.tokenizer = Tokenizer(config)
        self.encoder = Encoder(config)
        self.processor = Processor(config)
        self.temporal = TemporalAggregator(config) if config.temporal else None
        self.decoder = Decoder(config) if config.dense else None
        self.head = Head(config)

    def forward(
        self,
        batch: Sequence[AtomSet],
        positions: Sequence[Tensor | Located] | None = None,
        *,
        sites: Sequence[SitesOfQueries | None] | None = None,
        neighbors: int | None = None,
        **encoding: Any,
    ) -> Tensor | list[Tensor]:
        """Answers (B, outputs) for scenes, or a list of (M, outputs) at ``positions``; keywords: :meth:`encode`."""
        if self.config.dense and positions is None:
            raise QueryError(
                f"a {self.config.task} model answers at positions: pass a list of (M, 2) metres per sample"
            )
        if not self.config.dense and positions is not None:
            raise QueryError(f"a {self.config.task} model answers for whole scenes: do not pass positions")
        latents = self.encode(batch, **encoding)
        if positions is None:
            return self.classify(latents)
        return self.decode(latents, positions, sites=sites, neighbors=neighbors)

    def geometry(
        self, atoms: AtomSet, *, atoms_per_latent: int | None = None, anchors: Tensor | None = None
    ) -> Geometry:
        """Anchors and cells of one scene under this model's settings; can be built ahead for :meth:`encode`."""
        return placing.geometry_of(self.config, atoms, atoms_per_latent=atoms_per_latent, anchors=anchors)

    def encode(
        self,
        batch: Sequence[AtomSet],
        *,
        atoms_per_latent: int | None = None,
        budget: int | None = None,
        anchors: Sequence[Tensor | None] | None = None,
        geometry: Sequence[Geometry] | None = None,
        generator: torch.Generator | None = None,
    ) -> Latents:
        """Spatial latents of each sample.

        ``atoms_per_latent`` (κ) sets how many latents there are, ``anchors`` places them by hand. In training, cells
        are cut to the ``budget`` (m) of the settings with ``generator``; in evaluation whole cells are used unless
        ``budget`` is given, so that two evaluations agree to the bit.
        """
        samples = self._checked(batch)
        for name, count in (("atoms_per_latent", atoms_per_latent), ("budget", budget)):
            if count is not None:
                check_count(name, count)
        if geometry is not None and (atoms_per_latent is not None or anchors is not None):
            raise ConfigError("a geometry has its anchors already: do not pass atoms_per_latent or anchors beside it")
        if geometry is None:
            given = [None] * len(samples) if anchors is None else list(anchors)
            if len(given) != len(samples):
                raise ConfigError(f"{len(given)} sets of anchors for {len(samples)} samples")
            geometry = [
                self.geometry(atoms, atoms_per_latent=atoms_per_latent, anchors=a)
                for atoms, a in zip(samples, given, strict=True)
            ]
        if len(geometry) != len(samples):
            raise ConfigError(f"{len(geometry)} geometries for {len(samples)} samples")
        for i, (part, atoms) in enumerate(zip(geometry, samples, strict=True)):
            part.check(atoms, i)
        if budget is None and self.training:
            budget = self.config.budget
        geometries = [placing.sampled(g, budget, generator) for g in geometry]
        return Latents(self._merge_steps(samples, self.process(samples, geometries)), geometries, samples)

    def locate(
        self,
        atoms: AtomSet,
        geometry: Geometry,
        positions: Tensor,
        *,
        sites: SitesOfQueries | None = None,
        neighbors: int | None = None,
    ) -> Located:
        """What :meth:`decode` needs to know about ``positions``: their nearest latents and the sites they see.

        Depends on positions only, so it can be built ahead and passed to :meth:`decode` in their place.
        """
        return placing.locate(self.config, atoms, geometry, positions, sites=sites, neighbors=neighbors)

    def decode(
        self,
        latents: Latents,
        positions: Sequence[Tensor | Located],
        *,
        sites: Sequence[SitesOfQueries | None] | None = None,
        neighbors: int | None = None,
    ) -> list[Tensor]:
        """Answers (M, outputs) at ``positions`` (M, 2) of each sample, in metres in the frame of its atoms.

        What was observed at a position is looked up: the pixel around it, or the point within 5 cm. Where several
        returns share a position, ``sites`` names them: per sample a mapping from the number of an acquisition to site
        indices (M,), −1 for none. ``neighbors`` (k) overrides the setting.
        """
        if self.decoder is None:
            raise QueryError(f"a {self.config.task} model has no decoder: create it with task='segmentation'")
        if isinstance(positions, Tensor | np.ndarray | Located):
            raise QueryError("positions come as a list, one entry per sample: pass [positions]")
        if len(positions) != len(latents):
            raise QueryError(f"{len(positions)} lists of positions for {len(latents)} samples")
        named = [None] * len(latents) if sites is None else list(sites)
        if len(named) != len(latents):
            raise QueryError(f"{len(named)} lists of sites for {len(latents)} samples")
        pieces = []
        for i, projected in enumerate(self.decoder.project(latents.features)):
            where, atoms = positions[i], latents.atoms[i]
            if not isinstance(where, Located):
                where = self.locate(atoms, latents.geometries[i], where, sites=named[i], neighbors=neighbors)
            elif named[i] is not None or neighbors is not None:
                raise QueryError(
                    "positions that are located already have their sites and neighbors: pass them to locate"
                )
            where.check(latents.geometries[i], i)
            seen = None if where.sites_MA is None else latents.observations(i, self.tokenizer)
            pieces.append(Piece(where.near, projected, seen, where.sites_MA))
        return list(self.decoder(self.head, pieces).split([len(piece) for piece in pieces]))

    def classify(self, latents: Latents) -> Tensor:
        """Answers (B, outputs) for whole scenes: mean over the spatial latents, then the head."""
        if self.config.dense:
            raise QueryError(f"a {self.config.task} model answers at positions: use decode")
        pooled_BD = torch.stack([features_LD.mean(dim=0) for features_LD in latents.features])
        answer: Tensor = self.head(pooled_BD)
        return answer

    def explain(self, latents: Latents, positions: Sequence[Tensor | Located]) -> list[Explanation]:
        """How much attention each channel received at each position; see :mod:`atomizer_io.models.atomizer.explain`."""
        from atomizer_io.models.atomizer.explain import explain

        return explain(self, latents, positions)

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json`` and ``model.safetensors`` into ``folder``."""
        from atomizer_io.models.atomizer.weights import save

        save(self, Path(folder))

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None) -> AtomizerIO:
        """The model saved in a local folder, or under a name on the Hugging Face hub."""
        from atomizer_io.models.atomizer.weights import load

        return load(source, revision=revision)

    @property
    def num_parameters(self) -> int:
        """Number of learned numbers; independent of how many latents a scene gets."""
        return sum(parameter.numel() for parameter in self.parameters())

    def _checked(self, batch: Sequence[AtomSet]) -> list[AtomSet]:
        if not isinstance(batch, Sequence):
            raise ConfigError(f"a batch is a list of AtomSets, got a {type(batch).__name__}: pass [atoms]")
        if not batch:
            raise ConfigError("the batch is empty: pass at least one AtomSet")
        for i, atoms in enumerate(batch):
            geo.check_scene(atoms, i)
        device = self.tokenizer.learned.device
        return [atoms.to(device) for atoms in batch]

    def process(self, samples: list[AtomSet], geometries: list[Geometry]) -> list[Tensor]:
        """Encode and process every time step of every sample: (T, L, D) each."""
        tokens = self.tokenizer(samples, geometries)
        steps = [(i, cells) for i, geometry in enumerate(geometries) for cells in geometry.cells]
        owners = [i for i, _ in steps]
        cells = Cells.concatenate(
            [cells for _, cells in steps],
            [tokens.first_atom[i] for i in owners],
            [tokens.first_site[i] for i in owners],
            [tokens.first_kind[i] for i in owners],
        )
        encoded = self.encoder(tokens, cells, torch.cat([geometries[i].anchors_L2 for i in owners]))
        h = list(encoded.split([geometries[i].anchors_L2.shape[0] for i in owners]))
        same_length: dict[int, list[int]] = {}
        for step, h_LD in enumerate(h):
            same_length.setdefault(len(h_LD), []).append(step)
        for group in same_length.values():
            anchors_BL2 = torch.stack([geometries[owners[step]].anchors_L2 for step in group])
            processed = self.processor(torch.stack([h[step] for step in group]), anchors_BL2)
            for step, h_LD in zip(group, processed, strict=True):
                h[step] = h_LD
        grouped = iter(h)
        return [torch.stack([next(grouped) for _ in geometry.cells]) for geometry in geometries]

    def _merge_steps(self, samples: list[AtomSet], processed: list[Tensor]) -> list[Tensor]:
        if self.temporal is None:
            return [h_TLD[0] for h_TLD in processed]
        return [self.temporal(h_TLD, time_steps(atoms)[1]) for atoms, h_TLD in zip(samples, processed, strict=True)]
