"""Screenshots of `atomizer view` for docs/how-to/view.md: the scene of a demo and a point cloud, in Chromium.

python tools/view_screenshots.py demo-output            # switches, query, cost, label
python tools/view_screenshots.py runs/lidar/best tile.laz   # points
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "tests"))

from atomizer_io.cli import build_parser  # noqa: E402
from atomizer_io.cli.view import session_of  # noqa: E402
from atomizer_io.viewer.server import Server  # noqa: E402
from chromium import Chromium  # noqa: E402

TARGET, SIZE = ROOT / "docs/how-to/view", (1200, 760)

# number of the class on the page, x and y on the screen: dry, lake, river of the demo's scene at 192 × 192 pixels
DRY = [(1, x, y) for x, y in ((200, 200), (300, 360), (520, 470), (560, 600), (140, 450), (350, 140), (400, 620))]
LAKE = [(3, x, y) for x, y in ((580, 220), (650, 300), (490, 240), (680, 430), (700, 240), (620, 390))]
RIVER = [(4, x, y) for x, y in ((381, 450), (345, 530), (235, 605), (170, 690), (300, 565), (200, 660))]
LABELS = [label for labels in zip(DRY, LAKE, RIVER, strict=False) for label in labels]


def main() -> None:
    """Open the page as the command does, use it, and save what it shows."""
    words = ["view", sys.argv[1]]
    session = session_of(build_parser(words).parse_args(words))
    TARGET.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as folder, Server(session) as server:
        for name, size, use in (("desk", SIZE, rasters), ("phone", (400, 800), phone)):
            with Chromium(Path(folder, name), size, dark=name == "phone") as tab:
                tab.open(server.address)
                tab.until("document.body?.dataset.ready")
                use(tab)


def rasters(tab: Chromium) -> None:
    """Use every tab once."""
    press(tab, "#panel-Switches fieldset:nth-of-type(2) input")
    tab.until("document.querySelector('.figure b')")
    save(tab, "switches")
    press(tab, "#unswipe")
    press(tab, "#panel-Switches > button")
    middle = tab.run(
        "(b => [b.x + b.width / 2, b.y + b.height / 2])(document.getElementById('map').getBoundingClientRect())"
    )
    tab.click(middle[0] + 40, middle[1] - 60)
    tab.until("document.querySelector('#panel-Query .bars')")
    press(tab, "#unswipe")
    save(tab, "query")
    press(tab, "#tab-Cost")
    tab.run(
        "(e => { e.value = 'quadtree'; e.dispatchEvent(new Event('change')); })"
        "(document.querySelector('#panel-Cost select'))"
    )
    tab.until("document.querySelector('#panel-Cost .facts')")
    save(tab, "cost")
    press(tab, "#tab-Label")
    for name in ("lake", "river"):
        tab.run(f"document.querySelector('#panel-Label form input').value = '{name}'")
        press(tab, "#panel-Label form button")
    for child, x, y in LABELS:
        press(tab, f"#panel-Label .classes label:nth-child({child}) input")
        tab.click(x, y)
    tab.until(f"document.querySelector('#panel-Label .figure b')?.textContent.startsWith('{len(LABELS)} ')")
    save(tab, "label")


def phone(tab: Chromium) -> None:
    """Query a position on a small dark screen."""
    tab.click(130, 330)
    tab.until("document.querySelector('#panel-Query .bars')")
    save(tab, "phone")


def press(tab: Chromium, selector: str) -> None:
    """Click an element."""
    tab.run(f"document.querySelector({selector!r}).click()")


def save(tab: Chromium, name: str) -> None:
    """Save what the page shows once it is quiet."""
    tab.until("document.getElementById('busy').hidden")
    time.sleep(2)
    tab.screenshot(TARGET / f"{name}.png")
    assert not tab.noise, tab.noise
    print(TARGET / f"{name}.png")


if __name__ == "__main__":
    main()
