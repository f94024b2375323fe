"""The data of a run: which dataset, which split, which part of it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from pathlib import Path

from atomizer_io.datasets.crop import SpatialSplit
from atomizer_io.datasets.dataset import Dataset
from atomizer_io.datasets.registry import create
from atomizer_io.errors import ConfigError
from atomizer_io.training import config
from atomizer_io.training.config import Run

USES = ("train", "val", "test")


def open_split(run: Run, use: str) -> Dataset:
    """Open the split that the run uses for ``train``, ``val`` or ``test``, or any other split of its dataset."""
    data = run.data
    if not data.name:
        raise ConfigError("data.name is missing: name a dataset (`atomizer data list`)")
    for key in data.parts:
        if key not in USES:
            raise ConfigError(f"data.parts has {key!r}, which is none of {', '.join(USES)}")
    split = getattr(data, use) if use in USES else use
    if split is None:
        raise ConfigError(f"data.{use} is empty: name a split of {data.name}")
    transform = {"transform": SpatialSplit(data.parts[use])} if use in data.parts else {}
    dataset = create(data.name, data.root, split, on_error=data.on_error, **transform, **data.options)
    if use in data.parts:  # windows of tiles overlap when they are scored, so a point would be in several parts
        wholes = [dataset.whole_of(index) for index in range(len(dataset))]
        several = next(
            (name for before, name in itertools.pairwise(wholes) if name is not None and name == before), None
        )
        if several is not None:
            raise ConfigError(
                f"data.parts takes a part of each sample, but {several} is cut into windows that overlap: "
                "take whole tiles (data.options.window_m=null), or deal the tiles out to splits"
            )
    return dataset


def settings_of(model: Path, path: Path | None, overrides: Sequence[str]) -> Run:
    """Return the settings of the run that a model belongs to, or those in ``path``."""
    if path is None and (model / "config.yaml").is_file() and (model / "best").is_dir():
        raise ConfigError(f"{model} is the folder of a run: name one of its models, such as {model / 'best'}")
    if not model.is_dir() and model.parent.parent.is_dir():
        raise ConfigError(f"{model}: no such folder; name the folder of a model, such as runs/NAME/best")
    path = path or model.parent / "config.yaml"
    if not path.is_file():
        raise ConfigError(f"{path}: no such file; say with --config which data go with {model}")
    return config.load(path, overrides)
