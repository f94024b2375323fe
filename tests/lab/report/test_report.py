"""The page about results: the paper's numbers beside ours, scales apart, what is missing, and the page in a browser."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from atomizer_io.cli import main
from atomizer_io.errors import DataError
from atomizer_lab.paper.registry import ITEMS, item
from atomizer_lab.report.charts import Axes, Series, chart
from atomizer_lab.report.pages import TEMPLATES, Confusion, figure, render
from atomizer_lab.report.report import write_report
from browser import opened
from report_results import scores, write_everything, write_item, write_looks


class Tables(HTMLParser):
    """The tables of a page by their names: rows of texts of cells."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.found: dict[str, list[list[str]]] = {}
        self.name = ""
        self.inside = False
        self.feed(page)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "table":
            self.name = dict(attrs).get("aria-label") or ""
            self.found[self.name] = []
        elif tag == "tr" and self.name:
            self.found[self.name].append([])
        self.inside = self.inside or tag in ("td", "th")
        if tag in ("td", "th") and self.name:
            self.found[self.name][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag in ("td", "th"):
            self.inside = False
        elif tag == "table":
            self.name = ""

    def handle_data(self, data: str) -> None:
        if self.inside and self.name:
            self.found[self.name][-1][-1] += data


def page_of(folder: Path, work: Path | None = None) -> str:
    return write_report(folder, work or folder / "nowhere", folder / "page" / "report.html").read_text(encoding="utf-8")


def panel(page: str, scale: str) -> str:
    """The part of the page of one scale."""
    starts = {
        match[1]: match.start() for match in re.finditer(r'<h3 class="alone">(small|paper|smoke|other \w+)<', page)
    }
    ends = sorted([*starts.values(), len(page)])
    return page[starts[scale] : ends[ends.index(starts[scale]) + 1]]


@pytest.fixture(scope="module")
def everything(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with results of several items, two scales and figures."""
    folder = tmp_path_factory.mktemp("report")
    write_everything(folder / "results", folder / "work")
    return write_report(folder / "results", folder / "work", folder / "report.html")


def test_the_papers_number_stands_next_to_the_measured_one(tmp_path: Path) -> None:
    runs = {f"seed {n}": {"numbers": {"Atomizer-IO": {"MNIST": 97.0 + n}}} for n in range(3)}
    write_item(tmp_path, "rope", "small", runs)
    groups, heads, *rows = Tables(page_of(tmp_path)).found["rope, small"]
    assert heads[:3] == ["row", "paper", "here"] and groups[1] == "MNIST"
    by_name = {row[0]: row[1:3] for row in rows}
    assert by_name["Atomizer-IO"] == ["99.37", "98.00 ± 1.00"]
    assert by_name["Atomizer-IO without RoPE"] == ["29.48", "–"]


def test_scales_are_never_in_one_table(tmp_path: Path) -> None:
    write_item(tmp_path, "rope", "small", {"0": {"numbers": {"Atomizer-IO": {"MNIST": 97.13}}}})
    write_item(tmp_path, "rope", "smoke", {"0": {"numbers": {"Atomizer-IO": {"MNIST": 11.87}}}})
    page = page_of(tmp_path)
    small, smoke = (str(Tables(page).found[f"rope, {scale}"]) for scale in ("small", "smoke"))
    assert "97.13" in small and "11.87" not in small and "11.87" in smoke and "97.13" not in smoke
    assert "11.87" not in panel(page, "small") and "97.13" not in panel(page, "smoke")
    assert "their numbers mean nothing" in panel(page, "smoke")


def test_what_is_missing_is_named_with_its_command(tmp_path: Path) -> None:
    write_item(tmp_path, "rope", "small", {"0": {"numbers": {"Atomizer-IO": {"MNIST": 97.0}}}})
    page = page_of(tmp_path)
    for scale in ("small", "paper", "smoke"):
        named = set(re.findall(rf"atomizer reproduce ([a-z0-9-]+) --scale {scale}", panel(page, scale)))
        assert named >= {name for name in ITEMS if scale in item(name).scales}
        listed = panel(page, scale).partition("What is missing")[2]
        assert ("reproduce rope " in listed) == (scale != "small")
        assert ("reproduce hyperspectral " in listed) == (scale != "paper")  # the paper has no such data


def test_an_empty_folder_gives_an_empty_page(tmp_path: Path) -> None:
    assert "holds no results yet" in page_of(tmp_path)


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("{", "not JSON"),
        ("[1]", "names and values"),
        ('{"item": "tabel2", "scale": "small"}', "no item 'tabel2'"),
        ('{"item": "rope", "scale": "large"}', "scale is 'large'"),
        ('{"item": "rope", "scale": "small", "paper": {}, "found": {}}', "'runs' is missing"),
        ('{"item": "rope", "scale": "small", "paper": {}, "found": {"a": {"b": 1}}, "runs": {}}', "no mean"),
        ('{"item": "rope", "scale": "small", "paper": {}, "found": {}, "runs": {"x": {}}}', "'x' has no result"),
    ],
)
def test_a_malformed_file_is_named(tmp_path: Path, text: str, cause: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "rope-small.json").write_text(text)
    assert main(["report", "--results", str(tmp_path), "--output", str(tmp_path / "page.html")]) == 2
    message = capsys.readouterr().err
    assert "rope-small.json" in message and cause in message and not (tmp_path / "page.html").exists()


def test_everything_is_on_the_page_with_its_command(everything: Path) -> None:
    page = everything.read_text(encoding="utf-8")
    small = panel(page, "small")
    for text in ("Confusion matrices", "Training curves", "latent cells", "where a quadtree decodes", "wrong"):
        assert text in small, text
    assert "attention to sentinel1 VV" in small and "90 of 100" in small and "✓" in page
    assert small.count("<svg") >= 15  # compute, sensitivity, ablations, channels, dates, digits, curves
    for section in re.findall(r'<section id="(\S+)-small">', small):
        data = "" if section in ("complexity", "parameters", "partition") else " --data DATA"
        assert f"made by <code>atomizer reproduce {section} --scale small{data}</code>" in small
    sources = re.findall(r'src="([^"]*)"', page)
    assert len(sources) > 20 and all(source.startswith("data:image/png;base64,") for source in sources)
    assert not re.search(r"https?://|@import|url\(", page)


INTERACT = """
const heads = document.querySelector('table[aria-label="table3, small"]').tHead.rows[1].cells;
const values = () => [...document.querySelector('table[aria-label="table3, small"]').tBodies[0].rows]
  .map(row => row.cells[2].dataset.value).filter(value => value !== "").map(Number);
const press = () => heads[2].querySelector("button").click();
press();
found.falling = values();
press();
found.rising = values();
const shown = () => [...document.querySelectorAll(".scales > .panel")].filter(part => part.offsetParent).length;
found.panels = shown();
const tabs = [...document.querySelectorAll(".scales > [role=tablist] > [role=tab]")];
tabs[2].click();
found.smoke = document.getElementById("table2-smoke").offsetParent !== null;
found.small = document.getElementById("table2-small").offsetParent !== null;
tabs[2].dispatchEvent(new KeyboardEvent("keydown", { key: "ArrowLeft" }));
found.chosen = tabs.map(tab => tab.getAttribute("aria-selected")).join();
tabs[0].click();
document.querySelectorAll("details").forEach(part => { part.open = true; });
found.wide = Math.max(found.wide, document.documentElement.scrollWidth - window.innerWidth);
found.ground = getComputedStyle(document.body).backgroundColor;
"""


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_a_browser_shows_it_whole_and_tables_and_tabs_work(
    everything: Path, tmp_path: Path, width: int, dark: bool
) -> None:
    shown = opened(everything, tmp_path, width, dark=dark, script=INTERACT)
    page = shown.counts
    assert shown.whole and "error" not in page, (page, shown.log)
    assert page["width"] == width and page["dark"] is dark and page["images"] > 20
    assert len(page["falling"]) > 5 and page["falling"] == sorted(page["falling"], reverse=True)
    assert page["rising"] == sorted(page["falling"])
    assert page["panels"] == 1 and page["smoke"] and not page["small"]
    assert page["chosen"] == "false,true,false,false"
    assert (page["ground"] == "rgb(20, 22, 27)") is dark


@pytest.mark.parametrize("how", ["absolute", "above", "link", "folder link", "place", "none"])
def test_no_file_outside_of_the_folder_gets_into_the_page(tmp_path: Path, how: str) -> None:
    """What ``looks.json`` calls a figure is a name in its own folder: nothing else is ever embedded."""
    results, secret = tmp_path / "results", tmp_path / "secret.png"
    secret.write_bytes(b"the secret of this machine")
    write_item(results, "table2", "small", {"0": scores(["ResNet"], ["chip"], 0)})
    path = write_looks(results, "table2-small", ["chip"], ["ResNet"])
    (path.parent / "link.png").symlink_to(secret)
    (path.parent / "inner").symlink_to(tmp_path, target_is_directory=True)
    name = {"absolute": str(secret), "above": "../../secret.png", "link": "link.png", "folder link": "inner/secret.png"}
    looks = json.loads(path.read_text())
    preview = {"file": name.get(how), "in": ["work"] if how == "place" else "results"}
    looks["runs"]["ResNet, chip"]["columns"]["chip"]["picture"] = preview  # old name
    path.write_text(json.dumps(looks))
    with pytest.raises(DataError, match=r"table2-small.*malformed"):
        page_of(results)
    assert not (results / "page").exists()


def test_a_chart_has_the_colours_of_the_page_and_no_address() -> None:
    shown = chart("$x", [Series("$a_", ((0, 1.0), (1, 2.0)), "c3")], Axes("\x00$", "y", names=("<b>", "$")))
    assert shown is not None and "var(--c3)" in shown.svg and "var(--line)" in shown.svg
    assert not re.search(r"#[0-9a-f]{6}|https?:|url\(|<style|<b>", shown.svg) and "&lt;b&gt;" in shown.svg


def test_a_matrix_is_in_percent_of_the_targets_and_a_class_without_any_has_none() -> None:
    shown = shown_part("confusion", Confusion.of("ResNet", ["water", "dry"], [[3, 1], [0, 0]]))
    assert "75.0" in shown and 'title="1 of 4"' in shown and shown.count("–") == 2 and shown.count("<i style") == 4
    assert "<i style" not in shown_part("confusion", Confusion.of("ViT", ["0", "1"], [[1, 0], [0, 1]]))


def test_a_page_holds_its_style_and_escapes_its_texts() -> None:
    assert "<script>" not in render("page.html") and "prefers-color-scheme" in render("page.html")
    assert shown_part("gallery", [figure(b"png", "a<b")]).count("<br>") == 0
    assert "a&lt;b" in shown_part("gallery", [figure(b"png", "a<b")])


def shown_part(name: str, *values: object) -> str:
    return str(getattr(TEMPLATES.get_template("parts.html").module, name)(*values))
