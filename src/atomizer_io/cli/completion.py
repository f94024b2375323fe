"""Print the completion of a shell: `atomizer completion bash > ~/.local/share/bash-completion/completions/atomizer`.

For zsh write it to a file `_atomizer` in a folder of `$fpath`. With `schema` it prints the JSON schema of the settings
of `atomizer train` instead, by which editors complete and check YAML files.
"""

from __future__ import annotations

import argparse


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of ``atomizer completion``."""
    parser.add_argument("of", choices=("bash", "zsh", "tcsh", "schema"), help="the shell, or schema")


def run(args: argparse.Namespace) -> int:
    """Print what completes commands, or settings."""
    if args.of == "schema":
        from atomizer_io.texts import json_text
        from atomizer_io.training.schema import schema

        print(json_text(schema(), indent=2))
        return 0
    import shtab

    from atomizer_io.cli import build_parser

    print(shtab.complete(build_parser([], whole=True), shell=args.of))
    return 0
