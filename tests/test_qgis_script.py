"""The Processing script of QGIS starts commands that the parser accepts; QGIS itself is not needed for that."""

from __future__ import annotations

import ast
import shlex
from pathlib import Path
from typing import Any

import pytest

from atomizer_io.cli import build_parser

SCRIPT = Path(__file__).parents[1] / "examples" / "qgis_atomizer.py"


@pytest.mark.parametrize(
    ("task", "how"),
    [
        (0, {"sensors": ["sentinel2", ""], "model": "runs/flood/best", "more": "--layers confidence --fill"}),
        (1, {"labels": "fields.gpkg", "column": "crop", "more": "--max-time 10m"}),
    ],
)
def test_its_commands_are_known(task: int, how: dict[str, Any]) -> None:
    tree = ast.parse(SCRIPT.read_text(encoding="utf-8"))
    names = {"PREDICT": 0, "MAP": 1, "shlex": shlex}
    own = [node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == "command"]
    exec(compile(ast.Module(own, []), SCRIPT.name, "exec"), names)
    words = names["command"]("atomizer", task, ["s2.tif", "s1.tif"], "map.tif", **how)[1:]
    args = build_parser(words).parse_args(words)
    assert [raster["path"] for raster in args.raster] == ["s2.tif", "s1.tif"]
    assert args.output == Path("map.tif")
