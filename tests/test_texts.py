"""Texts are in their files completely or not at all, whoever is killed and however many write."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import pytest

from atomizer_io import locks
from atomizer_io.locks import alone, lock
from atomizer_io.texts import json_text, write_output, write_text
from faults.dying import DEATHS, die
from processes import exit_code, start

LONG = "new " * 5000


def written(path: Path, text: str, before: partial[None] | None = None) -> None:
    if before is not None:
        before()
    write_text(path, text)


@pytest.mark.parametrize("within", [False, True], ids=["before", "within"])
@pytest.mark.parametrize("change", [1, 2, 3])
def test_a_kill_leaves_the_text_that_was_there(tmp_path: Path, change: int, within: bool) -> None:
    path = tmp_path / "settings.yaml"
    path.write_text("old")
    ended = exit_code(start(written, path, LONG, partial(die, tmp_path, change, within)))
    assert path.read_text() == ("old" if ended else LONG)
    assert ended in (0, *DEATHS) and (ended or (change, within) == (3, True))
    write_text(path, LONG)
    assert path.read_text() == LONG and [file.name for file in tmp_path.iterdir()] == [path.name]


def test_several_processes_write_whole_texts(tmp_path: Path) -> None:
    texts = [f"{number} " * 9000 for number in range(4)]
    every = [start(written, tmp_path / "a.json", text) for text in texts]
    assert [exit_code(process) for process in every] == [0] * 4
    assert (tmp_path / "a.json").read_text() in texts and len(list(tmp_path.iterdir())) == 1


def test_links_are_replaced_and_what_lies_beside_is_not_followed(tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.write_text("not to be touched")
    (tmp_path / "a.json").symlink_to(outside)
    (tmp_path / ".a.json.new").symlink_to(outside)
    write_text(tmp_path / "a.json", "new")
    assert (tmp_path / "a.json").read_text() == "new" and not (tmp_path / "a.json").is_symlink()
    assert outside.read_text() == "not to be touched"


def test_an_output_may_be_a_device_or_a_link(tmp_path: Path) -> None:
    write_output(Path(os.devnull), "text")
    assert not Path(os.devnull).is_file()
    (tmp_path / "link").symlink_to(tmp_path / "target")
    write_output(tmp_path / "link", "text")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "target").read_text() == "text"
    write_output(tmp_path / "new" / "folder" / "a.json", "text")
    assert (tmp_path / "new" / "folder" / "a.json").read_text() == "text"


def is_free(path: Path) -> None:
    os._exit(0 if lock(path, wait_s=0) is not None else 3)


@pytest.mark.parametrize("of", ["lock", "."])
def test_one_process_holds_a_lock_and_its_forks_do_not(tmp_path: Path, of: str) -> None:
    held = lock(tmp_path / of)
    assert held is not None and lock(tmp_path / of, wait_s=0.01) is None
    assert exit_code(start(is_free, tmp_path / of)) == 3
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        os.close(writer)
        os.read(reader, 1)  # until the parent has let go
        os._exit(0)
    held.close()
    assert exit_code(start(is_free, tmp_path / of)) == 0
    with alone(tmp_path / of), alone(tmp_path / of, wait_s=0.01):  # after that time it goes on as well
        os.close(writer)
    os.waitpid(child, 0)
    os.close(reader)


def test_who_waited_for_a_lock_keeps_others_out(tmp_path: Path) -> None:
    """The file of a lock may be removed by whoever held it, while another process already waits for that very file."""
    path = tmp_path / "lock"
    with ThreadPoolExecutor(1) as pool:
        with alone(path):
            waiting = pool.submit(lock, path)
            while len(locks._held) < 2:
                time.sleep(0.01)
            path.unlink()
        held = waiting.result()
    assert held is not None
    with held:
        assert lock(path, wait_s=0) is None


def test_json_has_null_where_there_is_no_number() -> None:
    """A class that is absent has no IoU; JSON without NaN is read by every program."""
    scores = {"iou": {"water": 0.5, "ice": float("nan")}, "best": (float("inf"), 2, True, None, "NaN")}
    assert json_text(scores) == '{"iou": {"water": 0.5, "ice": null}, "best": [null, 2, true, null, "NaN"]}'
