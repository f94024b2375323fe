"""What the small runs are to show, after the paper's experiments, and whether they show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

from atomizer_lab.lidar.lidar import PLAIN
from atomizer_lab.pages.tables import NOTHING, Cell, Head, table
from atomizer_lab.paper.digits import KEPT, NO_ROPE
from atomizer_lab.paper.digits import VIT as VIT_OF_PIXELS
from atomizer_lab.paper.hyperspectral import TITLES as BANDS
from atomizer_lab.paper.lidar import FOREST
from atomizer_lab.paper.local_observations import FULL, WITHOUT
from atomizer_lab.paper.models import ATOMIZER, PERCEIVER
from atomizer_lab.paper.read_outs import FOLDED, LITERAL, SCORE, strategy_of
from atomizer_lab.paper.temporal import GAIN, SMALL_DATES
from atomizer_lab.report.comparison import LOWER
from atomizer_lab.report.figures import means
from atomizer_lab.report.results import ResultFile

Means = Mapping[str, Mapping[str, float]]  # by row and column
WITH_ROPE, WITHOUT_ROPE = 97.5, 45.0  # percent of the digits: at least, and at most
WIDE = 10.0  # points: a wide margin
CLOSE = 1.0  # points, or units of an error: as good as the best
HALF_OF_BANDS = 0.9  # share of a score that is to stay
SPAN = 5.0  # times: operations over which a score stays close
AVERAGE = "S1F average"


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found, in words, whether it is what was to be shown, and with how many seeds at most."""

    found: str
    holds: bool
    seeds: int = 1


@dataclass(frozen=True, slots=True)
class Claim:
    """What an item is to show, and what judges that from its numbers; None where too few of them are there."""

    item: str
    says: str
    judge: Callable[[Means], Verdict | None]

    def judged(self, file: ResultFile) -> Verdict | None:
        """Return the verdict on a result file of the item."""
        verdict = self.judge(means(file))
        return None if verdict is None else replace(verdict, seeds=max(1, len(file.seeds)))


def rope(scores: Means) -> Verdict | None:
    """Judge what the rotary encoding is worth on digits."""
    if not _has(scores, "MNIST", ATOMIZER, NO_ROPE):
        return None
    own, without = scores[ATOMIZER]["MNIST"], scores[NO_ROPE]["MNIST"]
    return Verdict(f"{own:.1f} % with, {without:.1f} % without", own >= WITH_ROPE and without <= WITHOUT_ROPE)


def sparse(scores: Means) -> Verdict | None:
    """Judge digits with fewer background pixels."""
    if not all(_has(scores, level, ATOMIZER, VIT_OF_PIXELS) for level in KEPT):
        return None
    ahead = {level: scores[ATOMIZER][level] - scores[VIT_OF_PIXELS][level] for level in KEPT}
    told = ", ".join(f"{level} {points:+.1f}" for level, points in ahead.items())
    return Verdict(f"{told} points", min(ahead.values()) > 0 and ahead["25%"] >= WIDE)


def channels(scores: Means) -> Verdict | None:
    """Judge the average over sets of channels."""
    if not _has(scores, AVERAGE, ATOMIZER) or not _rivals(scores, AVERAGE):
        return None
    own, best = scores[ATOMIZER][AVERAGE], max(_rivals(scores, AVERAGE).items(), key=lambda pair: pair[1])
    return Verdict(f"{own:.1f}, next {best[0]} {best[1]:.1f}", own > best[1])


def single_task(scores: Means) -> Verdict | None:
    """Judge scores of models that are trained on one dataset each; only columns with Perceiver-IO count."""
    columns = [name for name in _columns(scores) if _has(scores, name, ATOMIZER, PERCEIVER)]
    if not columns:
        return None
    gaps = {name: min(_ahead(scores, name, row) for row in _rivals(scores, name)) for name in columns}
    close = sum(gap >= -CLOSE for gap in gaps.values())
    ahead = sum(_ahead(scores, name, PERCEIVER) > 0 for name in columns)
    told = f"close to the best in {close} of {len(columns)} columns, the best in {sum(g > 0 for g in gaps.values())}"
    return Verdict(f"{told}; ahead of Perceiver-IO in {ahead}", close == ahead == len(columns))


def compute(scores: Means) -> Verdict | None:
    """Judge over how many operations the score of one checkpoint stays close to its best."""
    rows = [cells for row, cells in scores.items() if strategy_of(row) and cells.keys() >= {SCORE, FOLDED}]
    rows = [cells for cells in rows if cells[FOLDED] > 0]
    if not rows:
        return None
    best = max(cells[SCORE] for cells in rows)
    close = [cells for cells in rows if cells[SCORE] >= best - CLOSE]
    costs = [cells[FOLDED] for cells in close]
    times = max(costs) / min(costs)
    told = f"{min(costs):.3g} to {max(costs):.3g} GFLOP within a point of {best:.1f}: {times:.1f} times"
    if all(LITERAL in cells for cells in close):
        written = [cells[LITERAL] for cells in close]
        told += f" as computed, {max(written) / min(written):.1f} times as the paper writes it"
    return Verdict(told, times >= SPAN)


