"""Refuse words that are not the field's own, so that a reader who knows the literature finds things by searching.

    python tools/words.py                        # what `./run check` runs: folders that are free of them stay so
    python tools/words.py src/atomizer_io/io     # every occurrence below a folder or in a file
    python tools/words.py --count                # occurrences by folder and by word

Words are compared as a whole, in prose as in names: ``num_answers`` and ``AnswerTable`` both hold one. A line that ends
in ``# old name`` is left out: it reads a setting, or a key of a file, that an earlier version wrote. Strings handed to
``generator`` are left out too, as they decide the random numbers.

Left to review, since they are also used in senses that are right: ``place``, ``draw``, ``square``, ``turn``, ``cloud``
(weather), ``keep``, ``part``, ``clip``, ``start``, ``tell``, ``say``, ``round``; ``problem`` is a key of saved models.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
READ = ("src", "tests", "tools", "examples", "docs", "configs", "README.md", "CONTRIBUTING.md")
SUFFIXES = {".py", ".md", ".yaml", ".yml", ".html", ".j2", ".css", ".js", ".cpp"}
# folders, and files, whose words are refused by `./run check`
CLEAN: tuple[str, ...] = (
    "src/atomizer_io/cli",
    "src/atomizer_io/prediction",
    "src/atomizer_io/models",
    "src/atomizer_io/decoding",
    "src/atomizer_io/data",
    "src/atomizer_io/datasets",
    "src/atomizer_io/export",
    "src/atomizer_io/figures",
    "src/atomizer_io/io",
    "src/atomizer_io/viewer",
    "tests/viewer",
    *(
        f"src/atomizer_lab/{room}"
        for room in ("baselines", "bench", "commands", "demo", "lidar", "paper", "report", "synthetic")
    ),
    "src/atomizer_lab/matrix.py",
    "tests/cli",
    "tests/prediction",
    "tests/models",
    "tests/decoding",
    "tests/data",
    "tests/datasets",
    "tests/export",
    "tests/faults",
    "tests/figures",
    "tests/io",
    *(f"tests/lab/{x}" for x in ("baselines", "bench", "paper", "report", "synthetic")),
    "tools",
    "src/atomizer_io/training",
    "tests/training",
    "examples",
    "configs",
    "docs",
    "README.md",
    "CONTRIBUTING.md",
)

# a word, in any of its forms -> what the field says
RETIRED = {
    "rival rivals": "baseline",
    "made-up": "synthetic",
    "settle settles settled settling": "warm start, initialisation",
    "asker askers": "predictor",
    "answer answers answered answering unanswered": "predict; prediction, output, logits",
    "ask asks asked asking unasked": "query, decode; request",
    "truth truths": "target, label",
    "unseen": "validation, held-out",
    "read-out read-outs readout": "decode, decoding",
    "picture pictures": "figure, preview",
    "averaging": "EMA; mean",
    "abilities": "capabilities",
    "quantity quantities": "regression target; variable",
    "operations": "FLOPs",
    "squares": "crops (training), blocks (calibration)",
    "turns": "rotations",
    "spread": "standard deviation",
    "open-run open-runs": "early stopping",
    "told tells says said": "report, log, print, state",
}
VARIABLES = {"found", "each", "some", "other", "wanted", "given"}
# what is right in spite of a word in it
PHRASES = re.compile(
    r"(ordinary |weighted |ridge |non-negative )?least[ -]squares|(sums?|means?|roots?) of( the)? squares|mean squares"
    r"|(integer|floating[ -]point|matrix|element-?wise|in-?place|onnx|set|file|atomic) operations"
    r"|physical quantit(y|ies)|scalar quantit(y|ies)|ground[ -]truth"
    r"|spread (over|across|out|evenly|between)|turns? (into|out|off|on)\b|frequently asked",
    re.IGNORECASE,
)
# files that name the words on purpose
EXCEPTIONS = {
    "tools/words.py": "the list itself",
    "src/atomizer_io/viewer/page/vendor/maplibre-gl.css": "MapLibre's own",
    "src/atomizer_io/training/config.py": "the table of old option names",
    "docs/lab/diary.md": "dated notes, as they were written",
}
# words that are right in one file
ALLOWED = {
    ("docs/how-to/export.md", "answer"): "the name of the output in exported files",
    ("docs/how-to/calibration.md", "operations"): "the key of saved calibrations",
    ("docs/lab/faults.md", "answers"): "the key of results/faults.json",
    ("docs/how-to/compute-budget.md", "asked"): "the key of results of `atomizer evaluate`",
    ("src/atomizer_io/datasets/las_folder.py", "variable other"): "an option of configs: the class of other codes",
    ("tests/export/test_formats.py", "answer"): "the name of the output in exported files",
}
SAY = {form: say for forms, say in RETIRED.items() for form in forms.split()}
PAIRS = {form for form in SAY if "-" in form}
NAME = re.compile(r"[A-Za-z_][A-Za-z_0-9]*")
PART = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
SALT = re.compile(r"(generator\([^()]*?)([\"'])[^\"']*\2")


def files(only: list[str]) -> list[str]:
    """Return the files of the repository whose words count, or those of them in some folders."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", *(only or READ)]
    names = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\n")
    return [name for name in names if Path(name).suffix in SUFFIXES and (ROOT / name).is_file() and allowed(name)]


