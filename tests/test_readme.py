"""The Python of the README runs as it stands, one block after the other, without a warning."""

from __future__ import annotations

import re
import warnings
from pathlib import Path
from typing import Any

README = Path(__file__).parents[1] / "README.md"


def test_its_python_runs(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), flags=re.DOTALL)
    assert len(blocks) >= 3
    names: dict[str, Any] = {}
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for block in blocks:
            exec(compile(block, str(README), "exec"), names)
    assert {"atoms", "model", "latents", "prediction"} <= names.keys()


def test_the_python_of_the_page_on_models_runs(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    page = README.parent / "docs" / "reference" / "models.md"
    blocks = re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    names: dict[str, Any] = {}
    for block in blocks:
        exec(compile(block, str(page), "exec"), names)
    assert len(names["predictions"]) == 4 and names["predictions"][0].shape[1] == 2


def test_its_commands_exist() -> None:
    from atomizer_io.cli import modules

    called = set(re.findall(r"^atomizer (\w+)", README.read_text(encoding="utf-8"), flags=re.MULTILINE))
    assert called and called <= set(modules())


def test_files_that_recipes_name_exist() -> None:
    root = README.parent
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([\w./]+/[\w./]+\.(?:py|md|toml|yaml))`", text)
    named = [path for path in paths if "NAME" not in path]
    homes = (root, root / "src" / "atomizer_io", root / "src" / "atomizer_lab")
    assert len(named) > 15
    assert [name for name in named if not any((home / name).exists() for home in homes)] == []
