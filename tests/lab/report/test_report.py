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


def test_columns_that_the_paper_does_not_have_stand_in_a_block_of_their_own(tmp_path: Path) -> None:
    write_item(tmp_path, "table2", "small", {"0": {"numbers": {"UNet": {"Rondônia": 71.0}}}})
    groups, heads, *rows = Tables(page_of(tmp_path)).found["table2, small"]
    assert groups == ["", "here (small)", "paper (tab:single_task_results)"] and heads[1] == "Rondônia"
    assert {row[0]: row[1] for row in rows}["UNet"] == "71.0"
    assert {row[0]: row[2] for row in rows}["RAMEN"] == "92.1"


def test_the_best_of_a_column_is_marked_and_errors_are_best_when_low(tmp_path: Path) -> None:
    numbers = {"ResNet": {"chip": 80.0, "canopy height": 60.0}, "ViT": {"chip": 70.0, "canopy height": 50.0}}
    write_item(tmp_path, "table2", "small", {"0": {"numbers": numbers}})
    best = re.findall(r'class="here best">([\d.]+)<', page_of(tmp_path))
    assert best == ["80.0", "50.0"]


def test_the_gain_by_aggregation_stands_next_to_the_papers(tmp_path: Path) -> None:
    numbers = ({"joint": {"T = 6": 60.0 + n}, "aggregated": {"T = 6": 64.0 + 2 * n}} for n in range(2))
    write_item(tmp_path, "temporal", "small", {f"seed {n}": {"numbers": cells} for n, cells in enumerate(numbers)})
    groups, _, *rows = Tables(page_of(tmp_path)).found["temporal, small"]
    assert groups[1] == "T = 6" and {row[0]: row[1:3] for row in rows}["gain by aggregation"] == ["4.85", "4.50 ± 0.71"]


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


def test_older_files_are_shown(tmp_path: Path) -> None:
    runs = {f"sen1floods11, seed {n}": {"result": {"miou": 0.8 + 0.01 * n}, "arguments": {"seed": n}} for n in range(2)}
    (tmp_path / "small-data.json").write_text(json.dumps({"what": "scores", "runs": runs}))
    (tmp_path / "mnist.json").write_text(json.dumps({"scores": {"test": {"accuracy": 0.987}}, "note": "shared cores"}))
    page = page_of(tmp_path)
    tables = Tables(page).found
    assert tables["small-data.json: runs"] == [
        ["", "miou"],
        *([f"sen1floods11, seed {n}", f"{0.8 + 0.01 * n:.4g}"] for n in range(2)),
    ]
    assert tables["mnist.json: scores"] == [["", "accuracy"], ["test", "0.987"]]
    assert "shared cores" in panel(page, "other measurements")


def test_rows_that_were_measured_on_several_days_say_so(tmp_path: Path) -> None:
    def row(model: str, day: str, commit: str) -> dict[str, object]:
        machine = {"date": f"2026-11-{day}T10:00:00", "commit": commit, "processor": "a", "threads": 2}
        figures = {"answer_s": 0.5, "step_s": None, "stopped": None}  # old name
        return {"input": "xview2", "model": model, **figures, "limits": {"repeats": 2}, "machine": machine}

    whole = {"rows": [{"way": "dense", "seconds": 9.8}]}
    document = {"benchmark": "models", "rows": [row("unet", "18", "new"), row("ramen", "17", "old")], "whole": whole}
    (tmp_path / "models.json").write_text(json.dumps(document))
    page = page_of(tmp_path)
    tables = Tables(page).found
    assert tables["models.json: rows"] == [
        ["", "input", "model", "answer_s", "day", "commit"],  # old name
        ["0", "xview2", "unet", "0.5", "2026-11-18", "new"],
        ["1", "xview2", "ramen", "0.5", "2026-11-17", "old"],
    ]
    assert tables["models.json: whole predictions"][1] == ["0", "dense", "9.8"]
    assert "2026-11-17T10:00:00, commit old; 2026-11-18T10:00:00, commit new" in panel(page, "other measurements")
    assert tables["what was run"][1][-4:-1] == ["2026-11-18 10:00", "old, new", "a, threads: 2"]


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


def test_malformed_looks_and_doubles_are_named(tmp_path: Path) -> None:
    write_item(tmp_path, "table2", "small", {"0": scores(["ResNet"], ["chip"], 0)})
    path = write_looks(tmp_path, "table2-small", ["chip"], ["ResNet"])
    looks = json.loads(path.read_text())
    next(iter(looks["runs"].values()))["columns"]["chip"]["picture"] = {"file": "x.png"}  # old name
    path.write_text(json.dumps(looks))
    with pytest.raises(DataError, match=r"table2-small.*malformed.*'in'"):
        page_of(tmp_path)
    path.write_text("{}")
    with pytest.raises(DataError, match=r"looks.json.*'data' is malformed"):
        page_of(tmp_path)
    path.unlink()
    (tmp_path / "again.json").write_bytes((tmp_path / "table2-small.json").read_bytes())
    with pytest.raises(DataError, match=r"again.json is of the same item and scale"):
        page_of(tmp_path)


