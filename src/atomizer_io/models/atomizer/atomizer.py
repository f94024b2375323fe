"""The whole network: atoms in, predictions at any position out (paper, §3).

Shapes: B samples, L latents, M queries, D width, T time steps,
2 = (x, y) in metres.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Self

import torch
from torch import Tensor, nn

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError, QueryError, check_count
from atomizer_io.models.atomizer import stages
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.models.atomizer.decoder import Piece
from atomizer_io.models.atomizer.geometry import partition as geo
from atomizer_io.models.atomizer.geometry.cells import Cells
from atomizer_io.models.atomizer.geometry.neighbors import Footprint, LocatedQueries, SitesOfQueries, locate
from atomizer_io.models.atomizer.geometry.partition import Geometry
from atomizer_io.models.atomizer.heads import Head
from atomizer_io.models.atomizer.initialisation import SENSITIVE, initialise, new_vectors
from atomizer_io.models.atomizer.latents import Latents
from atomizer_io.models.atomizer.observations import Look
from atomizer_io.models.atomizer.prepare import PreparedSample, SamplePreparer
from atomizer_io.models.atomizer.presets import PRESETS
from atomizer_io.models.atomizer.temporal import time_steps
from atomizer_io.models.atomizer.tokenizer import Tokens
from atomizer_io.models.atomizer.tokens import describing, learned_channels, unreadable
from atomizer_io.models.base import Capabilities, Cost, Model, check_batch, check_positions

OFFSET_PIXELS = 10  # s_0 of the paper, 100 m, is so many pixels of Sentinel-2

if TYPE_CHECKING:
    from atomizer_io.models.atomizer.explain import Explanation


class AtomizerIO(Model):
    """The network of the paper. The AtomSets of a batch may differ in sensors, sizes, dates and geometry."""

    family = "atomizer_io"
    capabilities = Capabilities(
        anywhere=True,
        cost=("atoms_per_latent", "budget", "neighbors", "max_points"),
        attention=True,
        new_channels=True,
        points=True,
    )
    presets = PRESETS

    def __init__(self, config: AtomizerConfig, task_spec: TaskSpec | None = None, preset: str | None = None) -> None:
        task_spec = TaskSpec() if task_spec is None else task_spec
        super().__init__(task_spec, preset)
        self.config = config
        self.tokenizer = stages.tokenizer(config, task_spec)
        self.encoder = stages.encoder(config)
        self.processor = stages.processor(config)
        self.temporal = stages.temporal(config) if config.temporal else None
        self.decoder = stages.decoder(config) if task_spec.dense else None
        self.head = Head(config.width, task_spec)

    def initialise(self, inputs: Sequence[PreparedSample], stages: Collection[str] | None = None) -> None:
        """Initialise the layers that read measurements from prepared samples: see :mod:`.initialisation`."""
        initialise(self, inputs, self.stages if stages is None else stages)

    @classmethod
    def build(cls, task_spec: TaskSpec, settings: Mapping[str, Any], preset: str | None = None) -> Self:
        """Return a network with fresh weights."""
        return cls(AtomizerConfig.from_dict(settings), task_spec, preset)

    @classmethod
    def adapted(cls, task_spec: TaskSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with what follows from the task: scales of positions, names, site fields.

        Maps are trained on crops of scenes and predicted in windows, so the number of latents is that of κ alone:
        there would be more of them on the same ground in a small part than in a large one.
        """
        derived: dict[str, Any] = {} if task_spec.extent_m is None else {"rope_scale_m": task_spec.extent_m / 2}
        if task_spec.pixel_m is not None:
            derived["offset_scale_m"] = OFFSET_PIXELS * task_spec.pixel_m
        if task_spec.dense:
            derived["least_latents"] = 1
        return {**derived, **describing(task_spec, settings)}

    def settings(self) -> dict[str, Any]:
        """Return the architecture as plain values."""
        return self.config.to_dict()

    def settings_for(self, task_spec: TaskSpec, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return settings that know all learned channels of this model and of the task, in this order."""
        own, preset = self.config.learned_channels, self.presets.get(self.preset or "")
        known = dict.fromkeys((*own, *changes.get("learned_channels", ())))
        usual: dict[str, Any] = {}
        if self.task_spec.dense and not task_spec.dense and preset is not None:  # one latent is enough for maps only
            usual["least_latents"] = AtomizerConfig.from_dict(preset.settings).least_latents
        names = learned_channels(task_spec.channels, tuple(known), extend=True)
        return super().settings_for(task_spec, {**usual, **changes, "learned_channels": names})

    def weights_for(self, model: Model) -> dict[str, Tensor]:
        """Return the weights with learned vectors for the channels of ``model``; new ones are drawn as usual."""
        names, known = model.settings()["learned_channels"], self.config.learned_channels
        learned = new_vectors(torch.empty(len(names), self.tokenizer.learned.shape[1]).to(self.tokenizer.learned))
        for row, name in enumerate(names):
            if name in known:
                learned[row] = self.tokenizer.learned[known.index(name)].detach()
        return {**self.state_dict(), "tokenizer.learned": learned}

    def layers(self) -> tuple[str, ...]:
        """Return the stages, and the blocks of the processor one by one."""
        blocks = [f"processor.blocks.{number}" for number in range(len(self.processor.blocks))]
        stages = [[stage, *blocks] if stage == "processor" else [stage] for stage in self.stages]
        return tuple(name for names in stages for name in names)

    def sensitive(self) -> tuple[str, ...]:
        """Return the layers that read tokens: what they pool is whitened, so small changes of theirs are amplified."""
        return SENSITIVE

    def keep_cost(self, cost: Cost) -> None:
        """Make these counts the model's own; None leaves a count as it is."""
        self.config = self.config.replace(**cost.given())

    def training_cost(self) -> Cost:
        """Return the budget and points of the settings: in training, cells are cut to them."""
        return Cost(budget=self.config.budget, max_points=self.config.max_points)

    def unreadable(self, channels: Iterable[Channel]) -> list[Channel]:
        """Return the channels that have neither been learned nor a wavelength inside the spectral basis."""
        return unreadable(channels, self.task_spec, self.config.learned_channels)

    def usual_extent_m(self) -> float:
        """Return the usual width of a scene: of the task specification, else the one that positions are scaled for."""
        return 2 * self.config.rope_scale_m if self.task_spec.extent_m is None else self.task_spec.extent_m

    def preparer(self) -> SamplePreparer:
        """Return what builds cells and neighbours of a sample."""
        return SamplePreparer(self.config, self.task_spec.dense)

    def predict(self, inputs: Sequence[PreparedSample]) -> list[Tensor]:
        """Return the predictions for samples whose geometry is built; cells are used as they are."""
        samples = self._checked([sample.atoms for sample in inputs])
        latents = self._encoded(samples, [sample.geometry for sample in inputs])
        if not self.task_spec.dense:
            return list(self.classify(latents))
        return self.decode(latents, [sample.located for sample in inputs if sample.located is not None])

    def in_context(self, inputs: PreparedSample) -> Tensor | None:
        """Return which queries (M,) look at a point whose atoms are in the cells; None where all points are."""
        return inputs.in_context()

    def flops(self, inputs: Sequence[PreparedSample]) -> float:
        """Return the FLOPs of all stages, as they are computed here (folded)."""
        from atomizer_io.models.atomizer.flops import InputSize, atoms_seen
        from atomizer_io.models.atomizer.flops import stages as counted

        total = 0.0
        for sample in inputs:
            located = sample.located
            size = InputSize.of(self, sample.atoms, 0 if located is None else len(located), sample.geometry)
            if located is not None:
                size = replace(size, seen=atoms_seen(located.sites_MA, located.owners, sample.atoms))
            total += sum(stage.flops for stage in counted(self, size))
        return total

    def forward(
        self,
        batch: Sequence[AtomSet],
        positions: Sequence[Tensor | LocatedQueries] | None = None,
        *,
        sites: Sequence[SitesOfQueries | None] | None = None,
        neighbors: int | None = None,
        footprint_m: Footprint | None = None,
        **encoding: Any,
    ) -> Tensor | list[Tensor]:
        """Predict for scenes (B, outputs), or at ``positions`` (M, outputs); ``encoding`` is for :meth:`encode`."""
        if self.task_spec.dense and positions is None:
            raise QueryError(
                f"a {self.task_spec.task} model predicts at positions: pass a list of (M, 2) metres per sample"
            )
        if not self.task_spec.dense and positions is not None:
            raise QueryError(f"a {self.task_spec.task} model predicts for whole scenes: do not pass positions")
        latents = self.encode(batch, **encoding)
        if positions is None:
            return self.classify(latents)
        return self.decode(latents, positions, sites=sites, neighbors=neighbors, footprint_m=footprint_m)

    def geometry(
        self,
        atoms: AtomSet,
        *,
        atoms_per_latent: int | None = None,
        max_points: int | None = None,
        anchors: Tensor | None = None,
    ) -> Geometry:
        """Return the anchors and whole cells of one scene under this model's settings; :meth:`encode` takes them."""
        return geo.geometry_of(
            self.config, atoms, atoms_per_latent=atoms_per_latent, max_points=max_points, anchors=anchors
        )

    def encode(
        self,
        batch: Sequence[AtomSet],
        *,
        atoms_per_latent: int | None = None,
        budget: int | None = None,
        max_points: int | None = None,
        anchors: Sequence[Tensor | None] | None = None,
        geometry: Sequence[Geometry] | None = None,
        generator: torch.Generator | None = None,
    ) -> Latents:
        """Return the spatial latents of each sample.

        ``atoms_per_latent`` (κ) sets how many latents there are, ``anchors`` sets their positions. In training, cells
        are cut to the ``budget`` (m) of the settings with ``generator``; in evaluation whole cells are used unless
        ``budget`` is given, so that two evaluations agree to the bit. ``max_points`` overrides how many points of
        a point cloud enter the cells at most; they are sampled with ``generator``, without one the same each time. The
        other points are seen where a query lies on them.
        """
        samples = self._checked(batch)
        for name, count in (("atoms_per_latent", atoms_per_latent), ("budget", budget), ("max_points", max_points)):
            if count is not None:
                check_count(name, count)
        if geometry is not None and (atoms_per_latent is not None or anchors is not None):
            raise ConfigError("a geometry has its anchors already: do not pass atoms_per_latent or anchors beside it")
        if geometry is None:
            by_hand = [None] * len(samples) if anchors is None else list(anchors)
            if len(by_hand) != len(samples):
                raise ConfigError(
                    f"{len(by_hand)} sets of anchors for {len(samples)} samples: pass one per sample, or None"
                )
            geometry = [
                self.geometry(atoms, atoms_per_latent=atoms_per_latent, max_points=max_points, anchors=a)
                for atoms, a in zip(samples, by_hand, strict=True)
            ]
        if len(geometry) != len(samples):
            raise ConfigError(f"{len(geometry)} geometries for {len(samples)} samples: pass one per sample")
        for i, (part, atoms) in enumerate(zip(geometry, samples, strict=True)):
            part.check(atoms, i)
        if budget is None and self.training:
            budget = self.config.budget
        most = self.config.max_points if max_points is None else max_points
        return self._encoded(samples, [g.sample(budget, generator, most) for g in geometry])

    def _encoded(self, samples: list[AtomSet], geometries: list[Geometry]) -> Latents:
        tokens = self.tokenizer(samples, geometries)
        features = self._merge_steps(samples, geometries, self._step_latents(tokens, geometries))
        looks = self.decoder is not None and self.decoder.observation is not None
        seen = dict(enumerate(zip(samples, tokens.seen, strict=True))) if looks else {}
        return Latents(features, geometries, samples, seen)

    def locate(
        self,
        atoms: AtomSet,
        geometry: Geometry,
        positions: Tensor,
        *,
        sites: SitesOfQueries | None = None,
        neighbors: int | None = None,
        footprint_m: Footprint | None = None,
    ) -> LocatedQueries:
        """Return ``positions`` with their nearest latents and the sites they see.

        This needs no weights, so it can be done ahead; :meth:`decode` accepts the result instead of positions.
        """
        return locate(
            self.config, atoms, geometry, positions, sites=sites, neighbors=neighbors, footprint_m=footprint_m
        )

    def decode(
        self,
        latents: Latents,
        positions: Sequence[Tensor | LocatedQueries],
        *,
        sites: Sequence[SitesOfQueries | None] | None = None,
        neighbors: int | None = None,
        footprint_m: Footprint | None = None,
    ) -> list[Tensor]:
        """Predict (M, outputs) at ``positions`` (M, 2) of each sample, in metres in the frame of its atoms.

        What was observed at a position is looked up: the pixel around it, or the point within 5 cm. With a
        ``footprint_m`` (metres along x and y, such as the pixel of a map) a position sees instead all finer pixels and
        all points whose centres lie in that rectangle around it, at most 128 of an acquisition. Where several
        returns share a position, ``sites`` names them: per sample a mapping from the number of an acquisition to site
        indices (M,), −1 for none. ``neighbors`` (k) overrides the setting.
        """
        return self._decoded(self.head, latents, positions, sites, neighbors, footprint_m)

    def embed(
        self,
        latents: Latents,
        positions: Sequence[Tensor | LocatedQueries],
        *,
        sites: Sequence[SitesOfQueries | None] | None = None,
        neighbors: int | None = None,
        footprint_m: Footprint | None = None,
    ) -> list[Tensor]:
        """Return the features (M, D) at ``positions`` that the last linear layer reads; arguments as for decode."""
        return self._decoded(self.head.norm, latents, positions, sites, neighbors, footprint_m)

    def _decoded(
        self,
        last: nn.Module,
        latents: Latents,
        positions: Sequence[Tensor | LocatedQueries],
        sites: Sequence[SitesOfQueries | None] | None,
        neighbors: int | None,
        footprint_m: Footprint | None,
    ) -> list[Tensor]:
        """Return what ``last`` makes of the decoded features at the positions of each sample."""
        if self.decoder is None:
            raise QueryError(f"a {self.task_spec.task} model has no decoder: create it with task='segmentation'")
        check_positions(positions, len(latents))
        named = [None] * len(latents) if sites is None else list(sites)
        if len(named) != len(latents):
            raise QueryError(f"{len(named)} lists of sites for {len(latents)} samples: pass one per sample, or None")
        pieces = []
        for i, projected in enumerate(self.decoder.project(latents.features)):
            where, atoms = positions[i], latents.atoms[i]
            if not isinstance(where, LocatedQueries):
                how: dict[str, Any] = {"sites": named[i], "neighbors": neighbors, "footprint_m": footprint_m}
                where = self.locate(atoms, latents.geometries[i], where, **how)
            elif named[i] is not None or neighbors is not None or footprint_m is not None:
                raise QueryError(
                    "positions that are located already have their sites, neighbors and footprints: pass them to locate"
                )
            where.check(latents.geometries[i], i)
            device, look = projected.key_LHE.device, None
            if where.sites_MA is not None:
                look = Look(latents.observations(i, self.tokenizer), where.sites_MA.to(device), where.owners)
            pieces.append(Piece(where.to(device, self.tokenizer.exact), projected, look))
        return list(self.decoder(last, pieces).split([len(piece) for piece in pieces]))

    def classify(self, latents: Latents) -> Tensor:
        """Predict (B, outputs) for whole scenes: the head reads the mean of the spatial latents."""
        if self.task_spec.dense:
            raise QueryError(f"a {self.task_spec.task} model predicts at positions: use decode")
        pooled_BD = torch.stack([features_LD.mean(dim=0) for features_LD in latents.features])
        logits_BC: Tensor = self.head(pooled_BD)
        return logits_BC

    def explain(self, latents: Latents, positions: Sequence[Tensor | LocatedQueries]) -> list[Explanation]:
        """Return how much attention each channel received at each position, one explanation per sample."""
        from atomizer_io.models.atomizer.explain import explain

        return explain(self, latents, positions)

    def _checked(self, batch: Sequence[AtomSet]) -> list[AtomSet]:
        check_batch(batch)
        for i, atoms in enumerate(batch):
            geo.check_scene(atoms, i)
        device = self.tokenizer.learned.device
        return [atoms.to(device) for atoms in batch]

    def process(self, samples: list[AtomSet], geometries: list[Geometry]) -> list[Tensor]:
        """Return the latents (T, L, D) of each sample, time step by time step, as they are merged."""
        return self._step_latents(self.tokenizer(samples, geometries), geometries)

    def _step_latents(self, tokens: Tokens, geometries: list[Geometry]) -> list[Tensor]:
        owners = [i for i, geometry in enumerate(geometries) for _ in geometry.cells]
        cells = Cells.concatenate(
            [cells for geometry in geometries for cells in geometry.cells],
            [tokens.first_atom[i] for i in owners],
            [tokens.first_site[i] for i in owners],
            [tokens.first_kind[i] for i in owners],
        )
        encoded_ND = self.encoder(tokens, cells, torch.cat([geometries[i].anchors_L2 for i in owners]))
        shapes = [(len(geometry.cells), len(geometry.anchors_L2)) for geometry in geometries]
        parts = encoded_ND.split([steps * latents for steps, latents in shapes])
        encoded = [h_ND.unflatten(0, shape) for h_ND, shape in zip(parts, shapes, strict=True)]
        return self._run_blocks(encoded, geometries, slice(self.config.step_depth))

    def _run_blocks(self, parts: list[Tensor], geometries: list[Geometry], blocks: slice) -> list[Tensor]:
        """Return latents (T, L, D) of each sample after some blocks; samples with as many latents go together."""
        processed: dict[int, Tensor] = {}
        for group in alike([h_TLD.shape[1] for h_TLD in parts]):
            steps = [len(parts[i]) for i in group]
            anchors_BL2 = torch.cat([geometries[i].anchors_L2.expand(len(parts[i]), -1, -1) for i in group])
            processed_BLD = self.processor(torch.cat([parts[i] for i in group]), anchors_BL2, blocks)
            processed.update(zip(group, processed_BLD.split(steps), strict=True))
        return [processed[i] for i in range(len(parts))]

    def _merge_steps(self, samples: list[AtomSet], geometries: list[Geometry], steps: list[Tensor]) -> list[Tensor]:
        """Return the latents (L, D) of each sample: aggregated, and after the blocks that come then."""
        if self.temporal is None:
            return [h_TLD[0] for h_TLD in steps]
        days = [
            time_steps(atoms)[1][:, None].expand(h_TLD.shape[:2]) for atoms, h_TLD in zip(samples, steps, strict=True)
        ]
        merged: dict[int, Tensor] = {}
        for group in alike([len(h_TLD) for h_TLD in steps]):  # samples with as many steps at once
            h_TLD, days_TL = (torch.cat([part[i] for i in group], dim=1) for part in (steps, days))
            parts = self.temporal(h_TLD, days_TL).split([steps[i].shape[1] for i in group])
            merged.update(zip(group, parts, strict=True))
        aggregated = [merged[i] for i in range(len(samples))]
        if self.config.step_depth == self.config.depth:
            return aggregated
        rest = slice(self.config.step_depth, None)
        return [h_1LD[0] for h_1LD in self._run_blocks([h_LD[None] for h_LD in aggregated], geometries, rest)]


def alike(counts: Sequence[int]) -> list[list[int]]:
    """Return the indices of equal counts together."""
    groups: dict[int, list[int]] = {}
    for index, count in enumerate(counts):
        groups.setdefault(count, []).append(index)
    return list(groups.values())
