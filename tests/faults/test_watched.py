"""The watch over system calls sees what it is there for."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from faults.watched import watch_gdal, wrong

READ, WRITTEN = "O_RDONLY|O_CLOEXEC) = 3", "O_WRONLY|O_CREAT|O_TRUNC, 0666) = 3"


@pytest.mark.parametrize(
    ("call", "bad"),
    [
        ('openat(AT_FDCWD, "{work}/in/scene.tif", ' + READ, False),
        ('openat(AT_FDCWD, "{work}/in/scene.tif.aux.xml", ' + WRITTEN, True),
        ('openat(AT_FDCWD, "{work}/out/map.tif", ' + WRITTEN, False),
        ('openat(AT_FDCWD, "map.tif", ' + WRITTEN, False),
        ('openat(AT_FDCWD, "{work}/outside/private.txt", ' + READ, True),
        ('openat(AT_FDCWD, "{work}/in/../outside/private.txt", ' + READ, True),
        ('openat(AT_FDCWD, "{work}/in/link", ' + READ, True),
        ('openat(AT_FDCWD, "{work}/outside/private.txt", O_RDONLY) = -1 ENOENT (No such file or directory)', False),
        ('openat(AT_FDCWD, "/usr/lib/libc.so", ' + READ, False),
        ('mkdir("{work}/outside/cache", 0744) = 0', True),
        ('rename("{work}/out/a", "{work}/in/a") = 0', True),
        ('execve("/bin/sh", ["sh"], 0x7ff) = 0', True),
        (
            "connect(6, {{sa_family=AF_INET, sin_port=htons(80)}}, 16) = -1 EINPROGRESS (Operation ...)",
            True,
        ),
        ('connect(6, {{sa_family=AF_UNIX, sun_path="/run/x"}}, 16) = 0', False),
    ],
)
def test_a_call_is_judged_by_what_it_touches(call: str, bad: bool, tmp_path: Path) -> None:
    for name in ("in", "out", "outside"):
        (tmp_path / name).mkdir()
    os.symlink(tmp_path / "outside" / "private.txt", tmp_path / "in" / "link")
    line = f"123   {call.format(work=tmp_path)}"
    assert wrong(line, tmp_path, tmp_path / "model") == (line if bad else None)


def test_without_strace_the_part_reports_why_it_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert watch_gdal(tmp_path) == {"skipped, as strace is not installed": 1}
