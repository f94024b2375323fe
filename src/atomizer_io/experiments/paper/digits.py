"""MNIST with one latent or token per pixel: the trainings of two tables, and the test with fewer dark pixels.

``paper`` is the protocol of the appendix: images of 28 × 28, 7.4 M parameters, 50 epochs. ``small`` has images of
14 × 14 (means of 2 × 2 pixels) and 0.2 M parameters for three epochs, half an hour of one core for each network.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from atomizer_io import fixtures
from atomizer_io.datasets.mnist import Mnist, sparsify
from atomizer_io.experiments.matrix import Task
from atomizer_io.experiments.paper.item import PAPER, SMALL, SMOKE, Where
from atomizer_io.experiments.paper.trainings import keep, trained
from atomizer_io.models.registry import load_model

ATOMIZER, NO_ROPE, VIT = "Atomizer-IO", "Atomizer-IO without RoPE", "ViT 1×1"
BATCH = 20  # images that are answered at once; more do not fit the caches of a CPU
Shares = Mapping[str, float]
KEPT: Shares = {f"{share:.0%}": share for share in (1.0, 0.75, 0.5, 0.25, 0.1)}  # of the dark pixels at test
MINUTES = {PAPER: 600.0, SMALL: 35.0, SMOKE: 0.05}

# images are tested here, with all and with fewer pixels, so a training need not
_TRAINING: dict[str, Any] = {
    "weight_decay": 1e-3,
    "flips": False,  # a mirrored digit is another digit, or none
    "turns": False,
    "rival": False,
    "pictures": 0,
    "loggers": ["csv"],
}
_PAPER: dict[str, Any] = {
    "data": {"name": "mnist", "options": {"holdout": 5000}, "test": None},
    "training": {
        **_TRAINING,
        "epochs": 50,
        "batch_size": 64,
        "learning_rate": 1e-4,
        "warmup": 0.05,
        "clip": 1.0,
        "averaging": 0.0,
    },
}
_SMALL: dict[str, Any] = {
    "data": {"name": "mnist", "options": {"pool": 2, "holdout": 2000}, "test": None, "workers": 0},
    "training": {**_TRAINING, "epochs": 3, "batch_size": 32, "save_every": 500, "devices": 1, "accelerator": "cpu"},
}
_SMOKE: dict[str, Any] = {
    "data": {"name": "mnist", "options": {"pool": 2, "holdout": 8}, "test": None, "workers": 0},
    "training": {**_TRAINING, "max_steps": 1, "batch_size": 4, "devices": 1, "accelerator": "cpu", "loggers": []},
}
_DOCUMENTS = {PAPER: _PAPER, SMALL: _SMALL, SMOKE: _SMOKE}
# without dropout, which makes attention slow on CPUs
_LITTLE = {"width": 64, "depth": 3, "cross_heads": 2, "cross_head_dim": 32, "self_heads": 4, "self_head_dim": 16}
_LITTLE |= {"attention_dropout": 0.0, "feedforward_dropout": 0.0}  # type: ignore[dict-item]
_LITTLE_VIT = {"depth": 4}  # 0.21 M parameters, as many as Atomizer-IO has
_SMALLEST = {**_LITTLE, "depth": 1}


def document(model: str, scale: str, seed: int) -> dict[str, Any]:
    """Return the settings of one training."""
    if model == VIT:
        own = {PAPER: {}, SMALL: _LITTLE_VIT, SMOKE: {"depth": 1}}[scale]
        built: dict[str, Any] = {"preset": "vit_mnist" if scale == PAPER else "vit_mnist_small", "settings": own}
    else:
        settings: dict[str, Any] = dict({PAPER: {}, SMALL: _LITTLE, SMOKE: _SMALLEST}[scale])
        if model == NO_ROPE:
            settings["rope"] = False
        built = {"preset": "atomizer_io_mnist", "settings": settings}
    return {**_DOCUMENTS[scale], "model": built, "seed": seed}


def root_of(scale: str, where: Where) -> Path:
    """Return the folder of the images; made-up ones are written there."""
    if scale != SMOKE:
        return where.data / "mnist"
    root = where.work / "smoke" / "mnist"
    if not root.exists():
        fixtures.write("mnist", root)
    return root


def tasks(models: Sequence[str], scale: str, where: Where, seeds: Sequence[int], shares: Shares) -> list[Task]:
    """Return one run for each network and seed: train, then test with these shares of the dark pixels, by column."""
    places = {"root": str(root_of(scale, where)), "work": str(where.work), "results": str(where.results)}
    return [
        Task(
            f"{model}, seed {seed}",
            train_and_test,
            {"model": model, "document": document(model, scale, seed), "shares": dict(shares)},
            MINUTES[scale],
            places,
        )
        for seed in seeds
        for model in models
    ]


def train_and_test(
    model: str, document: Mapping[str, Any], shares: Shares, root: str, work: str, results: str
) -> dict[str, Any]:
    """Train one network, and return its accuracy (%) on the test images for each share of dark pixels that is kept.

    The model of the first seed is kept beside the results, unless it is large.
    """
    done = trained(document, f"mnist-{model.lower().replace(' ', '-').replace('×', 'x')}", root, work, results)
    built = load_model(done.model)
    if document["seed"] == 0 and built.num_parameters < 1_000_000:
        keep(done, results)
    options = dict(document["data"]["options"])
    images = Mnist(root, "test", pool=options.get("pool", 1))
    return {
        "numbers": {model: {column: accuracy(built, images, share) for column, share in shares.items()}},
        "parameters": built.num_parameters,
        **done.cost,
    }


@torch.no_grad()
def accuracy(model: Any, dataset: Mnist, share: float) -> float:
    """Return the share (%) of images whose digit is found when a share of their dark pixels is kept, bright ones all.

    Which pixels stay depends on the image alone, so that all networks see the same.
    """
    prepare, right = model.preparer(), 0
    model.eval()
    for first in range(0, len(dataset), BATCH):
        inputs, labels = [], []
        for number in range(first, min(first + BATCH, len(dataset))):
            sample = dataset[number]
            generator = torch.Generator().manual_seed(number)
            sample = sparsify(sample, 1 - share, generator)  # type: ignore[arg-type]
            inputs.append(prepare(sample.atoms, None))
            labels.append(int(sample.target))
        answers = torch.stack(model.answer(inputs)).argmax(dim=1)
        right += int((answers == torch.tensor(labels)).sum())
    return 100 * right / len(dataset)


def picture(path: Path, root: Path, pool: int = 1, images: Sequence[int] = (0, 1, 2)) -> None:
    """Draw some test images at each share of dark pixels; absent ones are blue, as they are no zeros."""
    from matplotlib.figure import Figure

    dataset = Mnist(root, "test", pool=pool)
    figure = Figure(figsize=(1.5 * len(KEPT), 1.6 * len(images)), layout="constrained")
    axes = figure.subplots(len(images), len(KEPT), squeeze=False)
    for row, number in zip(axes, images, strict=True):
        for axis, (title, share) in zip(row, KEPT.items(), strict=True):
            sample = sparsify(dataset[number], 1 - share, torch.Generator().manual_seed(number))  # type: ignore[arg-type]
            (image,) = sample.atoms.acquisitions
            side = round(len(image.values) ** 0.5)
            values = image.observed()[:, 0].reshape(side, side)
            axis.set_facecolor("#6b7f99")
            axis.imshow(values.numpy(), cmap="gray", vmin=0, vmax=255, interpolation="nearest")
            axis.set(xticks=[], yticks=[])
            if row is axes[0]:
                axis.set_title(title, fontsize=9)
    figure.savefig(path, dpi=130)
