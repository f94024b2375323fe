"""The page in a real browser: switches, a click, the dial, labels, saving; quiet, local and without unescaped text."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from atomizer_io.viewer.server import Server
from browser import browser
from chips import CORNER, read
from chromium import Chromium
from conftest import FIELD, HEIGHT, WIDTH

SIZE = (1000, 700)
LABELLED = 12
SHARES = "[...document.querySelectorAll('#legend small')].map(s => s.textContent).join()"
BARS = (
    "[...document.querySelectorAll('#panel-Query .bars')]"
    ".map(table => [...table.querySelectorAll('td:last-child')].map(cell => parseFloat(cell.textContent)))"
)


class Opened:
    """The page, and where its pixels are on the screen."""

    def __init__(self, tab: Chromium) -> None:
        self.tab = tab
        tab.until("document.body?.dataset.ready")
        box = tab.run("(b => [b.x, b.y, b.width, b.height])(document.getElementById('map').getBoundingClientRect())")
        self.scale = min((box[2] - 48) / WIDTH, (box[3] - 80) / HEIGHT)
        self.corner = box[0] + box[2] / 2 - self.scale * WIDTH / 2, box[1] + box[3] / 2 + 16 - self.scale * HEIGHT / 2

    def click(self, row: float, column: float) -> None:
        self.tab.click(self.corner[0] + self.scale * column, self.corner[1] + self.scale * row)

    def press(self, selector: str) -> None:
        self.tab.run(f"document.querySelector({selector!r}).click()")

    def enter(self, selector: str, value: str) -> None:
        script = f"(e => {{ e.value = {value!r}; e.dispatchEvent(new Event('change')); }})"
        self.tab.run(f"{script}(document.querySelector({selector!r}))")


def test_the_page(server: Server, tmp_path: Path) -> None:
    browser()
    with Chromium(tmp_path / "profile", SIZE) as tab:
        tab.open(server.address)
        page = Opened(tab)
        before = tab.run(SHARES)

        page.press("#panel-Switches .many input")
        tab.until("document.querySelector('#panel-Switches .figure b')")
        assert tab.run(SHARES) != before
        page.press("#panel-Switches > button")

        page.click(10.5, 20.5)
        tab.until("document.querySelector('#panel-Query .bars')")
        shares = tab.run(BARS)
        assert all(abs(sum(column) - 100) < 0.5 for column in shares)
        click = server.session.at({"x": CORNER[0] + 205, "y": CORNER[1] - 105})
        assert max(shares[0]) == round(100 * max(click["outputs"]), 1)

        page.press("#tab-Cost")
        page.enter("#panel-Cost select", "zone-probe")
        tab.until("document.querySelector('#panel-Cost .facts')")
        assert f"of {HEIGHT * WIDTH:,}" in tab.run("document.querySelector('#panel-Cost .facts').textContent")

        page.press("#tab-Label")
        for name in ("low", "high"):
            page.enter("#panel-Label form input", name)
            page.press("#panel-Label form button")
        for number in range(LABELLED):
            pixels = np.argwhere(bool(number % 2) == FIELD)
            row, column = pixels[(number * 53 + 29) % len(pixels)]
            page.press(f"#panel-Label .classes label:nth-child({4 + number % 2}) input")
            page.click(row + 0.5, column + 0.5)
        tab.until(f"document.querySelector('#panel-Label .figure b')?.textContent.startsWith('{LABELLED} ')")
        labels = tab.run("document.querySelector('#panel-Label .classes').innerText")
        assert labels.count("6") == 2

        page.press("#panel-Label button.main")
        tab.until("document.querySelector('#panel-Label > .hint').textContent.startsWith('Saved')")
        folder = server.session.output / "save-1"
        saved = read(folder / "map.tif")[0]
        right = (saved == FIELD).mean()
        assert right > max(FIELD.mean(), 1 - FIELD.mean()) + 0.05
        assert (folder / "model" / "model.safetensors").is_file() and (folder / "labels.gpkg").is_file()

        assert tab.run("document.images.length") == 0
        assert tab.run("document.documentElement.scrollWidth") <= SIZE[0]
        assert not tab.noise, tab.noise
        local = (f"http://127.0.0.1:{server.port}/", "blob:", "data:")
        assert tab.requests and all(address.startswith(local) for address in tab.requests)
