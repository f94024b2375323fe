"""All that training, evaluation, calibration, prediction and benchmarks may know of a model.

A model solves what a :class:`~atomizer_io.data.task_spec.TaskSpec` describes. Work goes in two steps, because a
loader's workers have time but no weights:

    prepare = model.preparer()                     # can be pickled; knows settings, not weights
    inputs = prepare(atoms, queries)               # in a worker: geometry, or a rasterised image, ...
    predictions = model.predict([inputs, ...])          # one tensor per sample

A prediction is (M, outputs) for the M queries of a dense task and (outputs,) for a scene: logits of classes, or values
in the physical unit of the target. What a model can do besides is stated in its :class:`Capabilities`.

To add a model, subclass :class:`Model` in one file and register it (see ``models/registry.py``).
"""

from __future__ import annotations

import abc
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, Self

import torch
from torch import Tensor, nn

from atomizer_io.data.atoms import AtomSet
from atomizer_io.data.channels import Channel
from atomizer_io.data.sample import Queries, queries_at
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError, QueryError, check_count


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a model can do beyond predicting at the queries of a sample; everything is off by default.

    ``anywhere``: it encodes a scene once and then predicts at any position, so adaptive decoding applies.
    ``cost``: the fields of :class:`Cost` that can be chosen after training.
    ``attention``: it can report how much attention each channel received.
    ``new_channels``: it accepts channels that training never met, going by their wavelength.
    ``points``: it reads sites that lie on no lattice, such as LiDAR returns.
    """

    anywhere: bool = False
    cost: tuple[str, ...] = ()
    attention: bool = False
    new_channels: bool = False
    points: bool = False


@dataclass(frozen=True, slots=True)
class Cost:
    """How much a model may compute; which of these fields apply is stated in its capability ``cost``.

    ``atoms_per_latent`` (κ) sets how many latents a scene gets and ``neighbors`` (k) how many of them a position reads;
    None leaves the model's own number. ``budget`` (m) is how many atoms of a cell are used at most, or of the scene
    or window where a model has no cells; None uses all. ``max_points`` is how many points of a point cloud become
    context at most, the others being looked at only where a query names them; None leaves the model's own number.
    """

    atoms_per_latent: int | None = None
    budget: int | None = None
    neighbors: int | None = None
    max_points: int | None = None

    def __post_init__(self) -> None:
        for name in self.given():
            check_count(name, getattr(self, name))

    def given(self) -> dict[str, Any]:
        """Return the fields that are not left to the model."""
        return {name: count for name, count in asdict(self).items() if count is not None}

    def __bool__(self) -> bool:
        return self != Cost()


@dataclass(frozen=True, slots=True)
class Preset:
    """A named size of a model: ``settings`` of its architecture, and what it assumes of the task specification."""

    settings: Mapping[str, Any] = field(default_factory=dict)
    task_spec: Mapping[str, Any] = field(default_factory=dict)


class Preparer(Protocol):
    """Prepares a sample for ``Model.predict``; runs in loader workers, so it can be pickled."""

    def __call__(
        self,
        atoms: AtomSet,
        queries: Queries | None,
        cost: Cost = ...,
        generator: torch.Generator | None = None,
    ) -> Any:
        """Prepare one sample; ``generator`` makes the random choices of ``cost``."""
        ...


class Model(nn.Module, abc.ABC):
    """A model that can be trained, resumed, evaluated, mapped and measured by every command."""

    family: ClassVar[str]  # its name in config.json
    capabilities: ClassVar[Capabilities] = Capabilities()
    presets: ClassVar[Mapping[str, Preset]]
    # Side of the smallest crops that training may cut large samples to: convolutions and patches need room.
    least_side_px: ClassVar[int] = 1
    # Whether predictions at all pixels cost as much as one: then training queries all of them.
    whole_maps: ClassVar[bool] = False

    def __init__(self, task_spec: TaskSpec, preset: str | None = None) -> None:
        super().__init__()
        self.task_spec, self.preset = task_spec, preset

    @classmethod
    @abc.abstractmethod
    def build(cls, task_spec: TaskSpec, settings: Mapping[str, Any], preset: str | None = None) -> Self:
        """Return a model with fresh weights and exactly these settings; an unknown setting is a ConfigError.

        It is also called on torch's meta device, to compare shapes with a file before memory is taken for them.
        """

    @classmethod
    def adapted(cls, task_spec: TaskSpec, settings: Mapping[str, Any]) -> dict[str, Any]:
        """Return ``settings`` with what follows from the task specification, for a model that is made to be trained."""
        return dict(settings)

    @abc.abstractmethod
    def settings(self) -> dict[str, Any]:
        """Return the settings as plain values for config.json, from which ``build`` makes the same architecture."""

    def settings_for(self, task_spec: TaskSpec, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Return the settings of a model for another task that takes over the weights of this one."""
        return {**self.settings(), **self.adapted(task_spec, changes)}

    def weights_for(self, model: Model) -> dict[str, Tensor]:
        """Return the weights of this model as ``model`` of :meth:`settings_for` names and orders them."""
        return self.state_dict()

    @property
    def stages(self) -> tuple[str, ...]:
        """The names of the stages, which are those with weights among its modules, as data pass them."""
        return tuple(name for name, module in self.named_children() if any(True for _ in module.parameters()))

    def layers(self) -> tuple[str, ...]:
        """Return the beginnings of names of parameters, layer by layer, for learning rates that differ by layer."""
        return self.stages

    def sensitive(self) -> tuple[str, ...]:
        """Return the beginnings of names of the parameters that :meth:`initialise` makes sensitive to small changes.

        Training moves them by ``training.sensitive_rate`` of the learning rate.
        """
        return ()

    @abc.abstractmethod
    def preparer(self) -> Preparer:
        """Return what prepares samples for :meth:`predict`, without weights."""

    @abc.abstractmethod
    def predict(self, inputs: Sequence[Any]) -> list[Tensor]:
        """Return the predictions for prepared samples: (M, outputs) each, or (outputs,) for scene tasks."""

    def initialise(self, inputs: Sequence[Any], stages: Collection[str] | None = None) -> None:
        """Initialise fresh weights from prepared training samples (without their targets), before the first step.

        ``stages`` names those that are fresh, if not all are.
        """

    def in_context(self, inputs: Any) -> Tensor | None:
        """Return which queries (M,) of a prepared sample look at a point that is part of the context.

        None where no point is left out of the context, as by models that read all.
        """
        return None

    @abc.abstractmethod
    def flops(self, inputs: Sequence[Any]) -> float:
        """Return the FLOPs that :meth:`predict` takes for these inputs; a multiply-add counts as two."""

    def forward(
        self,
        batch: Sequence[AtomSet],
        positions: Sequence[Tensor] | None = None,
        *,
        sites: Sequence[Mapping[int, Tensor] | None] | None = None,
        **cost: int | None,
    ) -> Tensor | list[Tensor]:
        """Predict for scenes (B, outputs), or at ``positions`` (M, 2) in metres, one list entry per sample.

        ``sites`` names, for each sample, the points that positions stand for: by acquisition, the site of each.
        """
        check_batch(batch)
        if self.task_spec.dense != (positions is not None):
            wants = "at positions: pass a list of (M, 2) per sample" if self.task_spec.dense else "for whole scenes"
            raise QueryError(f"a {self.task_spec.task} model predicts {wants}")
        prepare, how = self.preparer(), Cost(**cost)
        self.check_cost(how)
        if positions is not None:
            check_positions(positions, len(batch))
        named = [None] * len(batch) if sites is None else list(sites)
        if len(named) != len(batch):
            raise QueryError(f"sites are given for {len(named)} samples, but there are {len(batch)}")
        queries: list[Queries | None] = [None] * len(batch)
        if positions is not None:
            queries = [queries_at(where, own) for where, own in zip(positions, named, strict=True)]
        inputs = [prepare(atoms, where, how) for atoms, where in zip(batch, queries, strict=True)]
        predictions = self.predict(inputs)
        return predictions if self.task_spec.dense else torch.stack(predictions)

    def check_cost(self, cost: Cost) -> None:
        """Refuse a choice of cost that this model does not offer, and say which it does."""
        own, offered = self.preset or self.family, self.capabilities.cost
        if cost and not offered:
            raise ConfigError(f"{own} has a fixed cost: it has no atoms per latent, budget or neighbors")
        refused = [name for name in cost.given() if name not in offered]
        if refused:
            raise ConfigError(
                f"{own} has no {' or '.join(refused)}: of the cost, {' and '.join(offered)} can be chosen"
            )

    def keep_cost(self, cost: Cost) -> None:
        """Make ``cost`` the model's own, from now on and when it is saved; models with the capability override this."""
        self.check_cost(cost)
        if cost:
            raise TypeError(f"{type(self).__name__} states the capability cost, but does not say how to keep one")

    def training_cost(self) -> Cost:
        """Return the cost of a training step where the settings of a run name none."""
        return Cost()

    def unreadable(self, channels: Iterable[Channel]) -> list[Channel]:
        """Return those of ``channels`` that the model cannot read: by default all that training did not have."""
        known = self.task_spec.statistics()
        return [channel for channel in channels if (channel.sensor, channel.name) not in known]

    def usual_extent_m(self) -> float | None:
        """Return the usual width of the scenes that the model was made for, in metres; None where it is not known."""
        return self.task_spec.extent_m

    @property
    def crop_m(self) -> float | None:
        """The side of the crops that large maps are cut to in training; None leaves it to the data."""
        return None

    @property
    def num_parameters(self) -> int:
        """The number of learned numbers."""
        return sum(parameter.numel() for parameter in self.parameters())

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next(self.parameters()).device

    def save_pretrained(self, folder: str | Path) -> None:
        """Write ``config.json``, ``model.safetensors`` and a model card (``README.md``) into ``folder``."""
        from atomizer_io.models.storage import save

        save(self, Path(folder))

    def push_to_hub(
        self, repo_id: str, *, private: bool | None = None, token: str | None = None, revision: str | None = None
    ) -> str:
        """Save the model under ``owner/name`` on the Hugging Face hub; return the address of the commit.

        The repository is made where there is none. Without a ``token`` that of ``hf auth login`` counts.
        """
        from atomizer_io.models.storage import push

        return push(self, repo_id, private=private, token=token, revision=revision)

    @classmethod
    def from_pretrained(cls, source: str | Path, *, revision: str | None = None) -> Self:
        """Return the model saved in a local folder, or under a name on the Hugging Face hub."""
        from atomizer_io.models.storage import load

        model = load(source, revision=revision)
        if not isinstance(model, cls):
            raise ConfigError(f"{source} holds a {model.family} model, not a {cls.__name__}: use aio.load_model")
        return model


def check_batch(batch: Sequence[AtomSet]) -> None:
    """Refuse what is not a list of at least one AtomSet."""
    if not isinstance(batch, Sequence):
        raise ConfigError(f"a batch is a list of AtomSets, got a {type(batch).__name__}: pass [atoms]")
    if not batch:
        raise ConfigError("the batch is empty: pass at least one AtomSet")


def check_positions(positions: object, samples: int) -> None:
    """Refuse positions that are not a list with one entry per sample."""
    if not isinstance(positions, Sequence):  # such as one tensor
        raise QueryError("positions come as a list, one entry per sample: pass [positions]")
    if len(positions) != samples:
        raise QueryError(f"{len(positions)} lists of positions for {samples} samples")


def log_probabilities(probabilities: Tensor) -> Tensor:
    """Return logarithms that serve as logits, finite where a probability is 0."""
    return probabilities.clamp(min=1e-12).log()


def in_units(out: Tensor, task_spec: TaskSpec) -> Tensor:
    """Bring the raw outputs of a regression to the physical unit of the target; logits of classes stay as they are."""
    if not task_spec.regression:
        return out
    # physical units need more digits than half precision has
    return out.to(torch.promote_types(out.dtype, torch.float32)) * task_spec.target_std + task_spec.target_mean