def allowed(name: str) -> bool:
    """Return whether the words of a file count."""
    return name not in EXCEPTIONS and any(name == room or name.startswith(f"{room}/") for room in READ)


def occurrences(name: str) -> Iterator[tuple[int, str]]:
    """Yield the line and the word of each retired word of a file; its own name is line 0."""
    text = (ROOT / name).read_text(encoding="utf-8")
    yield from ((0, word) for word in words(Path(name).stem))
    lines = text.splitlines()
    for number, line in enumerate(lines, 1):
        if not line.rstrip().endswith("# old name"):
            yield from ((number, word) for word in words(SALT.sub(r"\1", PHRASES.sub(" ", line))))
    if name.endswith(".py"):
        yield from ((number, f"variable {word}") for number, word in variables(text))


def words(line: str) -> Iterator[str]:
    """Yield the retired words of a line, also those that are part of a name."""
    previous, end = "", 0
    for part in PART.finditer(line):
        word = part[0].lower()
        pair = f"{previous}-{word}"
        if line[end : part.start()] in (" ", "-", "_", "") and pair in PAIRS:
            yield pair
        elif word in SAY:
            yield word
        previous, end = word, part.end()


def variables(text: str) -> Iterator[tuple[int, str]]:
    """Yield the variables and parameters that are named by a pronoun; ``other`` of ``__eq__`` and its like may be."""
    tree = ast.parse(text)
    operators = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and node.name.startswith("__"):
            operators |= {argument for argument in node.args.args if argument.arg == "other"}
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and node.id in VARIABLES:
            yield node.lineno, node.id
        elif isinstance(node, ast.arg) and node.arg in VARIABLES and node not in operators:
            yield node.lineno, node.arg


def folder_of(name: str) -> str:
    """Return the folder that a file is counted under."""
    parts = Path(name).parent.parts
    return "/".join(parts[: 3 if parts and parts[0] == "src" else 2]) or name


def main() -> int:
    """Print what was asked for; return 1 when a word stands where it is refused."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folders", nargs="*", help="folders or files to look through (default: those that are clean)")
    parser.add_argument("--count", action="store_true", help="count by folder and by word instead of listing")
    args = parser.parse_args()
    only = args.folders or ([] if args.count else list(CLEAN))
    if absent := [name for name in only if not (ROOT / name).exists()]:
        parser.error(f"no such file or folder: {', '.join(absent)} (CLEAN in tools/words.py names what is looked at)")
    by_folder: dict[str, Counter[str]] = {}
    for name in files(only):
        for number, word in occurrences(name):
            if (name, word) in ALLOWED:
                continue
            by_folder.setdefault(folder_of(name), Counter())[word] += 1
            if not args.count:
                say = SAY.get(word, "a noun")
                sys.stdout.write(f"{name}:{number}: {word!r} -> {say}\n")
    if args.count:
        for folder, count in sorted(by_folder.items()):
            common = ", ".join(f"{word} {number}" for word, number in count.most_common(6))
            sys.stdout.write(f"{count.total():6,d} {folder:34} {common}\n")
        total = sum((count for count in by_folder.values()), Counter[str]())
        sys.stdout.write(f"{total.total():6,d} in all: {', '.join(f'{w} {n}' for w, n in total.most_common())}\n")
        return 0
    return 1 if by_folder else 0


if __name__ == "__main__":
    sys.exit(main())
