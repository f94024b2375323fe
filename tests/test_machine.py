"""What is kept beside a result: the commit shows whether the code was as committed, whatever else has changed."""

from __future__ import annotations

import importlib.util
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from atomizer_io import machine as own


def git(folder: Path, *arguments: str) -> str:
    who = ("-c", "user.name=a", "-c", "user.email=a@b.c")
    done = subprocess.run(["git", *who, *arguments], cwd=folder, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def copied(folder: Path) -> Any:
    """Return the module as it is in a folder of its own."""
    folder.mkdir()
    path = shutil.copy(own.__file__, folder / "machine.py")
    spec = importlib.util.spec_from_file_location("copied_machine", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.skipif(shutil.which("git") is None, reason="there is no git here")
def test_new_results_do_not_make_the_code_look_changed(tmp_path):
    module = copied(tmp_path / "package")
    assert module.machine()["commit"] is None  # no checkout yet
    (tmp_path / "results.json").write_text("{}")
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit = git(tmp_path, "rev-parse", "--short=12", "HEAD")

    (tmp_path / "results.json").write_text('{"runs": {}}')
    assert module.machine()["commit"] == commit
    (tmp_path / "package" / "new.py").touch()
    assert module.machine()["commit"] == f"{commit}-dirty"
    (tmp_path / "package" / "new.py").unlink()
    assert module.machine()["commit"] == commit
    (tmp_path / ".git" / "index").write_text("not an index")  # git can no longer know what has changed
    assert module.machine()["commit"] == f"{commit}-dirty"
