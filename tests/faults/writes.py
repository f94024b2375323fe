"""Kills while files are written: checkpoints, calibrations and reports are whole, the new or the one before."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import atomizer_io as aio
from atomizer_io.decoding.calibration import load_all
from atomizer_io.models.storage import SAVING
from atomizer_io.training import state
from faults.dying import changes_of, dies, evenly
from faults.kills import SETTINGS, same_weights
from processes import command, exit_code, start

FEW_STEPS = SETTINGS.replace("max_steps: 12", "max_steps: 4").replace("validate_steps: 4", "validate_steps: 2")
RESULTS = Path(__file__).parents[2] / "results"


def kill_checkpoints(work: Path, kills: int = 6) -> dict[str, float]:
    """A training that is killed at a file, or within one, leaves whole files and ends with the same weights."""
    (work / "run.yaml").write_text(FEW_STEPS.replace("save_every: 2", "save_every: 1"))
    words = ("train", str(work / "run.yaml"), "--quiet", f"output={work / 'runs'}")
    most, count = changes_of((*words, "name=whole"), work / "runs", work / "count"), 0
    for number in evenly(most - 2, kills):
        for within in (False, True):
            folder = work / "runs" / f"killed-{number}-{within}"
            count += dies((*words, f"name={folder.name}"), work / "runs", number, within)
            state.find(folder)  # refuses one that is not whole
            for model in (folder / "best", folder / "last"):
                if (model / "config.json").exists():
                    aio.load_model(model)
            begun = (folder / "config.yaml").exists()
            again = ("train", str(folder), "--resume", "--quiet") if begun else (*words, f"name={folder.name}")
            assert exit_code(start(command, again)) == 0
            same_weights(work / "runs" / "whole", folder)
            assert not list(folder.rglob(f"{SAVING}*")), "what was not complete is still there"
    assert count, "nothing was killed"
    return {"trainings killed as they wrote": count, "files that were not whole": 0, "weights that differ": 0}


def kill_at_every_change(words: tuple[str, ...], folder: Path, check: Callable[[], None], tally: Path) -> int:
    """Kill a command at all of its changes of files, and within them; ``check`` what there is after each."""
    count = 0
    for number in range(1, changes_of(words, folder, tally) + 1):
        for within in (False, True):
            count += dies(words, folder, number, within)
            check()
    return count


def kill_report(work: Path) -> dict[str, float]:
    """A report that is killed leaves the page that was there, or the new one."""
    page = work / "pages" / "report.html"
    words = ("report", "--results", str(RESULTS), "--work", str(work / "runs"), "--output", str(page))

    def whole() -> None:
        assert page.read_text(encoding="utf-8").rstrip().endswith("</html>"), "the page is cut off"

    assert exit_code(start(command, words)) == 0
    count = kill_at_every_change(words, page.parent, whole, work / "count")
    assert count, "nothing was killed"
    return {"reports killed": count, "pages that were not whole": 0}


def write_calibrations(work: Path) -> dict[str, float]:
    """Calibrations that are killed, or written by two at once, lose none that was stored."""
    (work / "run.yaml").write_text(FEW_STEPS)
    words = ("train", str(work / "run.yaml"), "--quiet", f"output={work / 'runs'}", "name=one")
    assert exit_code(start(command, words)) == 0
    best = work / "runs" / "one" / "best"
    calibrate = ("calibrate", str(best), "--blocks", "10", "--alpha")
    assert exit_code(start(command, (*calibrate, "0.5"))) == 0

    def stored(*alphas: float) -> None:
        assert {0.5, *alphas} <= {calibration.alpha for calibration in load_all(best)}, "a calibration was lost"

    count = kill_at_every_change((*calibrate, "0.4"), best, stored, work / "count")
    assert count, "nothing was killed"
    both = [start(command, (*calibrate, alpha)) for alpha in ("0.3", "0.2")]
    assert [exit_code(process) for process in both] == [0, 0]
    stored(0.3, 0.2)
    return {"calibrations killed as they wrote": count, "calibrations at once": 2, "calibrations lost": 0}


def train_at_once(work: Path) -> dict[str, float]:
    """Of two processes that train one run at a time, one is refused and the other ends as if it were alone."""
    (work / "run.yaml").write_text(FEW_STEPS)
    words = ("train", str(work / "run.yaml"), "--quiet", f"output={work / 'runs'}")
    assert exit_code(start(command, (*words, "name=whole"))) == 0
    both = [start(command, (*words, "name=shared")) for _ in range(2)]
    assert sorted(exit_code(process) or 0 for process in both) == [0, 2]
    same_weights(work / "runs" / "whole", work / "runs" / "shared")
    return {"trainings of one run at once": 2, "refused": 1, "weights that differ": 0}
