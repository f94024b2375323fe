"""What is looked at of trained models, beside their scores: confusion matrices, predictions, curves, attention.

Everything is made from finished trainings; nothing is trained for it. ``results/ITEM-SCALE/looks.json`` holds the
numbers and names the figures. Figures of synthetic data and of MNIST lie beside it; all others lie in the folder of
runs, as they show data that are not ours to publish.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomizer_io.datasets.dataset import Dataset
from atomizer_io.errors import AtomizerError
from atomizer_io.io.tables import evenly
from atomizer_io.machine import machine
from atomizer_io.models.atomizer.atomizer import AtomizerIO
from atomizer_io.models.registry import load_model
from atomizer_io.texts import parse_json, read_text, write_text
from atomizer_io.training.metrics import main_score
from atomizer_io.training.results import read_curve
from atomizer_io.training.splits import open_split
from atomizer_lab.lidar import lidar as tiles
from atomizer_lab.lidar.tiles import SETS
from atomizer_lab.matrix import Task, present
from atomizer_lab.paper import digits, lidar, networks, trainings
from atomizer_lab.paper.album import Album, about_data, inner_life, predict, prediction
from atomizer_lab.paper.item import PAPER, Item, Where
from atomizer_lab.paper.trainings import Trained

NAME = "looks.json"
OURS = ("synthetic", "mnist")  # data of which figures may be published
WITH_INNER_LIFE = "table2"  # the item that shows cells, quadtree and attention
LIMIT = 20  # samples of a dataset of the paper that are looked at
POINTS = 60  # of a curve
IMAGES = (0, 1, 2, 4)  # digits that are shown


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """A finished training: the run of an item, its row, its columns with the channels of each, and what it tests on.

    ``key`` names the data: subjects with the same key see the same samples.
    """

    run: str
    row: str
    key: str
    done: Trained
    dataset: Dataset
    columns: Mapping[str, str] = field(default_factory=dict)


def folder_of(output: Path) -> Path:
    """Return the folder of what was looked at, beside a result file."""
    return output.with_suffix("")


def write_looks(item: Item, scale: str, where: Where, output: Path, seeds: Sequence[int] | None = None) -> list[str]:
    """Look at the finished trainings of an item, those of the first seed, and write what is seen; return what was not.

    What was looked at before is kept, unless it was another training.
    """
    tasks, folder = item.runs(scale, where, seeds), folder_of(output)
    first = min((seed_of(task) for task in tasks), default=0)
    chosen = [task for task in tasks if seed_of(task) == first]
    folders = {"results": folder, "work": where.work / "looks" / folder.name}
    looks, missing = {"data": {}, "runs": {}, **stored(folder / NAME)}, list[str]()
    looks["data"] = {key: data for key, data in looks["data"].items() if is_drawn(data, folders)}
    drawn = [task for task in chosen if task.run is digits.train_and_test]
    try:
        looks["digits"] = digits_seen(drawn, Album(folder, kept=True)) or looks.get("digits", [])
    except (AtomizerError, OSError) as error:
        missing.append(f"digits were not drawn: {error}")
    for task in chosen:
        try:
            for subject in subjects(task):
                known = looks["runs"].get(subject.run, {})
                same = known.get("training") == training_of(subject) and subject.key in looks["data"]
                if not same or not is_drawn(known, folders):
                    album = album_of(subject, folders)
                    look_at(subject, album, looks, inner=item.name == WITH_INNER_LIFE, limited=scale == PAPER)
                    save(item, scale, folder, looks)
        except (AtomizerError, OSError) as error:
            missing.append(f"{task.name} was not looked at: {error}")
    save(item, scale, folder, looks)
    return missing


def save(item: Item, scale: str, folder: Path, looks: Mapping[str, Any]) -> None:
    """Write what was looked at so far, if there is anything."""
    if looks["runs"] or looks.get("digits"):
        about = {"command": item.command(scale), "machine": machine()}
        folder.mkdir(parents=True, exist_ok=True)
        write_text(folder / NAME, json.dumps({**about, **looks}, indent=1) + "\n")


def stored(path: Path) -> dict[str, Any]:
    """Return what was looked at before."""
    if not path.exists():
        return {}
    try:
        saved = present(parse_json(read_text(path)))
        return {key: saved[key] for key in ("data", "runs", "digits") if key in saved}
    except (OSError, ValueError, TypeError) as error:
        raise AtomizerError(f"{path} cannot be read ({error}): remove it, and run the command again") from error


def seed_of(task: Task) -> int:
    """Return the seed of a run; runs without one are of every seed."""
    return int(task.arguments.get("document", task.arguments).get("seed", 0))


def subjects(task: Task) -> Iterator[Subject]:
    """Yield the finished training of a run, if it is one that predicts for samples and if it is there."""
    arguments, folders = task.arguments, dict[str, Any](task.folders)
    if task.run in (networks.train_and_score, networks.by_class):
        done = networks.find(arguments["key"], arguments["document"], **folders, rates=arguments.get("rates", ()))
        if done is not None:
            key = arguments["key"] or arguments["document"]["data"]["name"]
            dataset = open_split(done.run, "test").for_evaluation()
            yield Subject(task.name, arguments["row"], key, done, dataset, arguments["columns"])
    elif task.run is lidar.network:
        of_network = {name: arguments[name] for name in ("key", "fold", "changes", "steps", "seed")}
        pair = tiles.find_network(**of_network, **folders)
        if pair is not None:
            key = arguments["key"]
            yield Subject(task.name, arguments["row"], f"{key}-{arguments['fold']}", *pair, {SETS[key].title: "all"})


def training_of(subject: Subject) -> str:
    """Return the name of the folder of a training, which differs by settings."""
    return subject.done.model.parent.name


def album_of(subject: Subject, folders: Mapping[str, Path]) -> Album:
    """Return where the figures of a subject go: to the results, or to the runs."""
    kept = subject.done.run.data.name in OURS
    return Album(folders["results" if kept else "work"], kept)


def is_drawn(part: Any, folders: Mapping[str, Path]) -> bool:
    """Whether all figures that are named somewhere in ``part`` are there."""
    if isinstance(part, Mapping):
        there = "file" not in part or (folders[part["in"]] / part["file"]).exists()
        return there and all(is_drawn(value, folders) for value in part.values())
    return not isinstance(part, list) or all(is_drawn(value, folders) for value in part)


def look_at(subject: Subject, album: Album, looks: dict[str, Any], *, inner: bool, limited: bool) -> None:
    """Look at one training, and add it to ``looks``, with its data where they are not there yet."""
    model, info = load_model(subject.done.model), subject.dataset.info
    own: dict[str, Any] = {"training": training_of(subject), "row": subject.row, "data": subject.key, "columns": {}}
    for title, channels in subject.columns.items():
        predictions = predict(model, subject.dataset, channels, LIMIT if limited else None)
        if predictions is None:
            continue
        name = f"{subject.key}-{subject.row}-{title}"
        own["columns"][title] = {
            "samples": predictions.samples,
            **({} if predictions.confusion is None else {"confusion": predictions.confusion}),
            **prediction(predictions, info, album, name, model),
        }
        if channels == "all" and subject.key not in looks["data"]:
            looks["data"][subject.key] = about_data(predictions.sample, info, album, subject.key)
        if channels == "all" and inner and isinstance(model, AtomizerIO):
            own["inner"] = inner_life(model, predictions.sample, info, album, name)
    score = main_score(model.task_spec)
    points = read_curve(subject.done.model.parent / "history.jsonl", score)
    if points:
        own["curve"] = {"score": score, "points": evenly(points, POINTS)}
    looks["runs"][subject.run] = own


def digits_seen(tasks: Sequence[Task], album: Album) -> list[dict[str, Any]]:
    """Draw some test digits with each share of their dark pixels, and return them with what networks predict.

    Networks that are not trained are left out; without any there is nothing.
    """
    rows: list[dict[str, Any]] = []
    for task in tasks:
        arguments, folders = task.arguments, task.folders
        label, root = digits.label(arguments["model"]), folders["root"]
        done = trainings.find(arguments["document"], label, root, folders["work"], folders["results"])
        if done is None:
            continue
        model, dataset = load_model(done.model), digits.images_of(arguments["document"], root)
        for index, number in enumerate(IMAGES):
            samples = [digits.sparse(dataset, number, share) for share in arguments["shares"].values()]
            if len(rows) <= index:
                figures = {
                    title: {**album.add(f"digit-{number}-{title}", digits.figure(sample)), "answers": {}}  # old name
                    for title, sample in zip(arguments["shares"], samples, strict=True)
                }
                rows.append({"truth": int(samples[0].target), "columns": figures})  # old name
            taken = digits.predictions(model, samples).tolist()
            for title, digit in zip(arguments["shares"], taken, strict=True):
                rows[index]["columns"][title]["answers"][arguments["model"]] = digit  # old name
    return rows
