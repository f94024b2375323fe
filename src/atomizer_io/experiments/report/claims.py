"""What the paper's experiments are to show, and whether the results at a scale show it."""

from __future__ import annotations

import html
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from atomizer_io.experiments.paper.digits import KEPT, NO_ROPE
from atomizer_io.experiments.paper.digits import VIT as VIT_OF_PIXELS
from atomizer_io.experiments.paper.hyperspectral import TITLES as BANDS
from atomizer_io.experiments.paper.item import SMALL
from atomizer_io.experiments.paper.local_observations import FULL, WITHOUT
from atomizer_io.experiments.paper.models import ATOMIZER, PERCEIVER
from atomizer_io.experiments.paper.read_outs import FOLDED, SCORE, strategy_of
from atomizer_io.experiments.paper.temporal import AGGREGATED, JOINT
from atomizer_io.experiments.report.comparison import LOWER
from atomizer_io.experiments.report.figures import means
from atomizer_io.experiments.report.results import Results
from atomizer_io.pages.tables import NOTHING, Cell, Head, table

Means = Mapping[str, Mapping[str, float]]  # by row and column
WIDE = 10.0  # points: a wide margin
CLOSE = 1.0  # points, or units of an error: as good as the best
GRACEFUL = 0.1  # share of a score that may be lost with half of the bands
SPAN = 5.0  # times: operations over which a score stays close


@dataclass(frozen=True, slots=True)
class Verdict:
    """What was found, in words, and whether it is what was to be shown."""

    found: str
    holds: bool


@dataclass(frozen=True, slots=True)
class Claim:
    """What an item is to show, and what judges that from its numbers; None where too few of them are there."""

    item: str
    says: str
    judge: Callable[[Means], Verdict | None]


def rope(scores: Means) -> Verdict | None:
    """Judge what the rotary encoding is worth on digits."""
    if not _has(scores, "MNIST", ATOMIZER, NO_ROPE):
        return None
    own, without = scores[ATOMIZER]["MNIST"], scores[NO_ROPE]["MNIST"]
    return Verdict(f"{own:.1f} % with, {without:.1f} % without", own >= 97.5 and without <= 45)


def sparse(scores: Means) -> Verdict | None:
    """Judge digits with fewer background pixels."""
    if not all(_has(scores, level, ATOMIZER, VIT_OF_PIXELS) for level in KEPT):
        return None
    ahead = {level: scores[ATOMIZER][level] - scores[VIT_OF_PIXELS][level] for level in KEPT}
    told = ", ".join(f"{level} {points:+.1f}" for level, points in ahead.items())
    return Verdict(f"{told} points", min(ahead.values()) > 0 and ahead["25%"] >= WIDE)


def channels(scores: Means) -> Verdict | None:
    """Judge averages over sets of channels."""
    columns = [name for name in _columns(scores) if name.endswith("average") and len(_rivals(scores, name)) > 1]
    verdicts = [_beside_the_best(scores, column) for column in columns]
    return Verdict("; ".join(told for told, _ in verdicts), all(gap > 0 for _, gap in verdicts)) if verdicts else None


def single_task(scores: Means) -> Verdict | None:
    """Judge scores of models that are trained on one dataset each."""
    columns = [name for name in _columns(scores) if _has(scores, name, ATOMIZER) and _rivals(scores, name)]
    if not columns:
        return None
    close = [name for name in columns if _beside_the_best(scores, name)[1] >= -CLOSE]
    rivals = [name for name in columns if _has(scores, name, PERCEIVER)]
    ahead = [name for name in rivals if _ahead(name, scores[ATOMIZER][name], scores[PERCEIVER][name]) > 0]
    first = sum(_beside_the_best(scores, name)[1] > 0 for name in columns)
    told = f"close to the best in {len(close)} of {len(columns)} columns, the best in {first}; ahead of Perceiver-IO "
    return Verdict(f"{told}in {len(ahead)} of {len(rivals)}", len(close) == len(columns) and len(ahead) == len(rivals))


def compute(scores: Means) -> Verdict | None:
    """Judge over how many operations the score of one checkpoint stays close to its best, on each dataset."""
    by_data: dict[str, list[Mapping[str, float]]] = {}
    for row, cells in scores.items():
        if strategy_of(row):
            by_data.setdefault(row.rpartition(": ")[0], []).append(cells)
    spans = {data: _span(rows) for data, rows in by_data.items()}
    told = "; ".join(f"{data}: {told}" if data else told for data, (told, _) in spans.items())
    return Verdict(told, all(times >= SPAN for _, times in spans.values())) if spans else None


def _span(rows: Sequence[Mapping[str, float]]) -> tuple[str, float]:
    """Return in words, and as a ratio, what ways to read out cost that come close to the best."""
    best = max(cells[SCORE] for cells in rows)
    costs = [cells[FOLDED] for cells in rows if cells[SCORE] >= best - CLOSE]
    times = max(costs) / min(costs)
    return f"{min(costs):.3g} to {max(costs):.3g} GFLOP within a point of {best:.1f}: {times:.0f} times", times


