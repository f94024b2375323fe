"""Train a tiny model for a minute on synthetic Sentinel-1 and Sentinel-2 scenes and find their water.

Nothing is downloaded. One model is trained, sometimes without one of the sensors, and then maps scenes it has not seen
from all channels or from one sensor alone. Beside it stands a logistic regression of single pixels, fitted anew to each
choice of channels on the same training scenes.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy
from tqdm import tqdm

from atomizer_io.atoms import AtomSet
from atomizer_io.datasets.synthetic import SyntheticScene, water_scene
from atomizer_io.errors import AtomizerError
from atomizer_io.model.atomizer import AtomizerIO
from atomizer_io.model.presets import create_model
from atomizer_io.sensors import SENTINEL1, SENTINEL2

TRAINING_SCENES, UNSEEN_SCENES = 256, 48
SIZE = 32  # pixels: small scenes make short steps, and many steps matter more than large ones in a minute
PIXELS_PER_LATENT = 17
MIN_STEPS = 20
LEARNING_RATE, WEIGHT_DECAY, BETAS = 4e-3, 0.01, (0.9, 0.95)
BUDGET = 64  # atoms a latent reads per training step
QUERIES = 512  # pixels asked per training step
ONE_SENSOR_SHARE = 0.4  # steps that see only one of the sensors
COLUMNS = 32  # width of the picture in characters

INPUTS = {"all channels": None, "Sentinel-2 only": SENTINEL2.name, "Sentinel-1 only": SENTINEL1.name}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of ``atomizer demo``."""
    parser.add_argument(
        "--seconds", type=float, default=60.0, help="time to train for (default: 60; at least 20 steps)"
    )
    parser.add_argument(
        "--output", type=Path, default=Path("demo-output"), help="folder to write to (default: demo-output)"
    )
    parser.add_argument("--seed", type=int, default=0, help="of scenes, weights and training (default: 0)")
    # Steps are too small to gain much from more threads, which wait for each other when the machine is shared.
    parser.add_argument("--threads", type=int, default=1, help="CPU threads (default: 1)")


def run(args: argparse.Namespace) -> int:
    """Train, compare, show, save; 0 if the saved model answers as the trained one did."""
    prepare(args)
    first = 1000 * args.seed
    training = [water_scene(first + i, SIZE) for i in range(TRAINING_SCENES)]
    unseen = [water_scene(first + TRAINING_SCENES + i, SIZE) for i in range(UNSEEN_SCENES)]
    model = create_model(
        "atomizer_io_tiny",
        num_outputs=2,
        class_names=("land", "water"),
        channels=training[0].atoms.channels,
        extent_m=training[0].grid.width * training[0].grid.pixel_m[0],
        budget=BUDGET,
    )
    latents = len(model.geometry(unseen[0].atoms, atoms_per_latent=kappa(unseen[0].atoms)).anchors_L2)
    print(f"model     atomizer_io_tiny, {model.num_parameters:,} parameters, threads: {args.threads}")
    for name, scenes in (("training", training), ("unseen", unseen)):
        size, count = scenes[0].grid.height, sum(scene.atoms.num_atoms for scene in scenes)
        print(f"{name:8}  {len(scenes)} scenes of {size} × {size} pixels, {count:,} atoms")
    print(f"a scene   {unseen[0].atoms.num_atoms:,} atoms (the first unseen one), read by {latents} latents")

    train(model, training, args.seconds, torch.Generator().manual_seed(args.seed))
    model.eval()
    print_table(model, training, unseen)
    predicted = predict(model, unseen[0], unseen[0].atoms)
    print_picture(unseen[0].target, predicted)

    folder = args.output / "model"
    model.save_pretrained(folder)
    again = predict(AtomizerIO.from_pretrained(folder).eval(), unseen[0], unseen[0].atoms)
    same = torch.equal(predicted, again)
    print(f"\nsaved to {folder}; read back, it gives {'the same' if same else 'OTHER'} answers")
    return 0 if same else 1


def prepare(args: argparse.Namespace) -> None:
    """Refuse what cannot work before a minute is spent on it; set threads and the seed of the weights."""
    if not 0 < args.seconds < math.inf:
        raise AtomizerError(f"--seconds must be a positive number, got {args.seconds:g}")
    if args.seed < 0:
        raise AtomizerError(f"--seed must not be negative, got {args.seed}")
    if args.threads < 1:
        raise AtomizerError(f"--threads must be at least 1, got {args.threads}")
    try:
        args.output.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise AtomizerError(f"cannot write to --output {args.output}: {error.strerror}") from error
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)


def train(model: AtomizerIO, scenes: Sequence[SyntheticScene], seconds: float, generator: torch.Generator) -> None:
    """One scene a step, a random part of its pixels as queries; the learning rate follows the clock."""
    optimizer = torch.optim.AdamW(model.parameters(), weight_decay=WEIGHT_DECAY, betas=BETAS, fused=True)
    model.train()
    smooth = math.nan
    for done, bar in steps(seconds):
        scene = scenes[int(torch.randint(len(scenes), (), generator=generator))]
        atoms, pixels = drop_a_sensor(scene.atoms, generator), draw_pixels(scene, generator)
        logits = answer(model, atoms, scene.grid.positions()[pixels], generator)
        loss = cross_entropy(logits, scene.target.flatten()[pixels])
        for group in optimizer.param_groups:
            group["lr"] = LEARNING_RATE * min(1.0, 20 * done + 0.05) * 0.5 * (1 + math.cos(math.pi * done))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        smooth = loss.item() if math.isnan(smooth) else 0.95 * smooth + 0.05 * loss.item()
        bar.set_postfix(loss=f"{smooth:.3f}", refresh=False)


