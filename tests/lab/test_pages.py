"""Parts of pages: charts whose numbers can be read, tables that sort, matrices, tabs."""

from __future__ import annotations

import itertools
import math
import re

from atomizer_lab.pages.charts import LEFT, RIGHT, WIDTH, Axes, Series, chart, dots, powers, ticks
from atomizer_lab.pages.parts import gallery, page, tabs
from atomizer_lab.pages.tables import NOTHING, Cell, Head, confusion, table


def test_ticks_are_round_numbers_inside() -> None:
    assert ticks(0.0, 100.0) == [0, 20, 40, 60, 80, 100]
    assert ticks(0.612, 0.688) == [0.62, 0.64, 0.66, 0.68]
    assert ticks(5.0, 5.0) == [5.0]
    assert powers(1.8, 90.0) == [2, 5, 10, 20, 50] and powers(0.9, 2e6) == [1, 10, 100, 1000, 10_000, 100_000, 1e6]


def test_a_chart_has_a_dot_for_each_point_inside_its_frame() -> None:
    series = [
        Series("a & b", [(1.0, 50.0), (10.0, 70.0), (100.0, 60.0)], "ours"),
        Series("ViT", [(30, 65)], "c2", line=False),
    ]
    shown = chart("cost", series, Axes("GFLOP", "mIoU (%)", x_log=True))
    places = [float(x) for x in re.findall(r'cx="([\d.]+)"', shown)]
    assert len(places) == 4 and all(LEFT <= x <= WIDTH - RIGHT for x in places)
    assert abs(places[1] - places[0] - (places[2] - places[1])) < 0.2  # tenfold is as far as tenfold
    assert "a &amp; b: 10, 70" in shown and shown.count("<polyline") == 1
    assert chart("nothing", [Series("x", [], "ours")], Axes("x", "y")) == ""


def test_dots_of_a_row_share_a_track_and_names_keep_their_colours() -> None:
    shown = dots("title", {"chip": {"Atomizer-IO": 80.0, "ResNet": 70.0}, "series": {"other": 60.0}}, "%")
    assert shown.count('class="track"') == 2 and shown.count("<circle") == 3
    assert 'class="f-ours ring"' in shown and 'class="f-c1 ring"' in shown
    assert dots("title", {}, "%") == ""


def test_no_dot_hides_another_and_no_name_is_cut() -> None:
    shown = dots("title", {"chip": {"UNet": 80.0, "Atomizer-IO": 80.0, "ResNet": 80.01, "ViT": 60.0}}, "%")
    places = [(float(x), float(y)) for x, y in re.findall(r'cx="([\d.]+)" cy="([\d.]+)"', shown)]
    assert len(places) == 4 and min(math.dist(a, b) for a, b in itertools.combinations(places, 2)) > 6
    ours, other = (re.search(rf'cy="([\d.]+)" r="6"><title>{name}', shown) for name in ("Atomizer-IO", "ViT"))
    assert ours and other and ours[1] == other[1]  # on the track itself, and drawn last
    assert shown.rindex("<circle") == shown.index('<circle class="f-ours')
    points = [(number, 1.0) for number in range(3)]
    named = chart(
        "title", [Series("a", points, "c1")], Axes("x", "y", places=["all", "half", "every fourth band of 224"])
    )
    (x,) = re.findall(r'x="([\d.]+)" [^>]*>every fourth', named)
    assert float(x) + len("every fourth band of 224") * 3.5 <= WIDTH


def test_a_table_has_heads_to_press_and_groups_above_them() -> None:
    heads = [Head("row"), Head("paper", "MNIST", "paper"), Head("here", "MNIST", "here"), Head("x", "ours", "here")]
    shown = table(heads, [[Cell("a<b", "a<b"), Cell("1.0", 1.0), NOTHING, Cell("2", 2)]])
    assert re.findall(r'<button data-column="(\d)">', shown) == ["0", "1", "2", "3"]
    assert re.findall(r'colspan="(\d)">(\w*)<', shown) == [("1", ""), ("2", "MNIST"), ("1", "ours")]
    assert "a&lt;b" in shown and 'data-value="1.0"' in shown and '<td data-value="" class="none">–</td>' in shown


def test_a_matrix_is_in_percent_of_the_truth_and_a_class_without_truth_has_none() -> None:
    shown = confusion([[3, 1], [0, 0]], ["water", "dry"], "ResNet")
    assert "75.0" in shown and 'title="1 of 4"' in shown and shown.count("–") == 2
    assert shown.count("<i style") == 4 and "<i style" not in confusion([[1, 0], [0, 1]], ["0", "1"], "ViT")


def test_tabs_show_the_chosen_panel_and_one_panel_needs_none() -> None:
    assert tabs({"only": "<p>body</p>"}, "name") == "<p>body</p>"
    shown = tabs({"a": "1", "b": "2"}, "name", chosen="b")
    assert re.findall(r'aria-selected="(\w+)"', shown) == ["false", "true"]
    assert set(re.findall(r'aria-controls="(\S+)"', shown)) == set(re.findall(r'panel" id="(\S+)"', shown))


def test_a_page_holds_its_script_only_if_there_is_one() -> None:
    assert "<script>" not in page("a & b", "body") and "<title>a &amp; b</title>" in page("a & b", "body")
    assert "<script>go()</script>" in page("t", "body", script="go()")
    assert gallery([("data:,", "a<b", "")]).count("<br>") == 0