def dates(scores: Means) -> Verdict | None:
    """Judge whether what aggregation of dates gains grows with their number."""
    counts = sorted(int(name.removeprefix("T = ")) for name in _columns(scores) if name.startswith("T = "))
    counts = [count for count in counts if _has(scores, f"T = {count}", JOINT, AGGREGATED)]
    if len(counts) < 2:
        return None
    gains = [scores[AGGREGATED][f"T = {count}"] - scores[JOINT][f"T = {count}"] for count in counts]
    told = ", ".join(f"T = {count} {gain:+.1f}" for count, gain in zip(counts, gains, strict=True))
    grows = all(later > before for before, later in pairwise(gains)) and gains[-1] > CLOSE
    return Verdict(f"{told} points", grows)


def local_observations(scores: Means) -> Verdict | None:
    """Judge what it is worth that queries see what was observed at their place."""
    columns = [name for name in _columns(scores) if _has(scores, name, FULL, WITHOUT)]
    gains = {name: scores[FULL][name] - scores[WITHOUT][name] for name in columns}
    told = ", ".join(f"{name} {gain:+.1f}" for name, gain in gains.items())
    return Verdict(f"{told} points", min(gains.values()) > 0) if gains else None


def points(scores: Means) -> Verdict | None:
    """Judge classes of LiDAR points beside those of Perceiver-IO, with the best of its learning rates."""
    column = next(iter(_columns(scores)), "")
    rivals = [row for row in scores if row.startswith(PERCEIVER) and column in scores[row]]
    if not rivals or not _has(scores, column, ATOMIZER):
        return None
    own, other = scores[ATOMIZER][column], max(scores[row][column] for row in rivals)
    return Verdict(f"{own:.1f}, Perceiver-IO {other:.1f}", own - other >= WIDE)


def bands(scores: Means) -> Verdict | None:
    """Judge what is left of the score with every second band."""
    every, second, _ = BANDS
    if not _has(scores, every, ATOMIZER) or not _has(scores, second, ATOMIZER):
        return None
    whole, half = scores[ATOMIZER][every], scores[ATOMIZER][second]
    return Verdict(f"{whole:.1f} with all, {half:.1f} with every second", half >= (1 - GRACEFUL) * whole)


CLAIMS = (
    Claim("rope", "Digits need RoPE: at least 97.5 % with it, at most 45 % without", rope),
    Claim(
        "mnist-sparse",
        f"Ahead of a ViT of single pixels with any share of the background, by {WIDE:g} points with a quarter of it",
        sparse,
    ),
    Claim("table3", "First on average over six sets of channels", channels),
    Claim("table2", f"Within {CLOSE:g} point of the best on each task, ahead of Perceiver-IO", single_task),
    Claim("compute", f"One checkpoint spans {SPAN:g} times the operations within {CLOSE:g} point", compute),
    Claim("temporal", "What aggregation of dates gains grows with their number", dates),
    Claim("local-observations", "Queries gain from seeing what was observed at their place", local_observations),
    Claim("lidar", f"Ahead of Perceiver-IO on points by {WIDE:g} mIoU", points),
    Claim("hyperspectral", "With every second band gone at test, nine tenths of the score stay", bands),
)


def claims(found: Results, scale: str = SMALL) -> str:
    """Return the table of all claims: what is to be shown, what was found, whether it holds, and the item of each."""
    rows = []
    for claim in CLAIMS:
        file = found.items.get((claim.item, scale))
        verdict = None if file is None else claim.judge(means(file))
        cells = [NOTHING, NOTHING]
        if verdict is not None:
            answer = "yes" if verdict.holds else "no"
            cells = [Cell(verdict.found, verdict.found), Cell(answer, answer, style="best" if verdict.holds else "")]
        rows.append([Cell(claim.says, claim.says), *cells, Cell(claim.item, claim.item)])
    heads = [Head(text) for text in ("to be shown", "found", "holds", "item")]
    return f"""<section><span class="tag">{html.escape(scale)}</span><h2>Does it hold?</h2>
<p>What the paper's experiments show, as this scale can show it. What differs, and why as far as that is known, is in
docs/reproduce.md.</p>{table(heads, rows, style="words", name=f"claims, {scale}")}</section>"""


def _has(scores: Means, column: str, *rows: str) -> bool:
    return all(column in scores.get(row, {}) for row in rows)


def _columns(scores: Means) -> list[str]:
    return list(dict.fromkeys(column for columns in scores.values() for column in columns))


def _rivals(scores: Means, column: str) -> dict[str, float]:
    return {row: cells[column] for row, cells in scores.items() if row != ATOMIZER and column in cells}


def _ahead(column: str, own: float, other: float) -> float:
    """Return by how much a number is better than another; errors are better when they are lower."""
    return other - own if LOWER in column else own - other


def _beside_the_best(scores: Means, column: str) -> tuple[str, float]:
    """Return the own number and that of the best rival in words, and by how much it is ahead."""
    own, rivals = scores[ATOMIZER][column], _rivals(scores, column)
    best = max(rivals, key=lambda row: _ahead(column, rivals[row], 0.0))
    return f"{column} {own:.1f}, {best} {rivals[best]:.1f}", _ahead(column, own, rivals[best])
