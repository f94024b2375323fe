"""The command ``atomizer``: one module for each sub-command, imported only when it is called.

A command module has a docstring whose first line is its help, ``add_arguments(parser)`` and ``run(args) -> int``. A
package adds a command by an entry point of the group ``atomizer_io.commands`` that names its module.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import importlib
import importlib.util
import sys
import warnings
from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any, TextIO

from atomizer_io.errors import AtomizerError, printable
from atomizer_io.extras import advice

COMMANDS = (
    "calibrate",
    "completion",
    "data",
    "doctor",
    "embed",
    "evaluate",
    "export",
    "info",
    "map",
    "predict",
    "train",
    "view",
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``atomizer`` with ``argv`` (default: the command line); returns the exit code."""
    # warnings are printed without the line of code that they come from
    warnings.formatwarning = lambda message, *_: printable(f"warning: {message}\n")
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = build_parser(arguments)
    args, rest = parser.parse_known_args(arguments)
    if rest:  # argparse does not see key=value behind an option
        if not hasattr(args, "options") or any(text.startswith("-") or "=" not in text for text in rest):
            parser.error(f"unrecognized arguments: {' '.join(rest)}")
        args.options += rest
    if args.command is None:
        parser.print_help(sys.stderr)
        return 2
    try:
        with contextlib.redirect_stdout(Printable(sys.stdout)):
            return int(args.run(args))
    except AtomizerError as error:
        complain(f"error: {error}", error)
        return 2
    except ModuleNotFoundError as error:
        if advice(error) is None:
            raise
        complain(f"error: {advice(error)}")
        return 2
    except BrokenPipeError:  # the reader, such as head, has closed the pipe
        sys.stderr.close()
        return 0
    except OSError as error:  # a file or folder that cannot be written
        complain(f"error: {error}", error)
        return 2
    except KeyboardInterrupt as error:
        complain("interrupted", error)
        return 130


class Printable:
    """A stream to print to: names of files, and what is read from them, cannot control the terminal."""

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        """Write a text without its control characters."""
        return self.stream.write(printable(text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def complain(line: str, error: BaseException | None = None) -> None:
    """Print a line and the notes of an error to standard error."""
    print(printable("\n".join([line, *getattr(error, "__notes__", ())])), file=sys.stderr)


def build_parser(arguments: Sequence[str], whole: bool = False) -> argparse.ArgumentParser:
    """Return a parser of all commands; only the one in ``arguments``, or the ``whole``, is imported."""
    from atomizer_io import __version__

    parser = argparse.ArgumentParser(prog="atomizer", description="Observations from any sensor in, predictions out.")
    parser.add_argument("--version", action="version", version=f"atomizer-io {__version__}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", title="commands")
    named = next((argument for argument in arguments if not argument.startswith("-")), None)
    for name, module in sorted(modules().items()):
        text = docstring(module)
        command = commands.add_parser(
            name,
            help=text.partition("\n")[0],
            description=text,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        if whole or name == named:
            loaded = importlib.import_module(module)
            loaded.add_arguments(command)
            command.set_defaults(run=loaded.run)
    return parser


def modules() -> dict[str, str]:
    """Return the module of each command by its name: those of this package, and those that other packages add."""
    added = {point.name: point.value for point in entry_points(group="atomizer_io.commands")}
    return added | {name: f"{__name__}.{name}" for name in COMMANDS}


def docstring(module: str) -> str:
    """Return the help text of a command, read without importing what the command needs."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise ModuleNotFoundError(f"there is no module {module}")
    return ast.get_docstring(ast.parse(Path(spec.origin).read_text(encoding="utf-8"))) or ""
