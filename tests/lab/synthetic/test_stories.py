"""Scenes in which the neighbourhood decides: floods in wind and shadow, and a village on a hillside."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from scipy import ndimage

from atomizer_io.data.sample import Sample
from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.training.evaluate import score
from atomizer_lab.baselines.pixels import fitted
from atomizer_lab.synthetic.dataset import Synthetic
from atomizer_lab.synthetic.mimic import STORIES, scene

SMALL = {"village": 24}


def small(name: str, seed: int) -> Sample:
    return scene(name, seed, SMALL.get(name, 24))


@pytest.mark.parametrize("name", STORIES)
def test_the_same_arguments_give_the_same_sample_to_the_bit(name: str) -> None:
    one, two, third = small(name, 5), small(name, 5), small(name, 6)
    assert torch.equal(one.target, two.target)
    for a, b in zip(one.atoms, two.atoms, strict=True):
        assert a.values.numpy().tobytes() == b.values.numpy().tobytes() and torch.equal(a.positions, b.positions)
    assert one.atoms.acquisitions[0].values.numpy().tobytes() != third.atoms.acquisitions[0].values.numpy().tobytes()


def test_what_clouds_hide_is_absent_but_has_targets() -> None:
    samples = [scene("hard-floods", seed, 24) for seed in range(12)]
    hidden = [~sample.atoms.acquisitions[1].occupied() for sample in samples]
    assert 0 < sum(bool(h.any()) for h in hidden) < 12
    for sample in samples:
        assert sample.queries is not None and not bool(sample.queries.ignore.any())
        assert bool(sample.atoms.acquisitions[0].occupied().all())


@pytest.mark.slow
def test_the_neighbourhood_separates_what_a_pixel_does_not() -> None:
    """A regression of single pixels is clearly below one that is also given the means around each pixel."""
    learned = Synthetic("hard-floods", "train", size=48, length=40, seed=3)
    held_out = Synthetic("hard-floods", "test", size=48, length=20, seed=3)
    task_spec = TaskSpec(num_outputs=2, class_names=("dry", "water"), channels=learned.channels)
    alone = score(fitted(task_spec, learned), held_out, progress=False)["miou"]
    around = score(fitted(task_spec, map(blurred, learned)), with_blurred_values(held_out), progress=False)["miou"]
    assert 0.70 < alone < 0.88
    assert around > alone + 0.01


def blurred(sample: Sample) -> Sample:
    """The sample with each value replaced by the mean of 3 × 3 pixels."""
    from dataclasses import replace

    from atomizer_io.data.atoms import AtomSet

    parts = []
    for a in sample.atoms:
        side = round(len(a.positions) ** 0.5)
        values = a.observed().T.reshape(-1, side, side).numpy()
        mean = np.stack([ndimage.uniform_filter(np.nan_to_num(v, nan=float(np.nanmean(v))), 3) for v in values])
        parts.append(replace(a, values=torch.from_numpy(mean).reshape(len(mean), -1).T, valid=None))
    return replace(sample, atoms=AtomSet(tuple(parts)))


def with_blurred_values(dataset: Synthetic) -> Synthetic:
    return Synthetic(dataset.like, "test", size=48, length=len(dataset), seed=dataset.seed, transform=blurred)


def test_a_village_has_points_with_classes_and_an_image() -> None:
    samples = [small("village", seed) for seed in range(8)]
    classes = torch.cat([sample.target for sample in samples])
    assert (torch.bincount(classes[classes >= 0], minlength=3) > 0.02 * len(classes)).all()
    for sample in samples:
        points, image = sample.atoms
        assert points.footprint_m == (0.0, 0.0) and image.footprint_m == (1.0, 1.0)
        assert sample.queries is not None and torch.equal(sample.queries.sites[0], torch.arange(len(points.positions)))
        assert 0.6 * 2 * 24 * 24 < len(points.positions) < 1.6 * 2 * 24 * 24
