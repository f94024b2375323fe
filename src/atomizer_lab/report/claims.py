"""What the small runs are to show, after the paper's experiments, and whether they show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from atomizer_lab.lidar.lidar import PLAIN
from atomizer_lab.paper.decoding import FOLDED, LITERAL, SCORE, strategy_of
from atomizer_lab.paper.digits import KEPT, NO_ROPE
from atomizer_lab.paper.digits import VIT as VIT_OF_PIXELS
from atomizer_lab.paper.experiments import BANDS, FULL, GAIN, SMALL_DATES, WITHOUT
from atomizer_lab.paper.lidar import FOREST
from atomizer_lab.paper.models import ATOMIZER, PERCEIVER
from atomizer_lab.report.figures import means
from atomizer_lab.report.pages import NOTHING, Head, Table, cell
from atomizer_lab.report.results import ResultFile
from atomizer_lab.report.tables import LOWER

Means = Mapping[str, Mapping[str, float]]  # by row and column
WITH_ROPE, WITHOUT_ROPE = 97.5, 45.0  # percent of the digits: at least, and at most
WIDE = 10.0  # points: a wide margin
CLOSE = 1.0  # points, or units of an error: as good as the best
HALF_OF_BANDS = 0.9  # share of a score that is to stay
SPAN = 5.0  # times: FLOPs over which a score stays close
AVERAGE = "S1F average"


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


@claim("table2", f"Within {CLOSE:g} point of the best on each task, ahead of Perceiver-IO")
def single_task(scores: Means) -> Verdict | None:
    """Judge scores of models that are trained on one dataset each; only columns with Perceiver-IO count."""
    columns = [name for name in _columns(scores) if _has(scores, name, ATOMIZER, PERCEIVER)]
    if not columns:
        return None
    gaps = {name: min(_ahead(scores, name, row) for row in _baselines(scores, name)) for name in columns}
    close = sum(gap >= -CLOSE for gap in gaps.values())
    ahead = sum(_ahead(scores, name, PERCEIVER) > 0 for name in columns)
    text = f"close to the best in {close} of {len(columns)} columns, the best in {sum(g > 0 for g in gaps.values())}"
    return Verdict(f"{text}; ahead of Perceiver-IO in {ahead}", close == ahead == len(columns))


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


@claim("temporal", f"The gain by aggregation of dates grows with their number, to more than {CLOSE:g} point")
def dates(scores: Means) -> Verdict | None:
    """Judge whether what aggregation of dates gains grows with their number."""
    cells = scores.get(GAIN, {})
    gains = {f"T = {count}": cells[f"T = {count}"] for count in SMALL_DATES if f"T = {count}" in cells}
    if len(gains) < len(SMALL_DATES):
        return None
    grows = all(later > before for before, later in pairwise(gains.values()))
    return Verdict(f"{_listed(gains)} points", grows and gains[f"T = {max(SMALL_DATES)}"] > CLOSE)


@claim("local-observations", "Queries gain from seeing what was observed at their position")
def local_observations(scores: Means) -> Verdict | None:
    """Judge what it is worth that queries see what was observed at their position."""
    columns = [name for name in _columns(scores) if _has(scores, name, FULL, WITHOUT)]
    gains = {name: scores[FULL][name] - scores[WITHOUT][name] for name in columns}
    return Verdict(f"{_listed(gains)} points", min(gains.values()) > 0) if gains else None


@claim("lidar", f"Ahead of Perceiver-IO on points by {WIDE:g} mIoU")
def points(scores: Means) -> Verdict | None:
    """Judge classes of LiDAR points beside those of Perceiver-IO, with the best of its learning rates."""
    others = [cells[PLAIN] for row, cells in scores.items() if row.startswith(PERCEIVER) and PLAIN in cells]
    if not others or not _has(scores, PLAIN, ATOMIZER):
        return None
    own, text = scores[ATOMIZER][PLAIN], f"Perceiver-IO {max(others):.1f}"
    if _has(scores, PLAIN, FOREST):
        text += f", a forest {scores[FOREST][PLAIN]:.1f}"
    return Verdict(f"{own:.1f}, {text}", own - max(others) >= WIDE)


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
    """Return by how much the own number is better than that of a baseline; errors are better when they are lower."""
    gap = scores[ATOMIZER][column] - scores[baseline][column]
    return -gap if LOWER in column else gap
