"""What the small runs are to show, after the paper's experiments, and whether they show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from atomizer_lab.lidar.tiles import LIDAR_HD, OTHERS
from atomizer_lab.paper.decoding import FOLDED, LITERAL, SCORE, strategy_of
from atomizer_lab.paper.digits import KEPT, NO_ROPE
from atomizer_lab.paper.digits import VIT as VIT_OF_PIXELS
from atomizer_lab.paper.experiments import BANDS, DATES, FULL, GAIN, MULTI_SCENE, WITHOUT
from atomizer_lab.paper.lidar import FOREST
from atomizer_lab.paper.models import ATOMIZER, MODELS, PERCEIVER, UNET
from atomizer_lab.report.figures import means
from atomizer_lab.report.pages import NOTHING, Head, Table, cell
from atomizer_lab.report.results import ResultFile
from atomizer_lab.report.tables import is_error

Means = Mapping[str, Mapping[str, float]]  # by row and column
WITH_ROPE, WITHOUT_ROPE = 97.5, 45.0  # percent of the digits: at least, and at most
WIDE = 10.0  # points: a wide margin
CLOSE = 1.0  # points, or percent of an error: as good as the best
HALF_OF_BANDS = 0.9  # share of a score that is to stay
SPAN = 5.0  # times: FLOPs over which a score stays close
AVERAGE = "MARIDA average"
NETWORKS = (*MODELS, UNET)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result in words, whether it is what was to be shown, and with how many seeds at most."""

    result: str
    holds: bool
    seeds: int = 1


Judge = Callable[[Means], Verdict | None]


@dataclass(frozen=True, slots=True)
class Claim:
    """What an item is to show, and what judges that from its numbers; None where too few of them are there."""

    item: str
    text: str
    judge: Judge

    def judged(self, file: ResultFile) -> Verdict | None:
        """Return the verdict on a result file of the item."""
        verdict = self.judge(means(file))
        return None if verdict is None else replace(verdict, seeds=max(1, len(file.seeds)))


CLAIMS: list[Claim] = []


def claim(item: str, text: str) -> Callable[[Judge], Judge]:
    """Register the function that judges an item."""

    def register(judge: Judge) -> Judge:
        CLAIMS.append(Claim(item, text, judge))
        return judge

    return register


@claim("rope", f"Digits need RoPE: at least {WITH_ROPE:g} % with it, at most {WITHOUT_ROPE:g} % without")
def rope(scores: Means) -> Verdict | None:
    """Judge what the rotary encoding is worth on digits."""
    if not _has(scores, "MNIST", ATOMIZER, NO_ROPE):
        return None
    own, without = scores[ATOMIZER]["MNIST"], scores[NO_ROPE]["MNIST"]
    return Verdict(f"{own:.1f} % with, {without:.1f} % without", own >= WITH_ROPE and without <= WITHOUT_ROPE)


@claim(
    "mnist-sparse",
    f"Ahead of a ViT of single pixels with any share of the background, by {WIDE:g} points with a quarter of it",
)
def sparse(scores: Means) -> Verdict | None:
    """Judge digits with fewer background pixels."""
    if not all(_has(scores, level, ATOMIZER, VIT_OF_PIXELS) for level in KEPT):
        return None
    ahead = {level: scores[ATOMIZER][level] - scores[VIT_OF_PIXELS][level] for level in KEPT}
    return Verdict(f"{_listed(ahead)} points", min(ahead.values()) > 0 and ahead["25%"] >= WIDE)


@claim("table3", "First on average over six sets of channels")
def channels(scores: Means) -> Verdict | None:
    """Judge the average over sets of channels."""
    if not _has(scores, AVERAGE, ATOMIZER) or not _baselines(scores, AVERAGE):
        return None
    own, best = scores[ATOMIZER][AVERAGE], max(_baselines(scores, AVERAGE).items(), key=lambda pair: pair[1])
    return Verdict(f"{own:.1f}, next {best[0]} {best[1]:.1f}", own > best[1])


@claim(
    "table2",
    f"On sets of many scenes within {CLOSE:g} point of the best network on four, first on two, ahead of Perceiver-IO "
    "on all, ahead of a forest with context on four",
)
def single_task(scores: Means) -> Verdict | None:
    """Judge scores of models that are trained on one set each; only columns with Perceiver-IO count."""
    columns = [name for name in MULTI_SCENE if _has(scores, name, ATOMIZER, PERCEIVER)]
    if not columns:
        return None
    gaps = {
        name: min(_ahead(scores, name, row) for row in _baselines(scores, name) if row in NETWORKS) for name in columns
    }
    close, first = sum(gap >= -CLOSE for gap in gaps.values()), sum(gap > 0 for gap in gaps.values())
    ahead, simple = (
        sum(_has(scores, name, row) and _ahead(scores, name, row) > 0 for name in columns)
        for row in (PERCEIVER, FOREST)
    )
    text = f"of {len(columns)} columns close to the best network in {close}, the best in {first}; "
    text += f"ahead of Perceiver-IO in {ahead}, of a forest in {simple}"
    return Verdict(text, close >= 4 and first >= 2 and ahead == len(columns) and simple >= 4)


