"""A training that begins from a saved model: what is taken over from it, what is new, and what stays as it is.

Where the task is the same (its kind, its classes or its target), all weights are taken over, and channels that the
checkpoint knows keep their statistics. Otherwise the output layer is new, and statistics are those of the new data; a
model with fixed inputs keeps its channels.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from atomizer_io.data.channels import Channel
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.errors import ConfigError, listed
from atomizer_io.models.base import Model
from atomizer_io.models.registry import load_model
from atomizer_io.training.config import ModelSettings
from atomizer_io.training.evaluate import check_channels

BODY = "body"  # of model.freeze: all stages but that of the output layer


@dataclass(frozen=True, slots=True)
class Transfer:
    """Names of tensors that were taken over from a checkpoint, and of those that are not trained, and what to report.

    ``fresh`` are the stages of which nothing was taken over. A tensor that got more rows, for new channels, counts as
    new: it is trained, at the full learning rate.
    """

    loaded: frozenset[str] = frozenset()
    frozen: frozenset[str] = frozenset()
    fresh: frozenset[str] = frozenset()
    lines: tuple[str, ...] = ()


FROM_SCRATCH = Transfer()


def same_task(old: TaskSpec, new: TaskSpec) -> bool:
    """Whether two tasks have the same outputs, so that an output layer can serve for both."""
    names = ("task", "num_outputs", "target_name", "target_unit")
    alike = all(getattr(old, name) == getattr(new, name) for name in names)
    return alike and old.class_names in ((), new.class_names)


def continued(old: TaskSpec, new: TaskSpec) -> TaskSpec:
    """Return the task of a model that goes on with the same task on new data.

    It uses dates if it did before, or if the new data have several. It has always been shown all of its channels, or a
    site field, only if that was so, and remains so. Products have the codes of the new labels.
    """
    known, shown = old.statistics(), new.statistics()
    added = [channel for key, channel in shown.items() if key not in known]
    return old.replace(
        channels=(*old.channels, *added),
        complete=old.complete and new.complete and known.keys() <= shown.keys() and not added,
        complete_fields=tuple(name for name in old.complete_fields if name in new.complete_fields),
        fields={**new.fields, **old.fields},
        dates=old.dates or new.dates,
        thinning=min(old.thinning, new.thinning),
        class_names=new.class_names,
        class_codes=new.class_codes,
        label_codes=new.label_codes,
        las_standard=new.las_standard,
    )


def transferred(settings: ModelSettings, task_spec: TaskSpec, data: str) -> tuple[Model, Transfer]:
    """Return a model for the task of the data of this name that goes on from the checkpoint of the settings."""
    assert settings.checkpoint is not None
    source: Model = load_model(settings.checkpoint)
    check_channels(source, task_spec.channels, data)
    same, changes = same_task(source.task_spec, task_spec), settings.settings
    if same:
        task_spec, changes = continued(source.task_spec, task_spec), {**source.settings(), **changes}
    elif not source.capabilities.new_channels:
        whole = task_spec.complete and source.task_spec.statistics().keys() <= task_spec.statistics().keys()
        task_spec = task_spec.replace(channels=source.task_spec.channels, complete=whole)
    architecture = source.settings_for(task_spec, changes)
    model = type(source).build(task_spec, architecture, preset=source.preset)
    model = model.to(next(source.parameters()).dtype)
    own, weights, before = model.state_dict(), source.weights_for(model), source.state_dict()
    outputs = output_tensors(model)
    loaded = (own.keys() & weights.keys()) - (set() if same else outputs)
    if misfits := sorted(name for name in loaded if own[name].shape != weights[name].shape):
        sizes = f"{tuple(own[misfits[0]].shape)} here and {tuple(weights[misfits[0]].shape)} there"
        more = f", and so are {len(misfits) - 1} more" if len(misfits) > 1 else ""
        changed = f" (model.settings has {listed(settings.settings)})" if settings.settings else ""
        raise ConfigError(
            f"{settings.checkpoint} is of another size than the model{changed}: {misfits[0]} is {sizes}{more}; leave "
            "out the model.settings that change sizes (model.settings={} keeps all of the checkpoint), or begin "
            "without model.checkpoint"
        )
    model.load_state_dict({**own, **{name: weights[name] for name in loaded}})
    grown = {name for name in loaded if name in before and before[name].shape != own[name].shape}
    stages = {stage: {name for name in own if name.split(".")[0] == stage} for stage in model.stages}
    fresh = frozenset(stage for stage, names in stages.items() if names and not names & loaded)
    taken = frozenset(loaded - grown)
    frozen = freeze(model, settings.freeze, taken, outputs)
    lines = [
        f"checkpoint {settings.checkpoint}: {source.preset or source.family}, {described(source.task_spec)}",
        f"loaded: {listed(stage for stage, names in stages.items() if names & loaded)} "
        f"({sum(own[name].numel() for name in taken):,} of {sum(tensor.numel() for tensor in own.values()):,} numbers)",
        f"new: {listed(new_parts(own.keys() - loaded, grown, fresh)) or 'nothing'}",
        *channel_lines(source, model),
        "statistics of channels: those of the checkpoint where it knows a channel, else of the data"
        if same
        else "the task is another: outputs and statistics of channels are those of the data",
    ]
    if unused := sorted({name.split(".")[0] for name in before.keys() - own.keys()}):
        lines.append(f"not used of the checkpoint: {listed(unused)}")
    if frozen:
        count = sum(own[name].numel() for name in frozen)
        lines.append(f"frozen: {listed(settings.freeze)} ({count:,} numbers; {model.num_parameters - count:,} trained)")
    return model, Transfer(taken, frozen, fresh, tuple(lines))


def described(task_spec: TaskSpec) -> str:
    """Return a task in a few words."""
    if task_spec.regression:
        return f"{task_spec.task} of {task_spec.target_name or f'{task_spec.num_outputs} outputs'}"
    return f"{task_spec.task} of {task_spec.num_outputs} classes"


def new_parts(new: Iterable[str], grown: Iterable[str], fresh: Iterable[str]) -> list[str]:
    """Return what is new: whole stages, single modules of others, and tensors with more rows."""
    single = {name.rpartition(".")[0] or name for name in new if name.split(".")[0] not in fresh}
    return [*sorted(fresh), *sorted(single), *(f"rows of {name}" for name in sorted(grown))]


def channel_lines(source: Model, model: Model) -> list[str]:
    """Return a line on the channels of the new data that the checkpoint was not trained on, if there are any."""
    known = source.task_spec.statistics()
    new = [channel for key, channel in model.task_spec.statistics().items() if key not in known]
    if not new:
        return []
    learned = source.unreadable(new)

    def names(channels: Iterable[Channel]) -> str:
        return listed(f"{channel.sensor} {channel.name}" for channel in channels)

    parts = [(names(c for c in new if c not in learned), "by wavelength"), (names(learned), "as new learned vectors")]
    return ["channels new to it: " + "; ".join(f"{text} ({how})" for text, how in parts if text)]


def output_tensors(model: Model) -> set[str]:
    """Return the names of the tensors whose size depends on the number of outputs."""
    spec = model.task_spec.replace(
        num_outputs=model.task_spec.num_outputs + 1, class_names=(), class_codes=(), label_codes={}
    )
    with torch.device("meta"):
        wider = type(model).build(spec, model.settings(), preset=model.preset).state_dict()
    return {name for name, tensor in model.state_dict().items() if wider[name].shape != tensor.shape}


def freeze(model: Model, stages: Iterable[str], loaded: frozenset[str], outputs: set[str]) -> frozenset[str]:
    """Exclude from training what was loaded of some stages; return the names of these parameters."""
    frozen: set[str] = set()
    own = dict(model.named_parameters())
    for stage in stages:
        heads = {name.split(".")[0] for name in outputs}
        chosen = [name for name in model.stages if name not in heads] if stage == BODY else [stage]
        if not {*chosen} <= {*model.stages}:
            raise ConfigError(
                f"model.freeze: {stage!r} is no stage of {model.preset or model.family}; it has "
                f"{listed(model.stages)}, and {BODY} for all but its outputs"
            )
        names = {name for name in own if name in loaded and name.split(".")[0] in chosen}
        if not names:
            raise ConfigError(f"model.freeze: nothing of {stage} was loaded from the checkpoint; leave it out")
        frozen |= names
    if frozen == own.keys():
        raise ConfigError("model.freeze leaves nothing to train: name fewer stages")
    for name in frozen:
        own[name].requires_grad_(False)
    still(model)
    return frozenset(frozen)


def still(module: nn.Module) -> None:
    """Put the parts of which no weight is trained into evaluation mode: neither dropout nor running statistics."""
    for part in module.children():
        weights = list(part.parameters())
        if weights and not any(weight.requires_grad for weight in weights):
            part.eval()
        else:
            still(part)
