"""Pages opened in a headless browser, on a phone and on a desk, by day and by night."""

from __future__ import annotations

import json
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium", "chromium-browser", "google-chrome")
HEIGHT = 900
# what every page must be: all images there, and nothing wider than the window
CHECK = """<script>
window.addEventListener("load", () => {
  const found = {
    width: window.innerWidth,
    dark: matchMedia("(prefers-color-scheme: dark)").matches,
    images: document.images.length,
    broken: [...document.images].filter(image => !image.complete || !image.naturalWidth).length,
    wide: Math.max(0, document.documentElement.scrollWidth - window.innerWidth),
  };
  try { (() => { %s })(); } catch (error) { found.error = String(error); }
  parent.postMessage(JSON.stringify(found), "*");
});
</script>"""
# a window cannot be as narrow as a phone, but a frame in it can
FRAME = """<!doctype html><pre id="found"></pre>
<script>
window.addEventListener("message", event => { document.getElementById("found").textContent = event.data; });
</script>
<iframe src="page.html" width="%d" height="%d"></iframe>"""


@dataclass(frozen=True, slots=True)
class Opened:
    """What a browser counted on a page, and what it wrote to the console."""

    counts: dict[str, Any]
    log: str

    @property
    def whole(self) -> bool:
        """Whether nothing is broken, nothing is too wide, and nothing was written to the console."""
        return self.counts["broken"] == 0 and self.counts["wide"] == 0 and "CONSOLE" not in self.log


def browser() -> str:
    """Return the command of a browser; a test without one is skipped."""
    path = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if path is None:
        pytest.skip(f"no browser to open the page in: install one of {', '.join(BROWSERS)}")
    return path


def opened(page: Path, folder: Path, width: int, *, dark: bool = False, script: str = "") -> Opened:
    """Open a page in a window of some width; ``script`` runs in it and adds to ``counts``."""
    command = browser()
    text = page.read_text(encoding="utf-8")
    assert "</body>" in text
    (folder / "page.html").write_text(text.replace("</body>", f"{CHECK % script}</body>"), encoding="utf-8")
    (folder / "frame.html").write_text(FRAME % (width, HEIGHT), encoding="utf-8")
    shown = subprocess.run(
        [
            *(command, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={folder / 'profile'}"),
            *("--enable-logging=stderr", "--v=0", f"--window-size={width + 100},{HEIGHT + 100}"),
            *(["--force-dark-mode"] if dark else []),
            *("--virtual-time-budget=10000", "--dump-dom", (folder / "frame.html").as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert shown.returncode == 0, shown.stderr
    text = shown.stdout.partition('<pre id="found">')[2].partition("</pre>")[0]
    assert text, shown.stderr
    return Opened(json.loads(text), shown.stderr)
