"""Progress: one moving line on a terminal, a whole line every few seconds in a pipe or a log file."""

from __future__ import annotations

import os
import pty
import re
import subprocess
import sys
from pathlib import Path

import pytest

import atomizer_io
from atomizer_io import progress
from atomizer_io.progress import progress_bar, watched

SOURCES = Path(atomizer_io.__file__).parent
SCRIPT = """
import time
from atomizer_io import progress
progress.EVERY_S = 0.2
for _ in progress.watched(range(30), 30, title="reading", unit=" samples"):
    time.sleep(0.05)
"""


NESTED = """
import time
from atomizer_io.progress import aim, progress_bar
bar = progress_bar(None, title="training", unit=" steps")
for step in range(8):
    bar.update()
    time.sleep(0.12)
    if step == 3:
        inner = progress_bar(4, title="validating", unit=" samples", stay=False, over=True)
        for _ in range(4):
            time.sleep(0.12)
            inner.update()
        inner.close()
        aim(bar, 8)
bar.close()
"""


def test_a_pipe_gets_whole_lines_now_and_then() -> None:
    done = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, check=True)
    assert b"\r" not in done.stderr and done.stdout == b""
    lines = done.stderr.decode().splitlines()
    assert 3 <= len(lines) <= 9  # 1.5 s and more, a line every 0.2 s, and not one for each of 30
    assert re.fullmatch(r"reading: \d+ % \(\d+ of 30 samples\), 00:00 so far, 00:0\d left", lines[0])
    assert lines[-1].startswith("reading: 100 % (30 of 30 samples)")


def on_terminal(script: str) -> str:
    """What a script writes to the terminal that it runs on."""
    ours, theirs = pty.openpty()
    with subprocess.Popen([sys.executable, "-c", script], stderr=theirs) as process:
        os.close(theirs)
        shown = b""
        try:
            while part := os.read(ours, 4096):
                shown += part
        except OSError:  # the end of a terminal
            pass
    os.close(ours)
    assert process.returncode == 0
    return shown.decode()


def test_a_terminal_gets_one_moving_line() -> None:
    text = on_terminal(SCRIPT)
    assert text.count("\r") > 5
    assert text.count("\n") == 1 and text.endswith("\n")  # after the last
    assert "left" in text and "30 of 30 samples" in text


def test_short_work_and_unwanted_progress_say_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert list(watched(range(5), 5, unit=" samples")) == [0, 1, 2, 3, 4]
    with progress_bar(2, show=False) as bar:
        bar.update(2)
    assert capsys.readouterr() == ("", "")


def test_a_bar_inside_a_bar_writes_only_its_states_to_a_pipe(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 1e-6)
    with progress_bar(2, title="training", unit=" steps") as outer:
        outer.update()
        list(watched(range(2), 2, title="validating", unit=" samples"))
        outer.update()
    lines = capsys.readouterr().err.splitlines()
    assert any(line.startswith("validating: 100 %") for line in lines)
    assert all(re.match(r"(training|validating): \d+ % ", line) for line in lines), lines


def test_work_that_goes_on_counts_from_where_it_was(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "EVERY_S", 1e-6)
    with progress_bar(4, initial=2, unit=" windows") as bar:
        bar.update()
    assert "75 % (3 of 4 windows)" in capsys.readouterr().err


def test_all_progress_is_shown_in_the_same_way() -> None:
    users = [path.name for path in SOURCES.rglob("*.py") if "tqdm" in path.read_text(encoding="utf-8")]
    assert users == ["progress.py"]


def test_work_within_work_shares_the_line_of_a_terminal() -> None:
    text = on_terminal(NESTED)
    assert "training: 4 steps, 00:0" in text and "validating:  50 %" in text and "8 of 8 steps" in text
    assert text.count("\n") == 1 and "\x1b[A" not in text  # no second line