def dates(scores: Means) -> Verdict | None:
    """Judge whether what aggregation of dates gains grows with their number."""
    gains = scores.get(GAIN, {})
    found = {count: gains[f"T = {count}"] for count in SMALL_DATES if f"T = {count}" in gains}
    if len(found) < len(SMALL_DATES):
        return None
    told = ", ".join(f"T = {count} {gain:+.1f}" for count, gain in found.items())
    grows = all(later > before for before, later in pairwise(found.values()))
    return Verdict(f"{told} points", grows and found[max(found)] > CLOSE)


def local_observations(scores: Means) -> Verdict | None:
    """Judge what it is worth that queries see what was observed at their place."""
    columns = [name for name in _columns(scores) if _has(scores, name, FULL, WITHOUT)]
    gains = {name: scores[FULL][name] - scores[WITHOUT][name] for name in columns}
    told = ", ".join(f"{name} {gain:+.1f}" for name, gain in gains.items())
    return Verdict(f"{told} points", min(gains.values()) > 0) if gains else None


def points(scores: Means) -> Verdict | None:
    """Judge classes of LiDAR points beside those of Perceiver-IO, with the best of its learning rates."""
    rivals = [cells[PLAIN] for row, cells in scores.items() if row.startswith(PERCEIVER) and PLAIN in cells]
    if not rivals or not _has(scores, PLAIN, ATOMIZER):
        return None
    own, told = scores[ATOMIZER][PLAIN], f"Perceiver-IO {max(rivals):.1f}"
    if _has(scores, PLAIN, FOREST):
        told += f", a forest {scores[FOREST][PLAIN]:.1f}"
    return Verdict(f"{own:.1f}, {told}", own - max(rivals) >= WIDE)


def bands(scores: Means) -> Verdict | None:
    """Judge what is left of the score with every second band."""
    every, second, _ = BANDS
    if not _has(scores, every, ATOMIZER) or not _has(scores, second, ATOMIZER):
        return None
    whole, half = scores[ATOMIZER][every], scores[ATOMIZER][second]
    return Verdict(f"{whole:.1f} with all, {half:.1f} with every second", half >= HALF_OF_BANDS * whole)


CLAIMS = (
    Claim("rope", f"Digits need RoPE: at least {WITH_ROPE:g} % with it, at most {WITHOUT_ROPE:g} % without", rope),
    Claim(
        "mnist-sparse",
        f"Ahead of a ViT of single pixels with any share of the background, by {WIDE:g} points with a quarter of it",
        sparse,
    ),
    Claim("table3", "First on average over six sets of channels", channels),
    Claim("table2", f"Within {CLOSE:g} point of the best on each task, ahead of Perceiver-IO", single_task),
    Claim("compute", f"One checkpoint spans {SPAN:g} times the operations within {CLOSE:g} point", compute),
    Claim(
        "temporal",
        f"What aggregation of dates gains grows with their number, to more than {CLOSE:g} point",
        dates,
    ),
    Claim("local-observations", "Queries gain from seeing what was observed at their place", local_observations),
    Claim("lidar", f"Ahead of Perceiver-IO on points by {WIDE:g} mIoU", points),
    Claim("hyperspectral", f"With every second band gone at test, {HALF_OF_BANDS:.0%} of the score stay", bands),
)


def claims(verdicts: Mapping[str, Verdict | None]) -> str:
    """Return the table of all claims: what is to be shown, what was found by item, and whether that holds."""
    rows = []
    for claim in CLAIMS:
        verdict, cells = verdicts.get(claim.item), [NOTHING, NOTHING, NOTHING]
        if verdict is not None:
            answer = "yes" if verdict.holds else "no"
            cells = [
                Cell(answer, answer, style="best" if verdict.holds else ""),
                Cell(verdict.found, verdict.found),
                Cell(str(verdict.seeds), verdict.seeds),
            ]
        rows.append([Cell(claim.says, claim.says), *cells, Cell(claim.item, claim.item)])
    heads = [Head(text) for text in ("to be shown", "holds", "found", "seeds", "item")]
    return f"""<section><span class="tag">after the paper</span><h2>Does it hold?</h2>
<p>What these runs were to show, as the paper's experiments do on whole datasets. What differs, and why as far as it is
known, is in docs/lab/results.md.</p>{table(heads, rows, style="words claims", name="claims")}</section>"""


def _has(scores: Means, column: str, *rows: str) -> bool:
    return all(column in scores.get(row, {}) for row in rows)


def _columns(scores: Means) -> list[str]:
    return list(dict.fromkeys(column for columns in scores.values() for column in columns))


def _rivals(scores: Means, column: str) -> dict[str, float]:
    return {row: cells[column] for row, cells in scores.items() if row != ATOMIZER and column in cells}


def _ahead(scores: Means, column: str, rival: str) -> float:
    """Return by how much the own number is better than that of a rival; errors are better when they are lower."""
    gap = scores[ATOMIZER][column] - scores[rival][column]
    return -gap if LOWER in column else gap