def test_no_folder_of_results_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "--results", str(tmp_path / "none")]) == 2
    assert "no such folder of results" in capsys.readouterr().err


def test_missing_figures_name_the_command_that_makes_them(tmp_path: Path) -> None:
    results, work = tmp_path / "results", tmp_path / "runs"
    write_item(results, "table2", "small", {"0": scores(["ResNet"], ["chip"], 0)})
    write_looks(results, "table2-small", ["chip"], ["ResNet"], work)
    assert not list(results.rglob("*.png"))
    with_figures, without = page_of(results, work), page_of(results)
    assert with_figures.count("<img") == 3 and "not published with the results" not in with_figures
    assert without.count("<img") == 0 and "3 figures show data that are not published" in without
    assert "atomizer reproduce table2 --scale small --data DATA" in without.partition("not published")[2]


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


def test_datasets_of_the_compute_figure_have_charts_of_their_own(tmp_path: Path) -> None:
    cells = {"mIoU": 80.0, "GFLOP": 2.0, "GFLOP as written": 3.0, "decoded, %": 100.0}
    rows = {f"{data}: {name}": cells for data in ("BurnScars", "PASTIS") for name in ("dense, κ 100", "ResNet")}
    write_item(tmp_path, "compute", "paper", {"0": {"numbers": rows}})
    titles = re.findall(r'<svg [^>]*aria-label="([^"]*)"', panel(page_of(tmp_path), "paper"))
    assert titles == [
        f"Here, paper, {data}: FLOPs {way}"
        for data in ("BurnScars", "PASTIS")
        for way in ("as computed here", "as the paper writes it")
    ]


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


SCRIPT_TAG = "<script>alert(1)</script>"


def test_text_of_result_files_is_escaped_everywhere(tmp_path: Path) -> None:
    """A script stands behind every text of a file, then behind its names: the page never has one more."""
    write_everything(tmp_path / "results", tmp_path / "work")
    count = page_of(tmp_path / "results", tmp_path / "work").count("<script>")
    shown = 0
    for path in sorted((tmp_path / "results").rglob("*.json")):
        whole = path.read_text(encoding="utf-8")
        for hostile in (with_scripts(json.loads(whole), keys=keys) for keys in (False, True)):
            path.write_text(json.dumps(hostile), encoding="utf-8")
            try:
                page = page_of(tmp_path / "results", tmp_path / "work")
            except DataError:
                continue  # refused, which is as good
            finally:
                path.write_text(whole, encoding="utf-8")
            assert page.count("<script>") == count, path.name
            shown += "&lt;script&gt;" in page
    assert shown >= 15, shown


def test_predictions_of_digits_are_escaped(tmp_path: Path) -> None:
    write_everything(tmp_path / "results", tmp_path / "work")
    path = next(path for path in (tmp_path / "results").rglob("looks.json") if "digits" in path.read_text())
    looks = json.loads(path.read_text())
    looks["digits"][0]["truth"] = f'"{SCRIPT_TAG}'  # old name
    next(iter(looks["digits"][0]["columns"].values()))["answers"] = {"ViT": SCRIPT_TAG}  # old name
    path.write_text(json.dumps(looks))
    page = page_of(tmp_path / "results", tmp_path / "work")
    assert SCRIPT_TAG not in page and page.count("&lt;script&gt;") >= 2


def with_scripts(value: object, *, keys: bool) -> object:
    """``value`` with a script behind every text, of names as well if ``keys``; what finds files stays."""
    if isinstance(value, dict):
        known = ("item", "scale", "file", "in", "data")
        return {
            (f"{key}{SCRIPT_TAG}" if keys and key not in STRUCTURE else key): (
                inner if key in known and isinstance(inner, str) else with_scripts(inner, keys=keys)
            )
            for key, inner in value.items()
        }
    if isinstance(value, list):
        return [with_scripts(inner, keys=keys) for inner in value]
    return f"{value}{SCRIPT_TAG}" if isinstance(value, str) else value


STRUCTURE = (
    *("item", "scale", "command", "unit", "protocol", "label", "paper", "found", "machine", "runs"),
    *("arguments", "document", "seed", "result", "minutes", "numbers", "steps", "seconds", "decode", "score"),
    *("rows", "mean", "values", "data", "classes", "inputs", "target", "title", "note", "file", "in", "row"),
    *("columns", "curve", "points", "training", "samples", "confusion", "inner", "cells", "quadtree"),
    *("attention", "shares", "maps", "latents", "digits", "benchmark", "gflops", "total", "alpha"),
    *("settings", "budget", "neighbors", "atoms_per_latent", "strategy", "miou"),
    *("spread", "picture", "place", "truth", "answers"),  # old name
)
