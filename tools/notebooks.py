"""Run the notebooks in examples/ and write their pages, with what they printed and drew, into docs/learn.

    python tools/notebooks.py [NAME ...] [--output docs/learn]

About a minute of one core each. Pages are kept in git, so that the site is built in seconds; run this after an example,
or what it shows, has changed.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
from pathlib import Path

import jupytext
from nbconvert import MarkdownExporter
from nbconvert.preprocessors import ExecutePreprocessor

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = [path.stem for path in sorted((ROOT / "examples").glob("*.py")) if path.read_text().startswith("# %%")]
LINK = "[This page as a notebook]({}.ipynb), about a minute of one core.\n\n"


def page(name: str, folder: Path) -> None:
    """Run one notebook in an empty folder, and write its page and figures."""
    notebook = jupytext.read(ROOT / "examples" / f"{name}.py")
    with tempfile.TemporaryDirectory() as work:
        ExecutePreprocessor(timeout=1800, kernel_name="python3").preprocess(notebook, {"metadata": {"path": work}})
    resources = {"unique_key": name, "output_files_dir": f"{name}_files"}
    text, made = MarkdownExporter().from_notebook_node(notebook, resources)
    text = re.sub(r"\n{3,}", "\n\n", re.sub(r" +$|\x1b\[[0-9;]*m", "", text, flags=re.MULTILINE))
    heading, _, rest = text.lstrip().partition("\n\n")
    text = f"{heading}\n\n{LINK.format(name)}{rest}"
    for number, file in enumerate(made["outputs"]):
        text = text.replace(f"![png]({file})", f"![{heading.lstrip('# ')}: figure {number + 1}]({file})")
    for file, content in made["outputs"].items():
        (folder / file).parent.mkdir(parents=True, exist_ok=True)
        (folder / file).write_bytes(content)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.md").write_text(text.rstrip() + "\n", encoding="utf-8")


def main() -> int:
    """Run those that are named, or all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", default=NOTEBOOKS, metavar="NAME")
    parser.add_argument("--output", type=Path, default=ROOT / "docs" / "learn")
    args = parser.parse_args()
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    for name in args.names:
        page(name, args.output.resolve())
        print(f"{name}: done", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
