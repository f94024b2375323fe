"""Compiled kernels are kept where nobody else can put them, compiled once, and checked before they are used."""

from __future__ import annotations

import ctypes
import hashlib
import json
import logging
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
import torch

import atomizer_io as aio
from atomizer_io.models.atomizer.ops.kernels import build, cache, calls, cells, compiler, layout, status
from processes import exit_code, start

REAL = shutil.which("cc")
pytestmark = pytest.mark.skipif(REAL is None or not build.available(), reason="no C compiler here, or switched off")
as_root = pytest.mark.skipif(os.name != "posix" or os.geteuid() != 0, reason="only root can give files away")
STRANGER = 54321

# Compiles fast rather than well, and writes down what it compiles; a test can change its version and take its OpenMP.
COMPILER = """#!/bin/sh
here=$(dirname "$0")
case "$*" in
  --version) cat "$here/version"; exit 0;;
  *-fopenmp*) if [ -e "$here/without-openmp" ]; then echo "error: unsupported option -fopenmp" >&2; exit 1; fi;;
esac
echo "$@" >> "$here/log"
exec {real} "$@" -O0
"""
PLANT = '__attribute__((constructor)) static void ran(void) { FILE *f = fopen(PROOF, "w"); fclose(f); }'
REPORT = """
import json
from dataclasses import asdict
from atomizer_io.models.atomizer.ops.kernels import status
print(json.dumps(asdict(status()), default=str))
"""


@dataclass
class Folders:
    """An empty cache folder and a compiler of its own."""

    root: Path

    @property
    def folder(self) -> Path:
        return self.root / "cache" / "atomizer_io" / "kernels"

    @property
    def compiled(self) -> list[str]:
        """The sources that were compiled, in order."""
        log = self.root / "log"
        lines = log.read_text().splitlines() if log.exists() else []
        return [Path(word).stem for line in lines for word in line.split() if word.endswith(".c")]

    @property
    def libraries(self) -> list[str]:
        return sorted(path.name.split("-")[0] for path in self.folder.glob("*.so"))

    def environment(self) -> dict[str, str]:
        variables = {"XDG_CACHE_HOME": self.root / "cache", "CC": self.root / "cc", "TMPDIR": self.root / "tmp"}
        package = Path(aio.__file__).parents[1]
        return {name: str(path) for name, path in variables.items()} | {"PYTHONPATH": str(package)}

    def plant(self) -> Path:
        """Put a library with a checksum where that of cells.c belongs; the file returned appears when it is loaded."""
        self.folder.mkdir(parents=True, mode=0o700, exist_ok=True)
        state = compiler.find_compiler()
        assert state is not None
        target = self.folder / f"cells-{state.key('cells', torch.float32)}.so"
        proof, source = self.root / "proof", self.root / "plant.c"
        source.write_text(f'#include <stdio.h>\n#define PROOF "{proof}"\n{PLANT}\n')
        subprocess.run([str(REAL), "-shared", "-fPIC", "-o", target, source], check=True)
        with_checksum(target)
        target.chmod(0o700)
        return proof


def with_checksum(library: Path) -> None:
    checksum = library.with_suffix(".sha256")
    checksum.write_text(hashlib.sha256(library.read_bytes()).hexdigest())
    checksum.chmod(0o600)


def forget() -> None:
    for cached in (build.loaded, compiler.find_compiler, cache.temporary_folder):
        cached.cache_clear()
    build._logged.clear()


def furnished(root: Path) -> Folders:
    (root / "cc").write_text(COMPILER.replace("{real}", str(REAL)))
    (root / "cc").chmod(0o755)
    (root / "version").write_text("cc 1.0\n")
    (root / "tmp").mkdir()
    return Folders(root)


@pytest.fixture
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Folders]:
    """This process with an empty cache folder, as if it had just started."""
    made = furnished(tmp_path)
    for name, value in made.environment().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "tmp"))
    forget()
    yield made
    forget()


# --- whose library it is ---


def stranger_owns_library(folders: Folders) -> None:
    for path in folders.folder.iterdir():
        os.chown(path, STRANGER, STRANGER)


def stranger_owns_checksum(folders: Folders) -> None:
    for path in folders.folder.glob("*.sha256"):
        os.chown(path, STRANGER, STRANGER)


def stranger_owns_folder(folders: Folders) -> None:
    os.chown(folders.folder, STRANGER, STRANGER)


def group_writes_folder(folders: Folders) -> None:
    folders.folder.chmod(0o770)


def all_write_library(folders: Folders) -> None:
    for path in folders.folder.iterdir():
        path.chmod(0o777)


def folder_is_a_link(folders: Folders) -> None:
    folders.folder.rename(folders.root / "elsewhere")
    folders.folder.symlink_to(folders.root / "elsewhere")


def library_is_a_link(folders: Folders) -> None:
    (library,) = folders.folder.glob("*.so")
    library.rename(folders.root / "elsewhere.so")
    library.symlink_to(folders.root / "elsewhere.so")


