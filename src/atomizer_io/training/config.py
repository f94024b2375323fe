"""Everything that makes a run, as one YAML file: what to read, what to build, how to train.

    data: {name: sen1floods11, root: /data/sen1floods11}
    model: {preset: atomizer_io_seg}
    training: {epochs: 150, batch_size: 4}

Any key can be set on the command line: ``atomizer train config.yaml training.epochs=3 model.settings.rope=false``.
"""

from __future__ import annotations

import copy
import dataclasses
import difflib
import itertools
import json
import logging
import os
import re
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from atomizer_io.errors import ConfigError
from atomizer_io.option_types import in_words
from atomizer_io.texts import parse_yaml, read_text
from atomizer_io.training.augmentation import ChannelDropout
from atomizer_io.training.point_augmentation import PointAugmentation

MEASURED, PUBLISHED = "measured", "published"
EVEN, BY_CLASSES = "even", "classes"
FROM_DATA: Literal["data"] = "data"
AUTO = "auto"
OLD_KEYS = {  # names of earlier versions, which are still read, until version 1.0
    "model.start": "model.checkpoint",
    "training.averaging": "training.ema",
    "training.channel_draws": "training.channel_dropout",
    "training.clip": "training.gradient_clip",
    "training.cloud_draws": "training.point_augmentation",
    "training.pictures": "training.figures",
    "training.rival": "training.baselines",
    "training.turns": "training.rotations",
}
# of the group training in earlier versions, without effect: there is no per-pixel warm start any more
GONE_KEYS = ("settle", "settled_rate", "warm_start", "warm_start_rate")
logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class DataSettings:
    """What is read. ``root`` may be left out for the synthetic dataset; ``options`` are those of the dataset.

    ``statistics`` names the means and standard deviations by which channels are standardised: those ``published`` for
    the dataset or the sensor, ``measured`` on ``measure`` training samples, or in a file of ``atomizer data stats``.
    ``parts`` cuts the samples for ``train``, ``val`` or ``test`` to a share of their extent (west, south, east, north
    from 0 to 1), so that one large scene can serve for all three; one number each is a share of the width, from the
    west on in the order of the uses.
    """

    name: str = ""
    root: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    train: str = "train"
    val: str | None = "val"
    test: str | None = "test"
    parts: dict[str, tuple[float, float, float, float]] = field(default_factory=dict)
    on_error: str = "raise"
    statistics: str | None = MEASURED
    measure: int = 64
    workers: int = 2
    keep: int | None = None  # samples that each worker keeps in memory; None: as many as fit into 512 MB


@dataclass(frozen=True)
class ModelSettings:
    """What is built: a preset, and any of its ``settings`` changed.

    With a ``checkpoint``, a folder or a name on the Hugging Face hub, weights begin as those of a saved model, whose
    preset and settings count but for the ``settings`` that are changed here. What was loaded of the stages in
    ``freeze`` (such as ``encoder``; ``body`` is all but the outputs) is not trained.
    """

    preset: str = "atomizer_io_seg"
    settings: dict[str, Any] = field(default_factory=dict)
    checkpoint: str | None = None
    freeze: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.freeze and self.checkpoint is None:
            raise ConfigError("model.freeze keeps what a checkpoint learned: name one with model.checkpoint=...")


