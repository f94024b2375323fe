"""Parts of a page: its frame, cards of numbers, galleries, legends, tabs, and cells with bars."""

from __future__ import annotations

import html
import zlib
from collections.abc import Iterable, Mapping

from atomizer_lab.pages.style import STYLE

Picture = tuple[str, str, str]  # its address, its name and a remark


def page(title: str, body: str, *, style: str = "", script: str = "") -> str:
    """Return a whole page; ``style`` and ``script`` are added to what every page has."""
    return f"""<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
<title>{html.escape(title)}</title>
<style>{STYLE}{style}</style>
</head>
<body><main>
{body}
</main>{f"<script>{script}</script>" if script else ""}</body>
</html>
"""


def facts(numbers: Mapping[str, str]) -> str:
    """Return cards with a number each, by what they say."""
    cards = "".join(
        f"<div><dd>{html.escape(value)}</dd><dt>{html.escape(name)}</dt></div>" for name, value in numbers.items()
    )
    return f'<dl class="facts">{cards}</dl>'


def gallery(pictures: Iterable[Picture]) -> str:
    """Return pictures side by side, each with its name and a remark."""
    figures = "".join(
        f'<figure><img alt="{html.escape(name)}" src="{source}"><figcaption><b>{html.escape(name)}</b>'
        f"{f'<br>{html.escape(remark)}' if remark else ''}</figcaption></figure>"
        for source, name, remark in pictures
    )
    return f'<div class="maps">{figures}</div>'


def legend(colours: Mapping[str, str]) -> str:
    """Return what colours mean."""
    items = "".join(
        f'<li><i style="background:{colour}"></i>{html.escape(name)}</li>' for name, colour in colours.items()
    )
    return f'<ul class="keys">{items}</ul>'


def bar(share: float, most: float, style: str) -> str:
    """Return a cell with a bar and its number."""
    return (
        f'<td class="bar"><span class="{style}" style="width:{70 * share / most:.1f}%"></span>{100 * share:.1f} %</td>'
    )


def tabs(panels: Mapping[str, str], name: str, style: str = "", chosen: str | None = None) -> str:
    """Return panels of which one is shown at a time; without JavaScript all are, each below its title.

    ``name`` tells the tabs of a page apart; ``chosen`` is shown at first, or the first. A single panel has no tabs.
    """
    if len(panels) == 1:
        return next(iter(panels.values()))
    mark = f"{zlib.crc32(name.encode()):08x}"
    buttons, bodies = [], []
    for number, (title, body) in enumerate(panels.items()):
        own, now = f"{mark}-{number}", title == (chosen or next(iter(panels)))
        state = f'aria-selected="{"true" if now else "false"}" tabindex="{0 if now else -1}"'
        buttons.append(
            f'<button role="tab" id="tab-{own}" aria-controls="panel-{own}" {state}>{html.escape(title)}</button>'
        )
        bodies.append(
            f'<div role="tabpanel" class="panel" id="panel-{own}" aria-labelledby="tab-{own}">'
            f'<h3 class="alone">{html.escape(title)}</h3>{body}</div>'
        )
    label = html.escape(name)
    return (
        f'<div class="tabs {style}"><div role="tablist" aria-label="{label}">{"".join(buttons)}</div>'
        f"{''.join(bodies)}</div>"
    )