@claim("compute", f"One checkpoint spans {SPAN:g} times the FLOPs within {CLOSE:g} point")
def compute(scores: Means) -> Verdict | None:
    """Judge over how many FLOPs the score of one checkpoint stays close to its best."""
    rows = [cells for row, cells in scores.items() if strategy_of(row) and cells.keys() >= {SCORE, FOLDED}]
    rows = [cells for cells in rows if cells[FOLDED] > 0]
    if not rows:
        return None
    best = max(cells[SCORE] for cells in rows)
    close = [cells for cells in rows if cells[SCORE] >= best - CLOSE]
    costs = [cells[FOLDED] for cells in close]
    times = max(costs) / min(costs)
    text = f"{min(costs):.3g} to {max(costs):.3g} GFLOP within a point of {best:.1f}: {times:.1f} times"
    if all(LITERAL in cells for cells in close):
        written = [cells[LITERAL] for cells in close]
        text += f" as computed, {max(written) / min(written):.1f} times as the paper writes it"
    return Verdict(text, times >= SPAN)


@claim(
    "temporal", f"Aggregated dates are as good as joint ones, or better, from {DATES[1]} dates on, on two sets of three"
)
def dates(scores: Means) -> Verdict | None:
    """Judge what aggregation of dates gains with many of them, by the mean gain on each set."""
    gains: dict[str, list[float]] = {}
    for column, gain in scores.get(GAIN, {}).items():
        data, _, count = column.rpartition(", T = ")
        if data and int(count) >= DATES[1]:
            gains.setdefault(data, []).append(gain)
    means = {data: sum(own) / len(own) for data, own in gains.items()}
    good = sum(gain >= 0 for gain in means.values())
    return Verdict(f"{_listed(means)} points", 3 * good >= 2 * len(means)) if means else None


@claim("local-observations", "Queries gain from seeing what was observed at their position")
def local_observations(scores: Means) -> Verdict | None:
    """Judge what it is worth that queries see what was observed at their position."""
    columns = [name for name in _columns(scores) if _has(scores, name, FULL, WITHOUT)]
    gains = {name: scores[FULL][name] - scores[WITHOUT][name] for name in columns}
    return Verdict(f"{_listed(gains)} points", min(gains.values()) > 0) if gains else None


@claim(
    "lidar",
    f"On held-out tiles and on two other places ahead of a forest; on the tiles ahead of Perceiver-IO by {WIDE:g} mIoU",
)
def points(scores: Means) -> Verdict | None:
    """Judge classes of LiDAR points beside those of a forest and of Perceiver-IO."""
    columns = (LIDAR_HD.title, *OTHERS)
    if not all(_has(scores, column, ATOMIZER, PERCEIVER, FOREST) for column in columns):
        return None
    ahead = [_ahead(scores, column, FOREST) for column in columns]
    own, perceiver, forest = (scores[row][LIDAR_HD.title] for row in (ATOMIZER, PERCEIVER, FOREST))
    text = (
        f"{own:.1f}, Perceiver-IO {perceiver:.1f}, a forest {forest:.1f}; elsewhere {ahead[1]:+.1f} and {ahead[2]:+.1f}"
    )
    return Verdict(text, min(ahead) > 0 and own - perceiver >= WIDE)


@claim("hyperspectral", f"With every second band gone at test, {HALF_OF_BANDS:.0%} of the score stay")
def bands(scores: Means) -> Verdict | None:
    """Judge what is left of the score with every second band."""
    every, second, _ = BANDS
    if not _has(scores, every, ATOMIZER) or not _has(scores, second, ATOMIZER):
        return None
    whole, half = scores[ATOMIZER][every], scores[ATOMIZER][second]
    return Verdict(f"{whole:.1f} with all, {half:.1f} with every second", half >= HALF_OF_BANDS * whole)


def claims(verdicts: Mapping[str, Verdict | None]) -> Table:
    """Return the table of all claims: what is to be shown, the result by item, and whether that holds."""
    rows = []
    for entry in CLAIMS:
        verdict, cells = verdicts.get(entry.item), [NOTHING, NOTHING, NOTHING]
        if verdict is not None:
            holds = "yes" if verdict.holds else "no"
            cells = [cell(holds, style="best" if verdict.holds else ""), cell(verdict.result), cell(verdict.seeds)]
        rows.append([cell(entry.text), *cells, cell(entry.item)])
    heads = [Head(text) for text in ("to be shown", "holds", "result", "seeds", "item")]
    return Table("claims", heads, rows, "words claims")


def _listed(gains: Mapping[str, float]) -> str:
    return ", ".join(f"{name} {gain:+.1f}" for name, gain in gains.items())


def _has(scores: Means, column: str, *rows: str) -> bool:
    return all(column in scores.get(row, {}) for row in rows)


def _columns(scores: Means) -> list[str]:
    return list(dict.fromkeys(column for columns in scores.values() for column in columns))


def _baselines(scores: Means, column: str) -> dict[str, float]:
    return {row: cells[column] for row, cells in scores.items() if row != ATOMIZER and column in cells}


def _ahead(scores: Means, column: str, baseline: str) -> float:
    """Return by how much the own number is better than that of a baseline: in points, or in percent of its error."""
    own, simple = scores[ATOMIZER][column], scores[baseline][column]
    return 100 * (simple - own) / simple if is_error(column) else own - simple
