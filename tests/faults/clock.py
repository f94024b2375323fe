"""A clock that goes back: trainings and predictions under a clock that loses a minute every second."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import chips
from faults.kills import SETTINGS, same_weights

SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <time.h>

/* The time of day, which runs backwards: sixty seconds back for each that passes. Other clocks are as they are. */
int clock_gettime(clockid_t clock, struct timespec *found) {
    static int (*real)(clockid_t, struct timespec *);
    static struct timespec first;
    if (!real) real = (int (*)(clockid_t, struct timespec *))dlsym(RTLD_NEXT, "clock_gettime");
    int code = real(clock, found);
    if (!code && clock == CLOCK_REALTIME) {
        if (!first.tv_sec) first = *found;
        double passed = (found->tv_sec - first.tv_sec) + 1e-9 * (found->tv_nsec - first.tv_nsec);
        double now = first.tv_sec + 1e-9 * first.tv_nsec - 60.0 * passed;
        found->tv_sec = (time_t)now;
        found->tv_nsec = (long)(1e9 * (now - (double)found->tv_sec));
    }
    return code;
}
time_t time(time_t *out) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (out) *out = now.tv_sec;
    return now.tv_sec;
}
int gettimeofday(struct timeval *out, void *zone) {
    struct timespec now;
    (void)zone;
    clock_gettime(CLOCK_REALTIME, &now);
    out->tv_sec = now.tv_sec;
    out->tv_usec = now.tv_nsec / 1000;
    return 0;
}
"""
COMMAND = "import sys; from atomizer_io.cli import main; sys.exit(main(sys.argv[1:]))"
SHOWN = "import time; a = time.time(); time.sleep(0.1); print(time.time() < a)"
FUTURE_S = 3 * 86400.0


def shim(work: Path) -> Path | None:
    """Compile the clock; None where there is no C compiler."""
    compiler = next((path for name in ("cc", "gcc", "clang") if (path := shutil.which(name))), None)
    if compiler is None:
        return None
    (work / "clock.c").write_text(SOURCE)
    line = [compiler, "-shared", "-fPIC", "-O1", "-o", str(work / "clock.so"), str(work / "clock.c"), "-ldl"]
    subprocess.run(line, check=True, capture_output=True)
    return work / "clock.so"


def run(code: str, *words: str, clock: Path, most_s: float | None = None) -> tuple[int, str]:
    """Run a program under the clock; kill it after ``most_s`` seconds. Return its exit code and its output."""
    environment = {**os.environ, "LD_PRELOAD": str(clock)}
    line = [sys.executable, "-W", "ignore", "-c", code, *words]
    process = subprocess.Popen(line, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        output, _ = process.communicate(timeout=most_s)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    return process.returncode, output


def of_tomorrow(folder: Path) -> None:
    """Set the times of all files of a folder to the future."""
    then = time.time() + FUTURE_S
    for path in folder.rglob("*"):
        os.utime(path, (then, then))


def turn_clock_back(work: Path) -> dict[str, float]:
    """Work that is killed and resumed while the clock goes back ends as it does otherwise."""
    clock = shim(work)
    if clock is None:
        print("no C compiler: the clock is left as it is", file=sys.stderr)
        return {"commands under a clock that goes back": 0}
    assert run(SHOWN, clock=clock)[1].strip() == "True", "the clock does not go back"
    from processes import command, exit_code, start

    count = 0
    chips.scene(work, 60, 60)
    words = ("predict", "--model", str(chips.model_folder()), "--raster", str(work / "scene0.tif"), "--workers", "1")
    words += ("--sensor", "sentinel2", "--window", "120", "--quiet")
    (work / "run.yaml").write_text(SETTINGS)
    train = ("train", str(work / "run.yaml"), "--quiet", f"output={work / 'runs'}")
    assert exit_code(start(command, (*words, "-o", str(work / "whole.tif")))) == 0
    assert exit_code(start(command, (*train, "name=whole"))) == 0
    predicted, trained = (*words, "-o", str(work / "map.tif")), (*train, "name=killed")
    signs = (work / "map.tif.parts" / "plan.json", work / "runs" / "killed" / "state.safetensors")
    again = ((*predicted, "--resume"), ("train", str(work / "runs" / "killed"), "--resume", "--quiet"))
    for first, sign, second in zip((predicted, trained), signs, again, strict=True):
        began = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", COMMAND, *first],
            env={**os.environ, "LD_PRELOAD": str(clock)},
            stdout=subprocess.DEVNULL,
        )
        while began.poll() is None and not sign.exists():
            time.sleep(0.01)
        began.kill()
        began.wait()
        of_tomorrow(sign.parent)
        ended, output = run(COMMAND, *second, clock=clock)
        assert ended == 0, output
        count += 2
    assert (work / "map.tif").read_bytes() == (work / "whole.tif").read_bytes()
    same_weights(work / "runs" / "whole", work / "runs" / "killed")
    return {"commands under a clock that goes back": count, "maps and weights that differ": 0}
