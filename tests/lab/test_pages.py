"""Parts of pages: charts whose numbers can be read, tables that sort, matrices, tabs."""

from __future__ import annotations

import re

from atomizer_lab.report.charts import Axes, Series, chart
from atomizer_lab.report.pages import TEMPLATES, Confusion, figure, render


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
