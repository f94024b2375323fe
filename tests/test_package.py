"""What is installed equals what is cloned: the wheel that the sdist builds has every file and does the same."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder into which the wheel was unpacked; it is built from the sdist, as `python -m build` does."""
    folder = tmp_path_factory.mktemp("package")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, timeout=200)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def test_the_wheel_has_every_file_of_the_package_and_every_config(installed: Path) -> None:
    tracked = subprocess.run(
        ["git", "ls-files", "src", "configs"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    expected = {re.sub("^(src/|(?=configs/))", "", name) for name in tracked.stdout.split()}
    expected = {f"atomizer_io/{name}" if name.startswith("configs/") else name for name in expected}
    packed = {path.relative_to(installed).as_posix() for path in installed.rglob("*") if path.is_file()}
    assert expected <= packed
    assert all(re.match(r"atomizer_io-[^/]+\.dist-info/", name) for name in packed - expected)


def test_an_installed_package_trains_from_its_own_configs_and_loads_what_it_saved(
    installed: Path, tmp_path: Path
) -> None:
    code = "import atomizer_io, sys; assert atomizer_io.__file__.startswith(sys.argv.pop(1)), atomizer_io.__file__; "
    code += "from atomizer_io.cli import main; sys.exit(main(sys.argv[1:]))"
    command = [sys.executable, "-c", code, str(installed)]
    env = {**os.environ, "PYTHONPATH": str(installed)}
    options = [
        "training.max_steps=2",
        "data.options={like: sen1floods11, size: 32, length: 4}",
        "training.baselines=false",
    ]
    train = [*command, "train", "configs/synthetic.yaml", "--quiet", *options]
    ran = subprocess.run(train, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=200)
    assert ran.returncode == 0, ran.stderr
    (model,) = tmp_path.glob("runs/*/best")
    ran = subprocess.run([*command, "info", str(model)], cwd=tmp_path, env=env, capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr


def test_the_lock_has_the_version_and_a_checksum_of_every_constraint_but_torch() -> None:
    pins = re.findall(r"^([\w.-]+)==([\w.]+)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    lock = re.findall(
        r"^([\w.-]+)==(\S+) \\\n +--hash=sha256:[0-9a-f]{64}", (ROOT / "requirements.lock").read_text(), re.M
    )
    locked = {_canonical(name): version for name, version in lock}
    assert len(pins) > 50
    for name, version in pins:
        assert name == "torch" or locked[_canonical(name)] == version


def test_the_check_of_words_refuses_a_folder_that_is_not_there() -> None:
    ran = subprocess.run([sys.executable, "tools/words.py", "src/nowhere"], cwd=ROOT, capture_output=True, text=True)
    assert ran.returncode == 2 and "no such file or folder: src/nowhere" in ran.stderr


def _canonical(name: str) -> str:
    return re.sub("[-_.]+", "-", name).lower()
