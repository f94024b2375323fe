"""Parts of pages: charts whose numbers can be read, tables that sort, matrices, tabs."""

from __future__ import annotations

import itertools
import math
import re

from markupsafe import Markup

from atomizer_lab.report.charts import Axes, Series, chart, dots
from atomizer_lab.report.pages import NOTHING, TEMPLATES, Cell, Confusion, Head, Table, figure, render, tabs


def spots(svg: str) -> list[tuple[float, float]]:
    return [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', svg)]


def width(svg: str) -> float:
    return float(re.findall(r'viewBox="0 0 ([\d.]+) ', svg)[0])


def test_a_chart_has_a_dot_for_each_point_inside_its_frame() -> None:
    series = [
        Series("a & b <c>", ((1.0, 50.0), (10.0, 70.0), (100.0, 60.0)), "ours"),
        Series("ViT", ((30, 65),), "c2", line=False, labelled=True),
    ]
    shown = chart("cost", series, Axes("GFLOP", "mIoU (%)", x_log=True))
    assert shown is not None and shown.keys == (("a & b <c>", "ours"), ("ViT", "c2"))
    across = [x for x, _ in spots(shown.svg)]
    assert len(across) == 4 and all(0 <= x <= width(shown.svg) for x in across)
    assert abs(across[1] - across[0] - (across[2] - across[1])) < 0.2  # tenfold is as far as tenfold
    assert (
        "a &amp; b &lt;c&gt;: 10, 70" in shown.svg and ">ViT</text>" in shown.svg and 'aria-label="cost"' in shown.svg
    )
    assert chart("nothing", [Series("x", (), "ours")], Axes("x", "y")) is None


def test_a_chart_has_the_colours_of_the_page_and_no_address() -> None:
    shown = chart("$x", [Series("$a_", ((0, 1.0), (1, 2.0)), "c3")], Axes("\x00$", "y", names=("<b>", "$")))
    assert shown is not None and "var(--c3)" in shown.svg and "var(--line)" in shown.svg
    assert not re.search(r"#[0-9a-f]{6}|https?:|url\(|<style|<b>", shown.svg) and "&lt;b&gt;" in shown.svg


def test_dots_of_a_row_share_a_track_and_names_keep_their_colours() -> None:
    shown = dots("title", {"chip": {"Atomizer-IO": 80.0, "ResNet": 70.0}, "series": {"other": 60.0}}, "%")
    assert shown is not None and len({y for _, y in spots(shown.svg)}) == 2 and len(spots(shown.svg)) == 3
    assert dict(shown.keys) == {"Atomizer-IO": "ours", "ResNet": "c1", "other": "unet"}
    assert dots("title", {}, "%") is None


def test_no_dot_hides_another_and_the_own_one_stays_on_the_track() -> None:
    shown = dots("title", {"chip": {"UNet": 80.0, "Atomizer-IO": 80.0, "ResNet": 80.01, "ViT": 60.0}}, "%")
    assert shown is not None and len(spots(shown.svg)) == 4
    assert min(math.dist(a, b) for a, b in itertools.combinations(spots(shown.svg), 2)) > 6
    own, baseline = (re.search(rf'cy="([\d.]+)"[^>]*><title>{name}', shown.svg) for name in ("Atomizer-IO", "ViT"))
    assert own and baseline and own[1] == baseline[1]
    assert shown.svg.rindex("<circle") < shown.svg.index("<title>Atomizer-IO")  # drawn above all


def test_a_table_has_heads_to_press_and_groups_above_them() -> None:
    heads = [Head("row"), Head("paper", "MNIST", "paper"), Head("here", "MNIST", "here"), Head("x", "ours", "here")]
    shown = shown_part("table", Table("t", heads, [[Cell("a<b", "a<b"), Cell("1.0", 1.0), NOTHING, Cell("2", 2)]]))
    assert re.findall(r'<button data-column="(\d)">', shown) == ["0", "1", "2", "3"]
    assert re.findall(r'colspan="(\d)">(\w*)<', shown) == [("1", ""), ("2", "MNIST"), ("1", "ours")]
    assert "a&lt;b" in shown and 'data-value="1.0"' in shown and '<td data-value="" class="none">–</td>' in shown


def test_a_matrix_is_in_percent_of_the_targets_and_a_class_without_any_has_none() -> None:
    shown = shown_part("confusion", Confusion.of("ResNet", ["water", "dry"], [[3, 1], [0, 0]]))
    assert "75.0" in shown and 'title="1 of 4"' in shown and shown.count("–") == 2 and shown.count("<i style") == 4
    assert "<i style" not in shown_part("confusion", Confusion.of("ViT", ["0", "1"], [[1, 0], [0, 1]]))


def test_tabs_show_the_chosen_panel_and_one_panel_needs_none() -> None:
    assert tabs({"only": Markup("<p>body</p>")}, "name").strip() == "<p>body</p>"
    shown = tabs({"a": Markup("1"), "b<c": Markup("2")}, "name", chosen="b<c")
    assert re.findall(r'aria-selected="(\w+)"', shown) == ["false", "true"] and "b&lt;c" in shown
    assert set(re.findall(r'aria-controls="(\S+)"', shown)) == set(re.findall(r'panel" id="(\S+)"', shown))


def test_a_page_holds_its_style_and_escapes_its_texts() -> None:
    assert "<script>" not in render("page.html") and "prefers-color-scheme" in render("page.html")
    assert shown_part("gallery", [figure(b"png", "a<b")]).count("<br>") == 0
    assert "a&lt;b" in shown_part("gallery", [figure(b"png", "a<b")])


def shown_part(name: str, *values: object) -> str:
    return str(getattr(TEMPLATES.get_template("parts.html").module, name)(*values))
