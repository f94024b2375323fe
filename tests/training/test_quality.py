"""The tiny preset against a logistic regression of single pixels, where no sum of bands and dates shows the class.

This is a task built for it. On scenes like those of Sen1Floods11, xView2 and PASTIS-R, as short a training does not
beat the regression.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import atomizer_io as aio
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.training import config
from atomizer_io.training.evaluate import score
from atomizer_io.training.run import train
from atomizer_lab.baselines.pixels import fitted
from atomizer_lab.synthetic.dataset import Synthetic

SCENES, HELD_OUT, SIZE = 200, 20, 16


def trained(folder: Path, like: str, seed: int = 0) -> aio.AtomizerIO:
    """The tiny preset after 450 steps on scenes like ``like``."""
    document = {
        "data": {
            "name": "synthetic",
            "options": {"like": like, "size": SIZE, "length": SCENES},
            "val": None,
            "test": None,
            "measure": 8,
            "workers": 0,
            "keep": SCENES,
        },
        "model": {"preset": "atomizer_io_tiny"},
        "training": {
            "max_steps": 450,
            "batch_size": 4,
            "learning_rate": 2e-3,
            "warmup": 0.3,  # the task begins with a plateau, which a high rate does not leave
            "configurations": [[64, 64]],
            "queries": 256,
            "loggers": [],
            "ema": 0.0,
            "weight_decay": 0.01,
            "accelerator": "cpu",
        },
        "seed": seed,
        "output": str(folder),
    }
    result = train(config.parse(document), progress=False)
    return aio.AtomizerIO.from_pretrained(Path(result["folder"], "last"))


def regression_miou(task_spec: TaskSpec, training: Synthetic, validation: Synthetic) -> float:
    """mIoU of a regression of single pixels on ``validation``."""
    return float(score(fitted(task_spec, training), validation, progress=False)["miou"])


@pytest.mark.slow
def test_tiny_beats_the_regression_of_pixels(tmp_path: Path) -> None:
    """Fields with one harvest a year or two, each beginning on a day of its own."""
    training, validation = (
        Synthetic("season", split, size=SIZE, length=length)
        for split, length in (("train", SCENES), ("test", HELD_OUT))
    )
    model = trained(tmp_path, "season")
    ours = score(model, validation, progress=False)["miou"]
    theirs = regression_miou(model.task_spec, training, validation)
    assert ours > 0.8
    assert ours > theirs + 0.3
