"""Written means on the disk: contents before names, names before anything else is done."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

import atomizer_io as aio
import chips
from atomizer_io.durable import append_line, make_folder, publish
from atomizer_io.models import storage
from atomizer_io.texts import write_output
from power import Disk


def test_contents_are_on_the_disk_before_names_and_names_at_the_end(tmp_path: Path, disk: Disk) -> None:
    for name in ("a", "b"):
        (tmp_path / f"{name}.new").write_text(name)
    (tmp_path / "b").write_text("the one before")
    publish({tmp_path / f"{name}.new": tmp_path / name for name in ("a", "b")})
    assert sorted(disk.named) == [tmp_path / "a", tmp_path / "b"] and not disk.unsafe()
    assert disk.syncs == 3 and (tmp_path / "b").read_text() == "b"


def test_models_texts_and_the_folders_they_are_in_come_to_stay(tmp_path: Path, disk: Disk) -> None:
    storage.save(aio.load_model(chips.model_folder()), tmp_path / "runs" / "best")
    write_output(tmp_path / "pages" / "report.html", "<html></html>")
    assert {path.name for path in disk.named} >= {"model.safetensors", "config.json", "report.html"}
    assert not disk.unsafe()
    assert os.stat(tmp_path).st_ino in disk.synced and os.stat(tmp_path / "runs").st_ino in disk.synced


def test_a_line_after_one_that_was_cut_off_stands_alone(tmp_path: Path) -> None:
    path = tmp_path / "lines"
    append_line(path, "one")
    path.write_bytes(path.read_bytes() + b"tw")
    append_line(path, "three")
    assert path.read_text() == "one\ntw\nthree\n"


def test_a_disk_that_fails_is_an_error_and_a_folder_that_cannot_be_synced_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(code: int) -> None:
        def sync(number: int) -> None:
            raise OSError(code, os.strerror(code))

        monkeypatch.setattr(os, "fsync", sync)

    failing(errno.EINVAL)
    make_folder(tmp_path / "new" / "folder")
    failing(errno.EIO)
    (tmp_path / "a.new").write_text("a")
    with pytest.raises(OSError, match=r"Input/output error: '.*/a'"):
        publish({tmp_path / "a.new": tmp_path / "a"})
    assert not (tmp_path / "a").exists()
