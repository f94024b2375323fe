"""Kills and full disks: work is broken off again and again, goes on, and ends as if nothing had happened."""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import shutil
import signal
import time
from functools import partial
from pathlib import Path

import torch
from safetensors.torch import load_file

import chips
from atomizer_io.decoding.calibration import load_all
from processes import command, exit_code, start

SETTINGS = """
data: {name: synthetic, options: {like: sen1floods11, size: 16, length: 6}, workers: 0}
model: {preset: atomizer_io_tiny}
training: {max_steps: 12, batch_size: 2, validate_steps: 4, save_every: 2, loggers: [], figures: 0, baselines: false}
"""


def killed_after(seconds: float, words: tuple[str, ...]) -> int | None:
    """Start ``atomizer`` with these words and kill it after some time; return how it ended."""
    process = start(command, words)
    process.join(seconds)
    if process.is_alive() and process.pid:
        os.kill(process.pid, signal.SIGKILL)
    return exit_code(process)


def until_done(words: tuple[str, ...], kills: int, longest_s: float) -> int:
    """Kill a command at random times, resume it, and let it finish at last; return how often it was killed."""
    rng, count = random.Random(0), 0
    for _ in range(kills):
        ended = killed_after(rng.uniform(0.1, longest_s), words)
        if ended == 0:
            break
        assert ended == -signal.SIGKILL, f"ended with {ended}"
        count += 1
    else:
        assert exit_code(start(command, words)) == 0
    return count


def kill_prediction(work: Path, kills: int = 8) -> dict[str, float]:
    """A map whose prediction is killed has the bytes of one that is not."""
    chips.scene(work, 100, 100)
    words = ("predict", "--model", str(chips.model_folder()), "--raster", str(work / "scene0.tif"), "--workers", "1")
    words += ("--sensor", "sentinel2", "--window", "160", "--quiet")
    assert exit_code(start(command, (*words, "-o", str(work / "first.tif")))) == 0  # the next need not import anything
    began = time.monotonic()
    assert exit_code(start(command, (*words, "-o", str(work / "whole.tif")))) == 0
    count = until_done((*words, "-o", str(work / "map.tif"), "--resume"), kills, 0.6 * (time.monotonic() - began))
    assert count, "nothing was killed"
    assert (work / "whole.tif").read_bytes() == (work / "map.tif").read_bytes()
    assert not (work / "map.tif.parts").exists()
    return {"predictions killed": count, "maps that differ": 0}


def same_weights(one: Path, two: Path) -> None:
    """Refuse two runs whose last models differ in any bit."""
    first, second = (load_file(folder / "last" / "model.safetensors") for folder in (one, two))
    assert first.keys() == second.keys() and all(bool((first[key] == second[key]).all()) for key in first)


def kill_training(work: Path, kills: int = 5) -> dict[str, float]:
    """A training that is killed ends with the weights of one that is not."""
    (work / "run.yaml").write_text(SETTINGS.replace("max_steps: 12", "max_steps: 40"))
    words = ("train", str(work / "run.yaml"), "--quiet", f"output={work / 'runs'}")
    assert exit_code(start(command, (*words, "name=first"))) == 0  # the next need not import anything
    began = time.monotonic()
    assert exit_code(start(command, (*words, "name=whole"))) == 0
    lasted, rng, count = time.monotonic() - began, random.Random(0), 0
    folder = work / "runs" / "killed"

    def next_words() -> tuple[str, ...]:
        begun = (folder / "config.yaml").exists()
        return ("train", str(folder), "--resume", "--quiet") if begun else (*words, "name=killed")

    for _ in range(kills):
        ended = killed_after(rng.uniform(0.15, 0.35) * lasted, next_words())
        if ended == 0:
            break
        assert ended == -signal.SIGKILL, f"ended with {ended}"
        count += 1
    else:
        assert exit_code(start(command, next_words())) == 0
    assert count, "nothing was killed"
    same_weights(work / "runs" / "whole", folder)
    return {"trainings killed": count, "weights that differ": 0}


def kill_calibration(work: Path, kills: int = 4) -> dict[str, float]:
    """A calibration that is killed leaves the calibrations that were stored before, or the new one: never a part."""
    (work / "run.yaml").write_text(SETTINGS)
    words = ("train", str(work / "run.yaml"), "--quiet", f"output={work / 'runs'}", "name=one")
    assert exit_code(start(command, words)) == 0
    best = work / "runs" / "one" / "best"
    calibrate = ("calibrate", str(best), "--alpha", "0.2")
    began = time.monotonic()
    assert exit_code(start(command, calibrate)) == 0
    lasted, rng, count = time.monotonic() - began, random.Random(0), 0
    for _ in range(kills):
        count += killed_after(rng.uniform(0.1, 0.8) * lasted, calibrate) == -signal.SIGKILL
        assert load_all(best), "the calibration that was stored is lost"
    assert count, "nothing was killed"
    return {"calibrations killed": count, "calibrations damaged": 0}


