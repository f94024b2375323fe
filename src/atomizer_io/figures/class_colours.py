"""Colours of classes that mean something: ground is brown, vegetation green, a building red, water blue.

All can be distinguished in print: they differ in lightness too. Classes of other names get colours of their own.
"""

from __future__ import annotations

import colorsys
import itertools
import re
from collections.abc import Iterator, Sequence

Colour = tuple[float, float, float]  # red, green, blue from 0 to 1

BROWNS = ("#8c5a2b", "#c8a06a")
GREENS = {"low": "#b8de7a", "medium": "#5aae48", "high": "#146b2e"}
REDS = ("#cc241d", "#f28e82")
BLUES = ("#2166c0", "#8fbdf0")
GREYS = ("#8a8a8a", "#555555")
OTHERS = ("#f5b700", "#7b3fa0", "#00a5b5", "#e64fa3", "#20222a", "#ff7f0e", "#b39ddb", "#00695c", "#9e4b6c", "#c0c020")
UNKNOWN, RIGHT, WRONG = "#d4d4d4", "#b9c4d0", "#e0007a"
# what a class is called: the first that matches decides
WORDS: tuple[tuple[str, tuple[str, ...]], ...] = (
    (r"other|unclassified|unassigned|unknown|noise|clutter|permanent", GREYS),
    (r"(low|herb|short)\w* veg|grass|meadow|lawn|crop|field", (GREENS["low"], GREENS["medium"], GREENS["high"])),
    (r"(medium|mid)\w* veg|shrub|bush|hedge", (GREENS["medium"], GREENS["low"], GREENS["high"])),
    (r"veg|tree|forest|canopy|wood", (GREENS["high"], GREENS["medium"], GREENS["low"])),
    (r"dry|land\b", BROWNS[::-1]),
    (r"ground|terrain|soil|earth|bare|sand", BROWNS),
    (r"building|roof|house|construction|facade", REDS),
    (r"water|river|lake|sea|pond", BLUES),
)


def class_colours(names: Sequence[str], used: Sequence[Colour] = ()) -> list[Colour]:
    """Return a colour for each class by its name, never the same for two of them, nor one that others have ``used``.

    Maps, previews and reports all take the colours of a model's classes from here.
    """
    suitable: list[list[str]] = []
    for name in names:
        plain = re.sub(r"[_\W]+", " ", name.casefold())
        meant = next((shades for words, shades in WORDS if re.search(rf"\b({words})", plain)), ())
        suitable.append([shade for shade in meant if rgb(shade) not in used])
    taken: list[str | None] = [None] * len(names)
    for choice in range(max((len(shades) for shades in suitable), default=0)):  # first choices go first
        for number, shades in enumerate(suitable):
            if taken[number] is None and choice < len(shades) and shades[choice] not in taken:
                taken[number] = shades[choice]
    rest = (colour for colour in _free(taken) if rgb(colour) not in used)
    return [rgb(colour or next(rest)) for colour in taken]


def rgb(text: str) -> Colour:
    """Return a colour like ``#8c5a2b`` as numbers."""
    red, green, blue = (int(text[i : i + 2], 16) / 255 for i in (1, 3, 5))
    return red, green, blue


def _free(taken: Sequence[str | None]) -> Iterator[str]:
    """Yield the colours that no class has taken, then ever new ones."""
    yield from (colour for colour in OTHERS if colour not in taken)
    for number in itertools.count(1):
        lightness = (0.35, 0.5, 0.7)[number % 3]
        parts = colorsys.hls_to_rgb(number * 0.618034 % 1, lightness, 0.6)
        yield "#" + "".join(f"{round(255 * part):02x}" for part in parts)
