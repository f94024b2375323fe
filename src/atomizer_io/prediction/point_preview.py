"""The preview of a classified point cloud: from above and as a cross-section, from a bounded number of its points.

Shapes: P points that are drawn.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.data.task_spec import IGNORE, OTHER_CODES
from atomizer_io.figures import point_clouds
from atomizer_io.figures.class_colours import class_colours
from atomizer_io.figures.point_clouds import POINTS, PointLayer, PointView, Strip
from atomizer_io.io.las_classes import CODES
from atomizer_io.io.point_clouds import PointCloudHeader, open_las
from atomizer_io.io.point_store import CHUNK
from atomizer_io.prediction.las_classes import ENTROPY, PREDICTED

Columns = dict[str, NDArray[Any]]

NAME = "preview.png"  # in the folder of parts
UNSORTED = (0, 1)  # codes of points that nobody has classified
DOTS_PER_INCH = 150


def files_of(output: Path, preview: bool) -> dict[str, Path]:
    """Return the file of the ``preview``, if there is to be one: ``classified.png`` beside ``classified.laz``."""
    if not preview:
        return {}
    import matplotlib  # noqa: F401  # if it is missing, better to know it before all the work

    return {NAME: output.with_suffix(".png")}


def draw(
    written: Path,
    preview: Path,
    header: PointCloudHeader,
    codes: Mapping[str, int],
    label_codes: Mapping[int, int] | None = None,
    added: Sequence[str] = (PREDICTED, ENTROPY),
) -> None:
    """Draw the classified points ``written`` into ``preview``; ``codes`` are the LAS codes of the classes.

    Points are coloured by prediction, by entropy and by the class that the file had, with what differs, as far as the
    file has them. ``label_codes`` are the codes that classes had in training (see
    :class:`~atomizer_io.data.task_spec.TaskSpec`), ``added`` the dimensions that this prediction added:
    where it replaced the classes of the file, those of an earlier prediction may still be there. The share of points
    that differ is that of all points.
    """
    old = {PREDICTED, ENTROPY} - {*added}
    seen = {name: column for name, column in thinned(written, header).items() if name not in old}
    strip = Strip.through(_xyz(seen))
    cut = within_strip(written, header, strip)
    points = {name: np.concatenate([seen[name], cut[name]]) for name in seen}
    first = len(seen["x"])
    view = PointView(_xyz(points), np.arange(first), point_clouds.subsample(np.arange(first, len(points["x"]))), strip)
    classes = classes_of_codes(codes, label_codes or {})
    share = different(written, header, codes, classes) if PREDICTED in seen else None
    layers = _layers(points, codes, classes, share)
    figure = point_clouds.new_figure(*point_clouds.size_in(len(layers)))
    point_clouds.draw(figure, view, layers)
    figure.savefig(preview, dpi=DOTS_PER_INCH, format="png")


def _chunks(written: Path, header: PointCloudHeader) -> Iterator[Columns]:
    """Yield what is drawn of the points, in metres, some points at a time."""
    units = {"x": header.unit_m, "y": header.unit_m, "z": header.unit_z_m}
    with open_las(written) as reader:
        there = {*reader.header.point_format.dimension_names}
        names = [name for name in ("classification", PREDICTED, ENTROPY) if name in there]
        for points in reader.chunk_iterator(CHUNK):
            columns = {axis: np.asarray(points[axis], np.float64) * unit for axis, unit in units.items()}
            yield columns | {name: np.array(points[name]) for name in names}


def thinned(written: Path, header: PointCloudHeader) -> Columns:
    """Return every n-th point of the file, so that they are few enough."""
    step, done, chunks = -(-header.points // POINTS), 0, list[Columns]()
    for columns in _chunks(written, header):
        chunks.append({name: column[-done % step :: step] for name, column in columns.items()})
        done += len(columns["x"])
    return _joined(chunks)


def within_strip(written: Path, header: PointCloudHeader, strip: Strip) -> Columns:
    """Return the points inside a strip; of very many, some of each piece of the file."""
    chunks, most = list[Columns](), 2 * POINTS
    for columns in _chunks(written, header):
        inside = np.flatnonzero(strip.inside(_xyz(columns)))
        chunks.append({name: column[inside] for name, column in columns.items()})
        if sum(len(part["x"]) for part in chunks) > most:
            chunks = [{name: column[::2] for name, column in part.items()} for part in chunks]
    return _joined(chunks)


def _joined(parts: Sequence[Columns]) -> Columns:
    return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}


def _xyz(columns: Columns) -> NDArray[np.float64]:
    return np.stack([columns[axis] for axis in "xyz"], axis=1)


def classes_of_codes(codes: Mapping[str, int], label_codes: Mapping[int, int]) -> NDArray[np.int64]:
    """Return the class (256,) that each LAS code stood for in training, −1 where it had none.

    A model that does not know what its labels were is taken to have learned the codes that it writes.
    """
    table = np.full(256, label_codes.get(OTHER_CODES, IGNORE))
    known = label_codes or {code: number for number, code in enumerate(codes.values())}
    for code, number in known.items():
        if 0 <= code < len(table):
            table[code] = number
    return table


def different(
    written: Path, header: PointCloudHeader, codes: Mapping[str, int], classes: NDArray[np.int64]
) -> float | None:
    """Return the share of all points with a class in the file that is not the predicted one; None without any."""
    wrong, known, sorted_before = 0, 0, False
    for columns in _chunks(written, header):
        before = columns["classification"]
        sorted_before |= not np.isin(before, UNSORTED).all()
        label = classes[before]
        known += int((label >= 0).sum())
        wrong += int(((label >= 0) & (label != _numbers(columns[PREDICTED], list(codes.values())))).sum())
    return wrong / max(1, known) if sorted_before else None


def _layers(
    points: Columns, codes: Mapping[str, int], classes: NDArray[np.int64], share: float | None
) -> list[PointLayer]:
    """Return the layers of a preview: prediction, entropy, the class in the file, and where that differs.

    The last two are there if there is a ``share`` of points that differ.
    """
    before = points["classification"]
    predicted = _numbers(points.get(PREDICTED, before), list(codes.values()))
    layers = [point_clouds.by_class("prediction", predicted, list(codes))]
    if ENTROPY in points:
        layers.append(point_clouds.by_value("entropy", points[ENTROPY], "nats"))
    if share is None:
        return layers
    # classes are called as by the model, else as by the standard, else by number; so are they coloured
    own, present = {code: name for name, code in codes.items()}, np.unique(before).tolist()
    names = [own.get(code) or (CODES[code][0] if code in CODES else f"code {code}") for code in present]
    colours = dict(zip(codes, class_colours(list(codes)), strict=True))
    others = [name for name in names if name not in colours]
    colours |= zip(others, class_colours(others, list(colours.values())), strict=True)
    shown = _numbers(before, present)
    layers.append(point_clouds.by_class("class in the file", shown, names, [colours[name] for name in names]))
    label, words = classes[before], ("same", "different")
    layers.append(point_clouds.by_error(predicted != label, label >= 0, "difference from the file", words, share))
    return layers


def _numbers(las_codes: NDArray[Any], codes: Sequence[int]) -> NDArray[np.int64]:
    """Return the indices of LAS codes (P,) in a list of codes, −1 for those that are not in it."""
    table = np.full(256, -1)
    table[list(codes)] = np.arange(len(codes))
    return table[las_codes]