@dataclass(frozen=True)
class TrainingSettings:
    """How it is trained; the defaults are the recipe for small data. The files in ``configs`` name the paper's.

    With neither ``epochs`` nor ``max_steps`` early stopping ends a run: after ``patience`` validations in a row, one
    in ``validate_steps``, that raised the score by no more than ``tolerance`` (a share of the best), or when
    ``max_time`` (``hh:mm:ss``) is nearly over. Its learning rate rises over ``warmup_steps``, stays, and at the end
    falls to zero over ``cooldown``, a share of the steps made so far. With ``epochs`` or ``max_steps`` it rises over
    ``warmup``, a share of all steps, and falls along a cosine; ``max_time`` stops such a run cleanly, to be resumed.

    ``ema`` is the decay of the running mean of the weights that is validated and saved; 0 saves the weights of
    the step. ``configurations`` are the (κ, m) of which one is drawn for each batch. Validation during training uses
    the last; at the end the best κ of them on the validation data is stored with the model. Models without κ train at
    their own cost. ``queries`` is how many positions of a sample are decoded in a step; ``query_sampling`` draws them
    ``even``, or as many of each of its ``classes`` as of any other. ``class_weights`` is ``none``, ``balanced``,
    ``sqrt`` or a list. ``baselines`` reports at the end what simple baselines get.
    """

    epochs: int | None = None
    max_steps: int | None = None
    max_time: str | None = None
    batch_size: int | None = None  # None: 4, and more of samples with few measurements
    accumulate: int = 1
    learning_rate: float = 2e-3
    layer_decay: float = 1.0  # factor of the learning rate from each layer to the one before it; new ones have it whole
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.05
    ema: float = 0.999
    initialisation: Literal["data", "torch"] = FROM_DATA  # of fresh weights: from training samples, or torch's own
    # share of the learning rate for layers that the initialisation from data whitens; None: 0.003, or all of it with
    # channel dropout, as what comes and goes has to be learned by the layers that read it
    sensitive_rate: float | None = None
    warmup: float = 0.05
    gradient_clip: float | None = 1.0
    patience: int = 10
    tolerance: float = 1e-3
    warmup_steps: int = 100
    cooldown: float = 0.15
    configurations: tuple[tuple[int, int], ...] = ()
    queries: int | None = None  # None: 250, or all where a model predicts whole maps at once
    query_sampling: Literal["even", "classes"] = "even"
    crop_m: float | Literal["auto"] | None = "auto"  # side of a random crop of each sample; None: whole samples
    repeat: int | None = None  # how often a sample is drawn in an epoch; None: as often as crops fit into it
    flips: bool = True
    rotations: bool = True
    channel_dropout: ChannelDropout = field(default_factory=ChannelDropout)
    point_augmentation: PointAugmentation = field(default_factory=PointAugmentation)
    class_weights: Any = "none"
    precision: str = "32-true"
    devices: int | str = "auto"
    nodes: int = 1
    strategy: str = "auto"
    accelerator: str = "auto"
    validate_every: int = 1  # epochs; not used where steps are counted instead
    # None: with early stopping so many that validating takes about a tenth of the time
    validate_steps: int | None = None
    validation_samples: int | None = None  # at most so many
    save_every: int = 200  # steps between training states; one is saved after each validation as well
    loggers: tuple[str, ...] = ("csv", "tensorboard")
    # predictions drawn per validation; with early stopping after the 1st, 2nd, 4th, 8th ... and the last
    figures: int = 4
    baselines: bool = True  # where scikit-learn is installed

    def __post_init__(self) -> None:
        if not 0 <= self.ema < 1:
            raise ConfigError(f"training.ema must be from 0 (off) to below 1, got {self.ema}")
        if self.sensitive_rate is not None and not 0 < self.sensitive_rate <= 1:
            raise ConfigError(
                f"training.sensitive_rate must be above 0, and 1 (the whole rate) at most, got {self.sensitive_rate}"
            )
        if not 0 < self.layer_decay <= 1:
            raise ConfigError(f"training.layer_decay must be above 0, and 1 (off) at most, got {self.layer_decay}")
        if not 0 <= self.cooldown <= 1:
            raise ConfigError(f"training.cooldown must be a share from 0 to 1, got {self.cooldown}")
        for name in ("epochs", "max_steps", "patience", "validate_steps", "validate_every", "save_every"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ConfigError(f"training.{name} must be at least 1, got {value}")

    @property
    def open(self) -> bool:
        """Whether a run trains until early stopping ends it."""
        return self.epochs is None and self.max_steps is None


@dataclass(frozen=True)
class Run:
    """All settings of a training run."""

    data: DataSettings = field(default_factory=DataSettings)
    model: ModelSettings = field(default_factory=ModelSettings)
    training: TrainingSettings = field(default_factory=TrainingSettings)
    seed: int = 0
    output: str = "runs"
    name: str | None = None  # of the run's folder; by default that of the dataset


def folder_of(run: Run) -> Path:
    """Return the folder in which a run leaves what it makes."""
    return Path(run.output) / (run.name or run.data.name)


def inside(run: Run, folder: Path, overrides: Sequence[str] = ()) -> Run:
    """``run`` in ``folder``, wherever its settings say that it was: folders of runs get copied, moved and renamed."""
    for text in overrides:
        if text.split("=")[0] in ("name", "output"):
            raise ConfigError(f"{text}: --resume goes on in the folder {folder}; leave this out, or copy the folder")
    place = folder.resolve()
    return dataclasses.replace(run, output=str(place.parent), name=place.name)


def first_process() -> bool:
    """Whether this is the only process of a run, or the first: only the first finds a new folder as it was left.

    The variables are those by which launchers tell processes apart, and which Lightning reads.
    """
    names = ("RANK", "LOCAL_RANK", "SLURM_PROCID", "JSM_NAMESPACE_RANK")
    return next((os.environ[name] for name in names if name in os.environ), "0") == "0"


def load(path: str | Path, overrides: Sequence[str] = ()) -> Run:
    """The run that a YAML file describes, with ``key.key=value`` overrides (values are YAML); every key is checked."""
    document = renamed(read_yaml(shipped(Path(path))))
    override(document, overrides)
    return parse(document)


def shipped(path: Path) -> Path:
    """Return ``path``, or the file of the package that it names: ``configs/NAME.yaml`` works in any working folder."""
    package = Path(__file__).resolve().parents[1]
    folders = (package, package.parents[1])  # where a wheel has configs, and where a clone has them
    if path.exists() or path.is_absolute() or path.parts[:1] != ("configs",):
        return path
    return next((folder / path for folder in folders if (folder / path).exists()), path)


def renamed(document: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the present names of all keys; a key that is given by both of its names is an error."""
    document = copy.deepcopy(document)
    for old, new in OLD_KEYS.items():
        (place, before), now = old.split("."), new.split(".")[1]
        group = document.get(place)
        if not isinstance(group, dict) or before not in group:
            continue
        if now in group:
            raise ConfigError(f"settings {old} and {new} are the same, by its earlier and its present name: leave one")
        group[now] = group.pop(before)
    training = document.get("training")
    if not isinstance(training, dict):
        return document
    for key in [key for key in GONE_KEYS if key in training]:
        del training[key]
        logger.warning("setting training.%s is ignored: there is no per-pixel warm start any more", key)
    if training.get("learning_rate", 0) is None:
        del training["learning_rate"]
        default = TrainingSettings.learning_rate
        logger.warning(
            "setting training.learning_rate is null and ignored: it is %g, and not derived any more", default
        )
    return document


def override(document: dict[str, Any], overrides: Sequence[str]) -> None:
    """Put settings of the form ``key.key=value`` into a document; values are YAML."""
    for text in overrides:
        key, equals, value = text.partition("=")
        if not equals or not all(part.isidentifier() for part in key.split(".")):
            raise ConfigError(f"{text!r} is not a setting: write key=value, such as training.epochs=3")
        old = next((old for old in OLD_KEYS if f"{key}.".startswith(f"{old}.")), "")  # perhaps a group
        *parents, last = (OLD_KEYS.get(old, "") + key[len(old) :]).split(".")
        place = document
        for part in parents:
            place = place.setdefault(part, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{text!r}: {part} is no group of settings")
        try:
            place[last] = parse_yaml(value)
        except ValueError as error:
            raise ConfigError(f"cannot read the value of {text!r}: {error}") from error


def read_yaml(path: Path) -> dict[str, Any]:
    """Return the settings in a YAML file, unchecked."""
    try:
        document = parse_yaml(read_text(path))
    except FileNotFoundError as error:
        raise ConfigError(f"{path}: no such file") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} cannot be read as YAML: {error}") from error
    if not isinstance(document, dict):
        raise ConfigError(f"{path} holds no settings: expected data:, model:, training:")
    return document


def parse(document: dict[str, Any]) -> Run:
    """A run from plain values; an unknown key or a value of the wrong kind is an error that names it."""
    import jsonargparse

    document = renamed(document)
    check_keys(Run, document)
    document = with_boxes(document)
    parser = jsonargparse.ArgumentParser(exit_on_error=False)
    parser.add_class_arguments(Run)
    try:
        settings = parser.instantiate(parser.parse_object(document))
    except (jsonargparse.ArgumentError, TypeError, ValueError) as error:
        raise ConfigError(of_wrong_kind(document, str(error))) from error
    return Run(**vars(settings))


def of_wrong_kind(document: dict[str, Any], message: str) -> str:
    """Return what is wrong with a value, in words, where the parser named its key; else the parser's message."""
    named = re.search(r'key "([\w.]+)"', message)
    kind, value = Run, document
    for part in named[1].split(".") if named else ():
        hints = typing.get_type_hints(kind) if dataclasses.is_dataclass(kind) else {}
        if part not in hints or not isinstance(value, dict) or part not in value:
            return " ".join(message.replace("Parser key", "setting").split())
        kind, value = hints[part], value[part]
    if named is None:
        return " ".join(message.split())
    return f"setting {named[1]} is {value!r}; it has to be {in_words(kind)}"


def with_boxes(document: dict[str, Any]) -> dict[str, Any]:
    """Return settings whose ``data.parts`` are boxes: shares, as ``{train: 0.7, val: 0.3}``, go from the west on."""
    data = document.get("data") or {}
    parts = data.get("parts")
    if not isinstance(parts, dict) or not parts or not all(type(share) in (int, float) for share in parts.values()):
        return document
    if min(parts.values()) <= 0 or sum(parts.values()) > 1 + 1e-9:
        raise ConfigError(f"setting data.parts is {parts}; shares have to be above 0, and no more than 1 together")
    edges = itertools.pairwise([0.0, *itertools.accumulate(float(share) for share in parts.values())])
    boxes = {use: [west, 0.0, min(1.0, east), 1.0] for use, (west, east) in zip(parts, edges, strict=True)}
    return {**document, "data": {**data, "parts": boxes}}


def check_keys(kind: Any, document: Any, where: str = "") -> None:
    """Refuse keys that no dataclass has, with the nearest one that it has."""
    hints = typing.get_type_hints(kind)
    for key, value in document.items() if isinstance(document, dict) else ():
        if key not in hints:
            near = difflib.get_close_matches(str(key), hints, n=1)
            hint = f"did you mean {where}{near[0]}?" if near else f"known are {', '.join(hints)}"
            raise ConfigError(f"unknown setting {where}{key}; {hint}")
        if value is None and hints[key] is not Any and type(None) not in typing.get_args(hints[key]):
            raise ConfigError(f"setting {where}{key} is null: give it a value, or leave it out for the default")
        if dataclasses.is_dataclass(hints[key]):
            if not isinstance(value, dict):
                raise ConfigError(f"setting {where}{key} is {value!r}; it is a group: write {where}{key}.NAME=VALUE")
            check_keys(hints[key], value, f"{where}{key}.")


def plain(run: Run) -> dict[str, Any]:
    """Return a run as plain values, ready for YAML or JSON."""
    values: dict[str, Any] = json.loads(json.dumps(dataclasses.asdict(run)))
    return values