def test_a_planted_library_of_this_user_would_run(folders: Folders) -> None:
    """The control of the tests below; what it holds is not what Python expects, so it is replaced."""
    proof = folders.plant()
    assert status().path == "compiled" and status().library == folders.folder
    assert proof.exists()
    assert folders.compiled == ["cells", "queries"]


@pytest.mark.parametrize(
    "trick",
    [
        pytest.param(stranger_owns_library, marks=as_root),
        pytest.param(stranger_owns_checksum, marks=as_root),
        all_write_library,
        library_is_a_link,
    ],
)
def test_a_library_that_others_could_have_written_is_replaced(
    folders: Folders, trick: Callable[[Folders], None]
) -> None:
    proof = folders.plant()
    trick(folders)
    assert status().path == "compiled" and status().library == folders.folder
    assert not proof.exists(), "the planted library ran"
    for path in folders.folder.iterdir():
        assert path.lstat().st_uid == os.geteuid() and not path.is_symlink() and not path.stat().st_mode & 0o077


@pytest.mark.parametrize(
    "trick", [pytest.param(stranger_owns_folder, marks=as_root), group_writes_folder, folder_is_a_link]
)
def test_a_folder_that_others_can_write_to_is_not_used(
    folders: Folders, trick: Callable[[Folders], None], caplog: pytest.LogCaptureFixture
) -> None:
    proof = folders.plant()
    before = sorted(path.name for path in folders.folder.iterdir())
    trick(folders)
    state = status()
    assert state.path == "compiled" and state.library is not None and state.library.parent == folders.root / "tmp"
    assert not proof.exists(), "the planted library ran"
    assert sorted(path.name for path in folders.folder.iterdir()) == before, "something was written there"
    assert str(folders.folder) in state.reason
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert "for this process only" in line and "XDG_CACHE_HOME" in line


@pytest.fixture
def open_place() -> Iterator[Folders]:
    """As ``folders``, in a folder that every user of the machine may enter."""
    with tempfile.TemporaryDirectory() as folder:
        os.chmod(folder, 0o755)
        made = furnished(Path(folder))
        (made.root / "tmp").chmod(0o1777)
        (made.root / "log").touch()
        (made.root / "log").chmod(0o666)
        yield made


@as_root
def test_a_user_without_a_home_shares_nothing(open_place: Folders) -> None:
    """It compiled into a folder of the temporary directory that everybody knew, and loaded what lay there."""
    homeless = os.environ | open_place.environment()
    del homeless["HOME"], homeless["XDG_CACHE_HOME"]
    become = "import os, json, atomizer_io.models.atomizer.ops.kernels\n"  # what other users may not be able to read
    become += f"os.setgroups([]); os.setgid({STRANGER}); os.setuid({STRANGER})\n"
    closed = f"if not os.access({str(compiler.SOURCES / 'cells.c')!r}, os.R_OK): print('closed'); os._exit(3)\n"
    script = become + closed + REPORT  # Python itself may lie where only root can read it
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=homeless)
    if done.returncode == 3:
        pytest.skip("this installation is closed to other users")
    assert done.returncode == 0, done.stderr
    state = json.loads(done.stdout)
    assert state["path"] == "compiled" and "no home folder" in state["reason"]
    assert Path(state["library"]).name.startswith("atomizer-kernels-")
    assert open_place.compiled == ["cells", "queries"]
    assert not list((open_place.root / "tmp").iterdir()), "something is left for others to fill"


def test_a_relative_cache_folder_is_not_used(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(folders.root / "home"))
    assert cache.user_folder() == folders.root / "home" / ".cache" / "atomizer_io" / "kernels"


# --- whether it is whole, and made for this package and compiler ---


