"""Write the pages of the site that come from the program itself: every command and option, every setting, the schema.

    python tools/site.py

They go into docs/reference, are not kept in git, and are made before the site is built; so are notebooks to download.
"""

from __future__ import annotations

import argparse
import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jupytext

from atomizer_io.cli import build_parser
from atomizer_io.datasets.registry import dataset_class, list_datasets, options_of
from atomizer_io.models.atomizer.config import AtomizerConfig
from atomizer_io.option_types import in_words
from atomizer_io.texts import json_text
from atomizer_io.training.augmentation import ChannelDropout
from atomizer_io.training.config import DataSettings, ModelSettings, Run, TrainingSettings
from atomizer_io.training.point_augmentation import PointAugmentation
from atomizer_io.training.schema import schema

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
REFERENCE = DOCS / "reference"
GROUPS = {
    "The run": ("", Run),
    "Data": ("data.", DataSettings),
    "Model": ("model.", ModelSettings),
    "Training": ("training.", TrainingSettings),
    "Channel dropout": ("training.channel_dropout.", ChannelDropout),
    "Augmentation of points": ("training.point_augmentation.", PointAugmentation),
    "Architecture of Atomizer-IO": ("model.settings.", AtomizerConfig),
}
SETTINGS = """\
# Settings

Every key of the YAML file of a run, from the code. On the command line any of them is `key=value`:
`atomizer train my.yaml training.epochs=3`. What the settings are for is in [training](../how-to/training.md).

`atomizer completion schema` prints the same as [JSON schema](settings.schema.json), with which editors complete and
check the file: write `# yaml-language-server: $schema=settings.schema.json` into its first line.
"""
COMMANDS = """\
# Commands

Every command and option, from the parser. `atomizer COMMAND --help` prints the same; `atomizer completion bash` lets
the shell complete them (`pip install 'atomizer-io[completion]'`).
"""


def commands() -> str:
    """Return the page of all commands."""
    return "\n".join([COMMANDS, *of_parser(build_parser([], whole=True), 1)])


def of_parser(parser: argparse.ArgumentParser, level: int) -> Iterator[str]:
    """Yield the lines about the commands below a parser."""
    for action in parser._actions:
        if not isinstance(action, argparse._SubParsersAction):
            continue
        helps = {shown.dest: shown.help or "" for shown in action._choices_actions}
        for name, command in action.choices.items():
            yield f"{'#' * (level + 1)} {command.prog}\n"
            yield f"{(command.description or helps.get(name, '')).strip()}\n"
            yield from options(command)
            yield from of_parser(command, level + 1)


def options(parser: argparse.ArgumentParser) -> Iterator[str]:
    """Yield a table of the options and arguments of a command."""
    shown = [action for action in parser._actions if action.dest != "help" and action.help != argparse.SUPPRESS]
    shown = [action for action in shown if not isinstance(action, argparse._SubParsersAction)]
    if shown:
        yield "| option | |\n|---|---|"
    for action in shown:
        formatter = parser._get_formatter()
        name = cell(formatter._format_action_invocation(action))
        yield f"| `{name}` | {cell(formatter._expand_help(action)) if action.help else ''} |"
    yield ""


def settings() -> str:
    """Return the page of all settings."""
    lines = [SETTINGS]
    for title, (prefix, kind) in GROUPS.items():
        lines += [f"## {title}\n", f"{inspect.cleandoc(kind.__doc__ or '')}\n".replace("``", "`"), *keys(prefix, kind)]
    lines.append("## Options of datasets\n")
    for name in list_datasets():
        text = [f"`{option}`" for option in options_of(dataset_class(name))]
        lines.append(f"- `{name}`: {', '.join(text)}")
    return "\n".join(re.sub(r":class:`~?[\w.]*?(\w+)`", r"`\1`", line) for line in lines) + "\n"


def keys(prefix: str, kind: Any) -> Iterator[str]:
    """Yield a table of the fields of a dataclass with types, defaults and the comments beside them."""
    hints, notes = typing.get_type_hints(kind), comments(kind)
    yield "| key | is | default | |\n|---|---|---|---|"
    for field in dataclasses.fields(kind):
        if dataclasses.is_dataclass(hints[field.name]):
            continue
        default = "" if field.default is dataclasses.MISSING else f"`{field.default!r}`"
        default = default if len(default) < 40 else "…"
        words = cell(in_words(hints[field.name]))
        yield f"| `{prefix}{field.name}` | {words} | {cell(default)} | {notes.get(field.name, '')} |"
    yield ""


def comments(kind: Any) -> dict[str, str]:
    """Return the comment beside each field of a dataclass, or in the line above it."""
    notes: dict[str, str] = {}
    for base in reversed(kind.__mro__[:-1]):
        above = ""
        for line in inspect.getsource(base).splitlines():
            code, _, comment = line.partition("# ")
            named = re.match(r"    (\w+): ", code)
            if named:
                notes[named[1]] = cell(comment or above)
            above = comment if not code.strip() else ""
    return notes


def cell(text: str) -> str:
    """Return a text as the cell of a table."""
    return " ".join(text.split()).replace("|", "\\|")


def main() -> int:
    """Write all pages."""
    pages = {
        "commands.md": commands(),
        "settings.md": settings(),
        "settings.schema.json": json_text(schema(), indent=1),
    }
    for name, text in pages.items():
        (REFERENCE / name).write_text(text + "\n", encoding="utf-8")
    for path in sorted((DOCS / "learn").glob("*.md")):
        jupytext.write(jupytext.read(ROOT / "examples" / f"{path.stem}.py"), path.with_suffix(".ipynb"))
    return 0


if __name__ == "__main__":
    sys.exit(main())
