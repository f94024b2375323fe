"""Styles of QGIS: XML that lists the classes with their codes, names and colours."""

from __future__ import annotations

from xml.etree.ElementTree import Element, fromstring

import pytest

from atomizer_io.data.task_spec import TaskSpec
from atomizer_io.prediction.products import MapClasses
from atomizer_io.prediction.qgis_style import paletted, ramp, sizes


def renderer(style: str) -> Element:
    element = fromstring(style).find("pipe/rasterrenderer")
    assert element is not None and element.get("band") == "1"
    return element


def test_classes_have_the_codes_names_and_colours_of_the_map() -> None:
    names = ("forest", 'a "b" <c> & d\x07\n', "wässer")
    legend = MapClasses.of(TaskSpec(num_outputs=3, class_names=names, class_codes=(7, -2, 300))).legend
    style = renderer(paletted(legend))
    assert style.get("type") == "paletted"
    entries = style.findall("colorPalette/paletteEntry")
    assert [(entry.get("value"), entry.get("label")) for entry in entries] == [
        ("7", "forest"),
        ("-2", 'a "b" <c> & d\ufffd\n'),
        ("300", "wässer"),
    ]
    colours = ["#" + "".join(f"{round(255 * part):02x}" for part in colour) for _, colour in legend.values()]
    assert [entry.get("color") for entry in entries] == colours


def test_a_ramp_reaches_from_end_to_end() -> None:
    style = renderer(ramp(0.0, 1.0))
    assert style.get("type") == "singlebandpseudocolor"
    items = style.findall("rastershader/colorrampshader/item")
    assert [float(item.get("value", "")) for item in items] == [0, 0.25, 0.5, 0.75, 1]


@pytest.mark.parametrize("classes", [1, 2, 9])
def test_sizes_of_sets_have_a_colour_each(classes: int) -> None:
    entries = renderer(sizes(classes)).findall("colorPalette/paletteEntry")
    assert [entry.get("value") for entry in entries] == [str(number) for number in range(1, classes + 1)]
    assert len({entry.get("color") for entry in entries}) == classes
    assert entries[0].get("label") == "1 class"
