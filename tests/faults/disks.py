"""Small disks: file systems in memory that fill up in the middle of the work, or that are read-only.

They are mounted where no other process sees them, which takes a user of Linux who may have namespaces of their own.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import chips
from atomizer_io.training import state
from faults.kills import SETTINGS, same_weights
from processes import command, exit_code, start

ALONE = ("unshare", "--map-root-user", "--mount")
BALLAST = "ballast"


def possible() -> bool:
    """Whether file systems can be mounted here."""
    return shutil.which("unshare") is not None and not subprocess.run([*ALONE, "true"], capture_output=True).returncode


def use_small_disks(work: Path) -> dict[str, float]:
    """Work on a full or read-only disk ends with exit code 2, keeps what it had, and goes on once there is room."""
    if not possible():
        print("no file system can be mounted here: small disks are left out", file=sys.stderr)
        return {"small disks": 0}
    process = subprocess.run(
        [*ALONE, sys.executable, "-m", "faults.disks", str(work)], stdout=subprocess.PIPE, text=True
    )
    assert process.returncode == 0, f"ended with {process.returncode}"
    figures: dict[str, float] = json.loads(process.stdout.splitlines()[-1])
    return figures


def mounted(folder: Path, megabytes: int) -> Path:
    """Mount a file system of this size on a new folder."""
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(folder)], check=True)
    return folder


def fill(disk: Path) -> None:
    """Leave no byte free."""
    with (disk / BALLAST).open("ab", buffering=0) as file:
        for size in (1 << 20, 1 << 12, 1):
            try:
                while True:
                    file.write(b"\0" * size)
            except OSError:
                continue


def filled_meanwhile(words: tuple[str, ...], disk: Path, sign: Callable[[], bool]) -> tuple[int | None, str]:
    """Start a command, fill its disk once there is a ``sign``; return its exit code and its log."""
    log = disk.parent / "log"
    process: Any = start(command, words, errors=log)
    deadline = time.monotonic() + 180
    while not sign() and process.is_alive() and time.monotonic() < deadline:
        time.sleep(0.005)
    os.kill(process.pid, signal.SIGSTOP)  # or it might end before the disk is full
    fill(disk)
    os.kill(process.pid, signal.SIGCONT)
    return exit_code(process), log.read_text()


def predict(work: Path) -> int:
    """A prediction whose disk fills up goes on once there is room, and its map is the same."""
    chips.scene(work, 120, 120)
    words = ("predict", "--model", str(chips.model_folder()), "--raster", str(work / "scene0.tif"), "--workers", "1")
    words += ("--sensor", "sentinel2", "--window", "120", "--quiet")
    assert exit_code(start(command, (*words, "-o", str(work / "whole.tif")))) == 0
    assert exit_code(start(command, (*words, "-o", str(mounted(work / "tiny", 10) / "map.tif")))) == 2
    output = mounted(work / "disk", 80) / "map.tif"
    parts = output.with_name("map.tif.parts")
    ended, log = filled_meanwhile(
        (*words, "-o", str(output)), work / "disk", lambda: len(list(parts.glob("window-*.npy"))) > 3
    )
    assert ended == 2 and "No space left" in log and "--resume" in log, (ended, log)
    kept = len(list(parts.glob("window-*.npy")))
    assert kept > 3, kept
    (work / "disk" / BALLAST).unlink()
    assert exit_code(start(command, (*words, "-o", str(output), "--resume"))) == 0
    assert output.read_bytes() == (work / "whole.tif").read_bytes()
    return 2


def train(work: Path) -> int:
    """A training whose disk fills up keeps its last state, and goes on with the same weights."""
    (work / "run.yaml").write_text(SETTINGS)
    words = ("train", str(work / "run.yaml"), "--quiet")
    assert exit_code(start(command, (*words, f"output={work / 'runs'}", "name=whole"))) == 0
    disk = mounted(work / "runs-disk", 400)
    folder = disk / "killed"
    ended, log = filled_meanwhile(
        (*words, f"output={disk}", "name=killed"), disk, (folder / "state.safetensors").exists
    )
    assert ended == 2 and "o space left" in log, (ended, log)
    assert state.find(folder) is not None
    (disk / BALLAST).unlink()
    assert exit_code(start(command, ("train", str(folder), "--resume", "--quiet"))) == 0
    same_weights(work / "runs" / "whole", folder)
    return 1


def write_to_full(work: Path) -> int:
    """Calibrations and pages on a full disk are as they were."""
    disk = work / "runs-disk"
    best, page = disk / "killed" / "best", disk / "report.html"
    report = ("report", "--results", str(Path(__file__).parents[2] / "results"), "--output", str(page))
    calibrate = ("calibrate", str(best), "--blocks", "10", "--alpha")
    assert exit_code(start(command, report)) == 0
    assert exit_code(start(command, (*calibrate, "0.5"))) == 0
    before = [path.read_bytes() for path in (page, best / "calibration.json")]
    fill(disk)
    for words in (report, (*calibrate, "0.4")):
        assert exit_code(start(command, words)) == 2
    assert before == [path.read_bytes() for path in (page, best / "calibration.json")]
    (disk / BALLAST).unlink()
    return 2


def write_to_read_only(work: Path) -> int:
    """Each command reports that its output is read-only; nothing changes."""
    disk = work / "runs-disk"
    subprocess.run(["mount", "-o", "remount,ro", str(disk)], check=True)
    raster = ("--raster", str(work / "scene0.tif"), "--sensor", "sentinel2")
    every: tuple[tuple[str, ...], ...] = (
        ("predict", "--model", str(chips.model_folder()), *raster, "-o", str(disk / "map.tif")),
        ("train", str(work / "run.yaml"), f"output={disk}", "name=other", "--quiet"),
        ("train", str(disk / "killed"), "--resume", "--quiet"),
        ("calibrate", str(disk / "killed" / "best"), "--blocks", "10", "--alpha", "0.4"),
        ("report", "--results", str(Path(__file__).parents[2] / "results"), "--output", str(disk / "page.html")),
    )
    for words in every:
        log = work / "log"
        ended = exit_code(start(command, words, errors=log))
        assert ended == 2 and "ead-only" in log.read_text(), (words, ended, log.read_text())
    return len(every)


def main(work: Path) -> None:
    """Run everything inside of the namespace, and print the figures as JSON."""
    full = predict(work) + train(work) + write_to_full(work)
    figures = {"full disks": full, "read-only outputs refused": write_to_read_only(work), "work lost": 0}
    print(json.dumps(figures))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