def truncate(library: Path) -> None:
    library.write_bytes(library.read_bytes()[: library.stat().st_size // 2])


def garbage(library: Path) -> None:
    library.write_bytes(b"not a library")
    with_checksum(library)


def without_checksum(library: Path) -> None:
    library.with_suffix(".sha256").unlink()


@pytest.mark.parametrize("damage", [truncate, garbage, without_checksum])
def test_a_damaged_library_is_rebuilt_once(folders: Folders, damage: Callable[[Path], None]) -> None:
    folders.plant()  # cannot be loaded under this name twice, as a compiled one already in this process could
    (library,) = folders.folder.glob("cells-*.so")
    damage(library)
    assert status().path == "compiled"
    assert folders.compiled == ["cells", "queries"] and folders.libraries == ["cells", "queries"]
    forget()
    assert status().path == "compiled"
    assert folders.compiled == ["cells", "queries"]


def test_another_version_of_the_compiler_is_another_library(folders: Folders) -> None:
    status()
    (folders.root / "version").write_text("cc 2.0\n")
    forget()
    state = status()
    assert state.compiler is not None and "cc 2.0" in state.compiler
    assert folders.compiled == ["cells", "queries"] * 2
    assert folders.libraries == ["cells", "cells", "queries", "queries"]


@pytest.mark.parametrize("change", ["FLAGS", "_processor"])
def test_other_flags_or_processor_are_another_library(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    state = compiler.find_compiler()
    assert state is not None
    before = state.key("cells", torch.float32)
    new = {"FLAGS": (*compiler.FLAGS, "-g"), "_processor": lambda: "another"}[change]
    monkeypatch.setattr(compiler, change, new)
    assert state.key("cells", torch.float32) != before


@pytest.mark.parametrize("what", ["ABI", "MAX_HEADS", "structure"])
def test_a_library_that_disagrees_with_python_is_not_used(
    folders: Folders, what: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Larger(layout.Cells):
        _fields_ = (("more", ctypes.c_int64),)

    assert status().path == "compiled"
    forget()
    if what == "structure":
        monkeypatch.setattr(layout, "TASKS", {**layout.TASKS, "cells": (Larger,)})
    else:
        monkeypatch.setattr(layout, what, getattr(layout, what) + 1)
    state = status()
    assert state.path == "plain" and "structures and limits" in state.reason
    assert build.library("cells", torch.float32) is None
    assert folders.compiled.count("cells") == 2  # once more, in case that the library was an old one
    assert "without its compiled kernels" in caplog.text


# --- compiling ---


def report(result: Path) -> None:
    result.write_text(status().path)


def test_four_processes_compile_once(folders: Folders) -> None:
    results = [folders.root / f"result-{number}" for number in range(4)]
    errors = [folders.root / f"errors-{number}" for number in range(4)]
    environment = folders.environment()
    running = [start(report, r, errors=e, **environment) for r, e in zip(results, errors, strict=True)]
    for process, result, messages in zip(running, results, errors, strict=True):
        assert exit_code(process) == 0 and not messages.read_text(), messages.read_text()
        assert result.read_text() == "compiled"
    assert sorted(folders.compiled) == ["cells", "queries"]
    names = sorted(path.name for path in folders.folder.iterdir())
    assert [name.split("-")[0] for name in names] == ["cells", "cells", "queries", "queries"]


def test_a_cache_that_cannot_be_written_is_done_without(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    state = status()
    assert state.path == "compiled" and state.library is not None and state.library.parent == folders.root / "tmp"
    assert state.library.stat().st_mode & 0o777 == 0o700


def test_the_temporary_folder_goes_with_the_process(folders: Folders, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/dev/null/cache")
    done = subprocess.run([sys.executable, "-c", REPORT], capture_output=True, text=True, check=True)
    assert Path(json.loads(done.stdout)["library"]).parent == folders.root / "tmp"
    assert not list((folders.root / "tmp").iterdir())


def test_without_openmp_the_kernels_give_way_to_the_threads_of_torch(
    folders: Folders, caplog: pytest.LogCaptureFixture
) -> None:
    (folders.root / "without-openmp").touch()
    case = (torch.float32, torch.device("cpu"), 32, 4, 64)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        one, used = status(), cells.usable(*case)
        torch.set_num_threads(2)
        two, still_used = status(), cells.usable(*case)
        calls.kernels_of("cells", torch.float32)  # a backward pass ends as its forward pass began
    finally:
        torch.set_num_threads(before)
    assert (one.path, one.openmp, used) == ("compiled", False, True)
    assert (two.path, two.openmp, still_used) == ("plain", False, False) and "OpenMP" in two.reason
    assert [record.getMessage().count("OpenMP") for record in caplog.records] == [1]


# --- what is logged ---


def test_a_failing_compiler_is_logged_once_with_its_error(folders: Folders, caplog: pytest.LogCaptureFixture) -> None:
    (folders.root / "cc").write_text("#!/bin/sh\necho 'x.c:1: error: no cheese' >&2\necho terminated >&2\nexit 1\n")
    caplog.set_level(logging.DEBUG)
    state = status()
    assert build.library("queries", torch.float64) is None
    assert state.path == "plain" and state.reason.endswith("could not compile cells.c: x.c:1: error: no cheese")
    assert state.library is None and state.compiler == str(folders.root / "cc")
    (line,) = [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]
    assert state.reason in line and "Install a C compiler" in line and "ATOMIZER_KERNELS=off" in line
    assert "no cheese\nterminated" in caplog.text  # all of it, for who looks closer


def test_switched_off_is_not_worth_a_word(
    folders: Folders, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("ATOMIZER_KERNELS", "off")
    state = status()
    assert (state.path, state.reason, state.compiler) == ("plain", "ATOMIZER_KERNELS is off", None)
    assert not caplog.records and not folders.compiled


def test_status_of_compiled_kernels(folders: Folders) -> None:
    state = status()
    assert (state.path, state.library, state.openmp) == ("compiled", folders.folder, True)
    assert state.compiler == f"{folders.root / 'cc'} (cc 1.0)" and state.threads == torch.get_num_threads()
    assert folders.folder.stat().st_mode & 0o777 == 0o700
