"""Plain rivals for the runs in configs/small: what a pixel or a patch says by itself.

    pip install scikit-learn
    python examples/pixel_baselines.py sen1floods11 configs/small/sen1floods11.yaml
    python examples/pixel_baselines.py patches configs/small/s2-patches.yaml

Reads the same samples as the run of that configuration and writes results/NAME-baselines.json.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from atomizer_io.datasets import Dataset
from atomizer_io.machine import machine
from atomizer_io.training import config
from atomizer_io.training.metrics import from_confusion
from atomizer_io.training.splits import open_split

PIXELS = 60_000  # to fit on


def pixels(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """Channels (M, C) and class (M,) of every labelled pixel; sensors on one grid side by side, absent as the mean."""
    rows, labels = [], []
    for sample in dataset:
        values = torch.cat([acquisition.observed() for acquisition in sample.atoms], dim=1).numpy()
        known = ~sample.queries.ignore.numpy()
        rows.append(values[known])
        labels.append(sample.target.numpy()[known])
    table = np.concatenate(rows)
    return np.where(np.isfinite(table), table, np.nanmean(table, axis=0)), np.concatenate(labels)


def patches(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """All values of a patch in one row, and its class."""
    samples = list(dataset)
    rows = [sample.atoms.acquisitions[0].observed().numpy().reshape(-1) for sample in samples]
    return np.stack(rows), np.array([int(sample.target) for sample in samples])


def scores(model: object, x: np.ndarray, y: np.ndarray, classes: int) -> dict[str, object]:
    """Scores of a fitted model."""
    found = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(found, (y, model.predict(x)), 1)
    return from_confusion(torch.from_numpy(found), [str(i) for i in range(classes)])


def main(kind: str, path: str) -> None:
    """Fit on the training part, score on the test part."""
    run = config.load(path)
    read = {"sen1floods11": pixels, "patches": patches}[kind]
    train, test = open_split(run, "train"), open_split(run, "test")
    (x, y), (x_test, y_test) = read(train), read(test)
    some = np.random.default_rng(run.seed).permutation(len(x))[:PIXELS]
    rivals = {
        "logistic regression": make_pipeline(StandardScaler(), LogisticRegression(max_iter=2000)),
        "random forest": RandomForestClassifier(200, random_state=run.seed, n_jobs=2),
    }
    found = {}
    for name, model in rivals.items():
        began = time.monotonic()
        model.fit(x[some], y[some])
        found[name] = scores(model, x_test, y_test, len(train.info.classes)) | {"seconds": time.monotonic() - began}
        print(name, {key: value for key, value in found[name].items() if isinstance(value, float)})
    output = Path("results") / f"{run.name}-baselines.json"
    output.parent.mkdir(exist_ok=True)
    document = {"scores": found, "fitted_on": len(some), "seed": run.seed, "machine": machine()}
    output.write_text(json.dumps(document, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