def steps(seconds: float) -> Iterator[tuple[float, tqdm]]:
    """Steps until the time is up: the share of it that has passed, and the bar that shows it."""
    layout = "training  {percentage:3.0f}%|{bar:24}| {elapsed}{postfix}"
    start, count, done = time.monotonic(), 0, 0.0
    with tqdm(total=1.0, bar_format=layout) as bar:
        while done < 1 or count < MIN_STEPS:
            yield min(done, 1.0), bar
            count += 1
            done = max((time.monotonic() - start) / seconds, 0.0)
            bar.update(min(done, 1.0) - bar.n)
    print(f"trained   {count} steps in {time.monotonic() - start:.0f} s")


def draw_pixels(scene: SyntheticScene, generator: torch.Generator) -> Tensor:
    """Numbers of some labelled pixels."""
    labelled = (scene.target.flatten() >= 0).nonzero()[:, 0]
    return labelled[torch.randperm(len(labelled), generator=generator)[:QUERIES]]


def drop_a_sensor(atoms: AtomSet, generator: torch.Generator) -> AtomSet:
    """Now and then without Sentinel-1 or without Sentinel-2: the model learns to do with what there is."""
    chance = float(torch.rand((), generator=generator))
    if chance < ONE_SENSOR_SHARE / 2:
        return atoms.drop(sensor=SENTINEL1.name)
    return atoms.drop(sensor=SENTINEL2.name) if chance < ONE_SENSOR_SHARE else atoms


def select(atoms: AtomSet, sensor: str | None) -> AtomSet:
    """The channels of ``sensor``, or all."""
    return atoms if sensor is None else atoms.select(sensor=sensor)


def kappa(atoms: AtomSet) -> int:
    """Atoms per latent that give the same pixels per latent whichever sensors are there."""
    return PIXELS_PER_LATENT * len(atoms.channels)


def answer(model: AtomizerIO, atoms: AtomSet, positions: Tensor, generator: torch.Generator | None = None) -> Tensor:
    """Logits (M, 2) at ``positions``."""
    return model([atoms], [positions], atoms_per_latent=kappa(atoms), generator=generator)[0]


@torch.no_grad()
def predict(model: AtomizerIO, scene: SyntheticScene, atoms: AtomSet) -> Tensor:
    """Class of every pixel (H, W)."""
    logits = answer(model, atoms, scene.grid.positions())
    return logits.argmax(dim=1).reshape(scene.grid.shape)


def features(scene: SyntheticScene, sensor: str | None) -> Tensor:
    """Channels of every pixel (H·W, C), NaN where absent."""
    return torch.cat([a.observed() for a in select(scene.atoms, sensor)], dim=1)


def regression(training: Sequence[SyntheticScene], sensor: str | None) -> Callable[[SyntheticScene], Tensor]:
    """A logistic regression of single pixels, standardised, with the mean where a channel is missing."""
    x = torch.cat([features(scene, sensor) for scene in training])
    y = torch.cat([scene.target.flatten() for scene in training])
    mean = x.nanmean(dim=0)
    std = (x - mean).square().nanmean(dim=0).sqrt()
    x, y = ((x - mean) / std).nan_to_num(0.0)[y >= 0], y[y >= 0]
    linear = torch.nn.Linear(x.shape[1], 2)
    optimizer = torch.optim.LBFGS(linear.parameters(), max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> Tensor:
        optimizer.zero_grad()
        value = cross_entropy(linear(x), y)
        value.backward()
        return value

    optimizer.step(loss)

    @torch.no_grad()
    def classify(scene: SyntheticScene) -> Tensor:
        standard = ((features(scene, sensor) - mean) / std).nan_to_num(0.0)
        return linear(standard).argmax(dim=1).reshape(scene.grid.shape)

    return classify


def iou(scenes: Sequence[SyntheticScene], predictions: Sequence[Tensor]) -> Tensor:
    """Intersection over union of land and water (2,), all scenes together, ignored pixels left out."""
    target = torch.cat([scene.target.flatten() for scene in scenes])
    predicted = torch.cat([prediction.flatten() for prediction in predictions])
    confusion = torch.bincount(2 * target[target >= 0] + predicted[target >= 0], minlength=4).reshape(2, 2)
    hits = confusion.diagonal()
    return hits / (confusion.sum(dim=0) + confusion.sum(dim=1) - hits)


def print_table(model: AtomizerIO, training: Sequence[SyntheticScene], unseen: Sequence[SyntheticScene]) -> None:
    """Scores on unseen scenes, by what was observed."""
    print("\non unseen scenes      atomizer-io         logistic regression")
    print("                      mIoU   water IoU    mIoU   water IoU")
    for name, sensor in INPUTS.items():
        ours = iou(unseen, [predict(model, scene, select(scene.atoms, sensor)) for scene in unseen])
        baseline = regression(training, sensor)
        theirs = iou(unseen, [baseline(scene) for scene in unseen])
        print(f"{name:20}  {ours.mean():.3f}  {ours[1]:.3f}        {theirs.mean():.3f}  {theirs[1]:.3f}")


def print_picture(target: Tensor, predicted: Tensor) -> None:
    """Target and prediction side by side, thinned to the columns and to half as many rows: characters are tall."""
    step = max(1, target.shape[1] // COLUMNS)
    signs = {0: "·", 1: "█", -1: " "}
    print(f"\n{'target':{COLUMNS}}   prediction        █ water  · land  (blank: not asked)")
    for row in range(0, target.shape[0], 2 * step):
        left, right = ([signs[int(v)] for v in image[row, ::step]] for image in (target, predicted))
        print("".join(left) + "   " + "".join(right))
