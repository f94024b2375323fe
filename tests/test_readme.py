"""The files that CONTRIBUTING names are where it states."""

from __future__ import annotations

import re
from pathlib import Path


def test_files_that_recipes_name_exist() -> None:
    root = Path(__file__).parents[1]
    text = (root / "CONTRIBUTING.md").read_text(encoding="utf-8")
    paths = re.findall(r"`([\w./]+/[\w./]+\.(?:py|md|toml|yaml))`", text)
    named = [path for path in paths if "NAME" not in path]
    homes = (root, root / "src" / "atomizer_io", root / "src" / "atomizer_lab")
    assert len(named) > 15
    assert [name for name in named if not any((home / name).exists() for home in homes)] == []
