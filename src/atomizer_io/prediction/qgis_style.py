"""Styles of QGIS beside maps: ``map.qml``, which QGIS applies when it opens ``map.tif``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from xml.sax.saxutils import quoteattr

from atomizer_io.errors import printable
from atomizer_io.figures.class_colours import Colour, rgb

RAMP = ("#440154", "#3b528b", "#21918c", "#5ec962", "#fde725")  # viridis, as in previews
HEAD = "<!DOCTYPE qgis PUBLIC 'http://mrcc.com/qgis.dtd' 'SYSTEM'>\n"


def paletted(legend: Mapping[int, tuple[str, Colour]]) -> str:
    """Return a style that shows each number of the first band in its colour, by ``{code: (name, colour)}``."""
    entries = "".join(
        f'        <paletteEntry value="{code}" color="{_hex(colour)}" alpha="255" label={_attribute(name)}/>\n'
        for code, (name, colour) in legend.items()
    )
    return _style("paletted", f"      <colorPalette>\n{entries}      </colorPalette>\n")


def ramp(low: float, high: float, colours: Sequence[str] = RAMP) -> str:
    """Return a style that shows the first band in colours from ``low`` to ``high``."""
    steps = [low + (high - low) * number / (len(colours) - 1) for number in range(len(colours))]
    items = "".join(
        f'          <item value="{value:g}" color="{colour}" alpha="255" label="{value:g}"/>\n'
        for value, colour in zip(steps, colours, strict=True)
    )
    limits = f'classificationMode="1" clip="0" minimumValue="{low:g}" maximumValue="{high:g}"'
    shader = f'        <colorrampshader colorRampType="INTERPOLATED" {limits}>\n{items}        </colorrampshader>\n'
    bounds = f' classificationMin="{low:g}" classificationMax="{high:g}"'
    return _style("singlebandpseudocolor", f"      <rastershader>\n{shader}      </rastershader>\n", bounds)


def sizes(classes: int) -> str:
    """Return a style for the sizes of prediction sets, 1 … ``classes``: the fewer, the lighter."""
    shades = [_between(number / max(1, classes - 1)) for number in range(classes)]
    names = (f"{number} class{'es' if number > 1 else ''}" for number in range(1, classes + 1))
    return paletted(dict(enumerate(zip(names, shades, strict=True), 1)))


def _between(share: float) -> Colour:
    """Return the colour at a share of the ramp, from its end."""
    stops = [rgb(colour) for colour in reversed(RAMP)]
    at = share * (len(stops) - 1)
    first = min(int(at), len(stops) - 2)
    red, green, blue = (a + (b - a) * (at - first) for a, b in zip(stops[first], stops[first + 1], strict=True))
    return red, green, blue


def _style(kind: str, content: str, bounds: str = "") -> str:
    return (
        f'{HEAD}<qgis version="3.22.0" styleCategories="Symbology">\n  <pipe>\n'
        f'    <rasterrenderer type="{kind}" band="1" alphaBand="-1" opacity="1" nodataColor=""{bounds}>\n'
        f"      <rasterTransparency/>\n{content}    </rasterrenderer>\n"
        '    <brightnesscontrast brightness="0" contrast="0"/>\n    <huesaturation saturation="0"/>\n'
        '    <rasterresampler maxOversampling="2"/>\n  </pipe>\n  <blendMode>0</blendMode>\n</qgis>\n'
    )


def _hex(colour: Colour) -> str:
    return "#" + "".join(f"{round(255 * part):02x}" for part in colour)


def _attribute(text: str) -> str:
    return quoteattr(printable(text))
