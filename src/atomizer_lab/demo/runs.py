"""What the demo trains, and on what: synthetic scenes, cached in memory, and the settings of its three runs."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from atomizer_io.data.sample import Sample
from atomizer_io.errors import AtomizerError
from atomizer_io.training import config
from atomizer_io.training.config import Run
from atomizer_lab.synthetic.dataset import Synthetic

FLOODS, NEW_SENSOR_FLOODS, VILLAGE = "hard-floods", "hard-floods-stranger", "village"
SIZE, SCENES, TEST_SCENES = 48, 240, 24  # pixels of 10 m; scenes to train on; scenes to test on
VILLAGE_M, VILLAGES, TEST_VILLAGES = 48, 80, 12
FITTED = 60  # scenes that a regression is fitted to: more make it no better
VILLAGE_STEPS = 0.2  # of the steps on floods


@dataclass(frozen=True, slots=True)
class Demo:
    """What a user chooses: training steps, output folder, seed and CPU threads."""

    steps: int
    output: Path
    seed: int = 0
    threads: int = 1

    def __post_init__(self) -> None:
        for name in ("steps", "threads"):
            if getattr(self, name) < 1:
                raise AtomizerError(f"--{name} must be at least 1, got {getattr(self, name)}")
        if self.seed < 0:
            raise AtomizerError(f"--seed must not be negative, got {self.seed}")


class Cached(Synthetic):
    """Synthetic scenes that stay in memory once they are made."""

    def __init__(self, like: str, split: str, *, size: int, length: int, seed: int) -> None:
        self.made: dict[int, Sample] = {}
        super().__init__(like, split, size=size, length=length, seed=seed)

    def read(self, item: int) -> Sample:
        """Return the sample of one scene, made on first use."""
        if item not in self.made:
            self.made[item] = super().read(item)
        return self.made[item]


def scenes(demo: Demo, like: str, split: str) -> Cached:
    """Return scenes to train on (``train``) or to test on (``test``)."""
    village = like == VILLAGE
    counts = {"train": VILLAGES if village else SCENES, "test": TEST_VILLAGES if village else TEST_SCENES}
    return Cached(like, split, size=VILLAGE_M if village else SIZE, length=counts[split], seed=demo.seed)


def flood_run(demo: Demo, preset: str, name: str, workers: int = 0) -> Run:
    """Return the settings of a run on floods: one scene per step, with channels left out in most of them."""
    training: dict[str, Any] = {
        "max_steps": demo.steps,
        "configurations": [[128, 64]],
        "queries": 600,
        "channel_dropout": {"scheme": "groups", "wavelengths": 0.08},
    }
    # 5e-4 was chosen among three on other seeds; 2e-3 was worse for the UNet (mean of six 0.772, not 0.790)
    training["learning_rate"] = 1e-3
    model: dict[str, Any] = {"preset": preset}
    if preset.startswith("atomizer_io"):
        training["learning_rate"] = 5e-4
        model["settings"] = {"depth": 3, "processor_expansion": 4.0}
    options = {"like": FLOODS, "size": SIZE, "length": SCENES, "seed": demo.seed}
    return _run(demo, name, options, model, training, workers)


def village_run(demo: Demo, name: str) -> Run:
    """Return the settings of a run on points and images, either of which is dropped now and then."""
    settings = {"offset_scale_m": 5.0}
    training = {
        "max_steps": max(1, round(VILLAGE_STEPS * demo.steps)),
        "learning_rate": 3e-3,
        "configurations": [[96, 64]],
        "queries": 600,
        "channel_dropout": {"scheme": "sensors", "share": 0.5},
    }
    options = {"like": VILLAGE, "size": VILLAGE_M, "length": VILLAGES, "seed": demo.seed}
    return _run(demo, name, options, {"preset": "atomizer_io_tiny", "settings": settings}, training, 0)


def _run(
    demo: Demo, name: str, options: dict[str, Any], model: dict[str, Any], training: dict[str, Any], workers: int
) -> Run:
    usual = {
        "batch_size": 1,
        "betas": [0.9, 0.95],
        "loggers": ["csv"],
        "accelerator": "cpu",
        "save_every": max(200, demo.steps),
    }
    data = {
        "name": "synthetic",
        "options": options,
        "val": None,
        "test": None,
        "workers": workers,
        "keep": options["length"],
        "measure": min(24, options["length"]),
        "statistics": "measured",
    }
    return config.parse(
        {
            "data": data,
            "model": model,
            "training": {**usual, **training},
            "seed": demo.seed,
            "output": str(demo.output),
            "name": name,
        }
    )