def limit_files(bytes_: int) -> None:
    """Let every file that is written end at so many bytes, as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    silent = os.open(os.devnull, os.O_WRONLY)
    for number in (1, 2):  # the output may go to a file as well
        os.dup2(silent, number)
    resource.setrlimit(resource.RLIMIT_FSIZE, (bytes_, bytes_))


def fill_disk(work: Path) -> dict[str, float]:
    """A prediction that cannot write ends with exit code 2 and goes on once it can; its map is the same."""
    chips.scene(work, 60, 60)
    words = ("predict", "--model", str(chips.model_folder()), "--raster", str(work / "scene0.tif"), "--workers", "1")
    words += ("--sensor", "sentinel2", "--window", "240", "--quiet")
    assert exit_code(start(command, (*words, "-o", str(work / "whole.tif")))) == 0
    clean = 0
    for most in (200, 3_000, 20_000):
        output = work / f"map-{most}.tif"
        ended = exit_code(start(command, (*words, "-o", str(output), "--resume"), partial(limit_files, most)))
        assert ended in (0, 2), f"ended with {ended}"
        clean += ended == 2
        if ended:
            assert exit_code(start(command, (*words, "-o", str(output), "--resume"))) == 0
        assert output.read_bytes() == (work / "whole.tif").read_bytes()
    return {"full disks": clean, "work lost on full disks": 0}


def write_nowhere(work: Path) -> dict[str, float]:
    """An output that cannot be written is refused before any work, with exit code 2."""
    chips.scene(work)
    words = ("predict", "--model", str(chips.model_folder()), "--raster", str(work / "scene0.tif"))
    for path in ("/proc/atomizer/map.tif", str(work / "scene0.tif" / "map.tif")):
        assert exit_code(start(command, (*words, "--sensor", "sentinel2", "-o", path))) == 2
    return {"outputs that cannot be written, refused": 2}


def write_together(work: Path, rounds: int = 4) -> dict[str, float]:
    """Of several processes that write one output at a time at least one succeeds, and the output is whole."""
    chips.scene(work, 40, 40)
    words = ("predict", "--model", str(chips.model_folder()), "--raster", str(work / "scene0.tif"), "--workers", "1")
    words += ("--sensor", "sentinel2", "--window", "100", "-o", str(work / "map.tif"), "--overwrite", "--quiet")
    for _ in range(rounds):
        codes = [exit_code(process) for process in [start(command, words) for _ in range(3)]]
        assert 0 in codes and set(codes) <= {0, 2}, codes
        assert chips.read(work / "map.tif").shape[1:] == (40, 40)
        shutil.rmtree(work / "map.tif.parts", ignore_errors=True)
    return {"outputs written by three at once": rounds}


def train_together(work: Path) -> dict[str, float]:
    """Trainings side by side, with no loader worker and with two, have the same weights to the bit."""
    (work / "run.yaml").write_text(SETTINGS)
    words = ("train", str(work / "run.yaml"), "--quiet", f"output={work / 'runs'}")
    chosen = {"one": "data.workers=0", "other": "data.workers=0", "workers": "data.workers=2"}
    running = [start(unwatched, (*words, f"name={name}", workers)) for name, workers in chosen.items()]
    assert [exit_code(process) for process in running] == [0, 0, 0]
    first, *others = (load_file(work / "runs" / name / "last" / "model.safetensors") for name in chosen)
    assert all(bool((first[key] == weights[key]).all()) for weights in others for key in first)
    threads = torch.get_num_threads()
    torch.set_num_threads(2)  # sums must not depend on the order in which threads finish
    try:
        assert [exit_code(start(command, (*words, f"name={name}"))) for name in ("two", "twice")] == [0, 0]
    finally:
        torch.set_num_threads(threads)
    same_weights(work / "runs" / "two", work / "runs" / "twice")
    return {"trainings side by side": len(chosen), "with two threads": 2, "weights that differ": 0}


def unwatched(words: tuple[str, ...]) -> None:
    """``atomizer`` in a process that may have children of its own, as loaders need."""
    multiprocessing.current_process()._config["daemon"] = False  # type: ignore[attr-defined]
    multiprocessing.set_start_method("fork", force=True)  # as it is where nobody chose otherwise
    command(words)
