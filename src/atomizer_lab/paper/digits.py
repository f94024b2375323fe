"""MNIST with one latent or token per pixel: the trainings of two tables, and the test with fewer dark pixels.

``paper`` is the protocol of the appendix: images of 28 × 28, 7.4 M parameters, 50 epochs. ``small`` has images of
14 × 14 (means of 2 × 2 pixels) and 0.2 M parameters for three epochs, half an hour of one core for each network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from atomizer_io.data.sample import Sample
from atomizer_io.datasets.mnist import Mnist, sparsify
from atomizer_io.figures.class_colours import rgb
from atomizer_io.models.registry import load_model
from atomizer_lab.matrix import Task
from atomizer_lab.paper.columns import merged, settings_in
from atomizer_lab.paper.item import PAPER, SMALL, SMOKE, Where
from atomizer_lab.paper.models import percent
from atomizer_lab.paper.trainings import keep, trained
from atomizer_lab.report.images import Floats
from atomizer_lab.synthetic import mnist_files

ATOMIZER, NO_ROPE, VIT = "Atomizer-IO", "Atomizer-IO without RoPE", "ViT 1×1"
MISSING = "#6b7f99"
PIXELS = 3000  # of the images that are predicted at once; more do not fit the caches of a CPU
Shares = Mapping[str, float]
Images = Mnist | Sequence[Any]
KEPT: Shares = {f"{share:.0%}": share for share in (1.0, 0.75, 0.5, 0.25, 0.1)}  # of the dark pixels at test
MINUTES = {PAPER: 600.0, SMALL: 50.0, SMOKE: 0.05}

# images are tested here, with all and with fewer pixels, so a training need not
_HOW: dict[str, Any] = {"data": {"test": None}, "training": {"baselines": False, "figures": 0, "loggers": ["csv"]}}
_CPU: dict[str, Any] = {"training": {"devices": 1, "accelerator": "cpu"}}
_ONE_STEP: dict[str, Any] = {
    "data": {"options": {"holdout": 8}},
    "training": {"epochs": None, "max_steps": 1, "batch_size": 4, "learning_rate": 2e-3, "loggers": []},
}
_LITTLE_VIT = {"depth": 4}  # 0.21 M parameters, as many as Atomizer-IO has


def document(model: str, scale: str, seed: int, configs: Path = Path("configs")) -> dict[str, Any]:
    """Return the settings of one training, from the file in ``configs``, or at other scales in ``configs/small``."""
    settings = merged(settings_in(configs, "mnist" if scale == PAPER else "small/mnist"), {**_HOW, "seed": seed})
    settings.pop("name", None)
    if scale != PAPER:
        settings = merged(settings, _CPU)
    if scale == SMOKE:
        settings = merged(settings, _ONE_STEP)
    built = settings["model"]
    if model == VIT:
        own = {PAPER: {}, SMALL: _LITTLE_VIT, SMOKE: {"depth": 1}}[scale]
        built = {"preset": "vit_mnist" if scale == PAPER else "vit_mnist_small", "settings": own}
    else:
        depth = {"depth": 1} if scale == SMOKE else {}
        rope = {"rope": False} if model == NO_ROPE else {}
        built = {**built, "settings": {**built.get("settings", {}), **depth, **rope}}
    return {**settings, "model": built}


def root_of(scale: str, where: Where) -> Path:
    """Return the folder of the images; synthetic ones are written there."""
    if scale != SMOKE:
        return where.data / "mnist"
    root = where.work / "smoke" / "mnist"
    if not root.exists():
        root.mkdir(parents=True)
        mnist_files.write(root)
    return root


def tasks(models: Sequence[str], scale: str, where: Where, seeds: Sequence[int], shares: Shares) -> list[Task]:
    """Return one run for each network and seed: train, then test with these shares of the dark pixels, by column."""
    folders = {"root": str(root_of(scale, where)), "work": str(where.work), "results": str(where.results)}
    return [
        Task(
            f"{model}, seed {seed}",
            train_and_test,
            {"model": model, "document": document(model, scale, seed, where.configs), "shares": dict(shares)},
            MINUTES[scale],
            folders,
        )
        for seed in seeds
        for model in models
    ]


def train_and_test(
    model: str, document: Mapping[str, Any], shares: Shares, root: str, work: str, results: str
) -> dict[str, Any]:
    """Train one network, and return its accuracy (%) on the test images for each share of dark pixels that is kept.

    Beside it are the confusion matrices. The model of the first seed is kept beside the results, unless it is large.
    """
    done = trained(document, label(model), root, work, results)
    built = load_model(done.model)
    if document["seed"] == 0 and built.num_parameters < 1_000_000:
        keep(done, results)
    images = list(images_of(document, root))  # read once for all shares
    counts = {column: confusion(built, images, share) for column, share in shares.items()}
    return {
        "numbers": {
            model: {column: percent(int(matrix.trace()) / int(matrix.sum())) for column, matrix in counts.items()}
        },
        "confusion": {column: matrix.tolist() for column, matrix in counts.items()},
        "parameters": built.num_parameters,
        **done.cost,
    }


def label(model: str) -> str:
    """Return what the folder of a training is called."""
    return f"mnist-{model.lower().replace(' ', '-').replace('×', 'x')}"


def images_of(document: Mapping[str, Any], root: str) -> Mnist:
    """Return the test images, as large as a training had them."""
    return Mnist(Path(root), "test", pool=document["data"]["options"].get("pool", 1))


def confusion(model: Any, images: Images, share: float) -> Tensor:
    """Return how many images of each digit (rows) are predicted as each digit (columns), a share of dark pixels kept.

    Which pixels stay depends on the image alone, so that all networks see the same.
    """
    samples = [sparse(images, number, share) for number in range(len(images))]
    target = torch.tensor([int(sample.target) for sample in samples])
    return torch.bincount(10 * target + predictions(model, samples), minlength=100).reshape(10, 10)


@torch.no_grad()
def predictions(model: Any, samples: Sequence[Sample]) -> Tensor:
    """Return the digits that a network predicts; images of about as many pixels are predicted together."""
    model.eval()
    prepare, labels = model.preparer(), torch.zeros(len(samples), dtype=torch.long)
    for group in alike([sample.atoms.num_atoms for sample in samples]):
        inputs = [prepare(samples[index].atoms, None) for index in group]
        labels[group] = torch.stack(model.predict(inputs)).argmax(dim=1)
    return labels


def alike(pixels: Sequence[int]) -> Iterator[list[int]]:
    """Yield the indices of images, the largest first, as many at once as have at most :data:`PIXELS` in all, or one."""
    order = sorted(range(len(pixels)), key=lambda index: -pixels[index])
    while order:
        count = max(1, PIXELS // max(1, pixels[order[0]]))
        yield order[:count]
        order = order[count:]


def sparse(images: Images, number: int, share: float) -> Sample:
    """Return an image of which a share of the dark pixels is kept, bright ones all."""
    return sparsify(images[number], 1 - share, torch.Generator().manual_seed(number))  # type: ignore[arg-type]


def figure(sample: Sample) -> Floats:
    """Draw an image; absent pixels are blue, as they are no zeros."""
    (image,) = sample.atoms.acquisitions
    side = round(len(image.values) ** 0.5)
    values = image.observed()[:, 0].reshape(side, side, 1).double().numpy() / 255
    image_HW3: Floats = np.where(np.isnan(values), rgb(MISSING), np.nan_to_num(values))
    return image_HW3
