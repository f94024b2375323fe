"""The report of a map: one HTML page that needs no other file; every name in it is escaped."""

from __future__ import annotations

import base64
import datetime
from typing import TYPE_CHECKING

from jinja2 import Environment, PackageLoader, StrictUndefined

from atomizer_io import __version__
from atomizer_io.errors import printable

if TYPE_CHECKING:
    from atomizer_io.mapping.label_map import LabelMap

TEMPLATES = Environment(
    loader=PackageLoader("atomizer_io.mapping"),
    autoescape=True,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
)
TEMPLATES.filters["byte"] = lambda share: round(255 * share)  # of a colour


def report(made: LabelMap) -> str:
    """Return the page."""
    own = (made.scores.get("scores") or {}).get("test") or {}
    baselines = ((made.scores.get("baselines") or {}).get("scores") or {}).get("test") or {}
    page = TEMPLATES.get_template("report.html").render(
        made=made,
        preview=base64.b64encode(made.product.files["preview.png"].read_bytes()).decode(),
        sizes=[(size, count) for size, count in enumerate(made.sizes) if count],
        pixels=max(1, sum(made.sizes)),
        scores=[("this model", own), *baselines.items()] if own and baselines else [],
        version=__version__,
        today=datetime.date.today().isoformat(),
    )
    return printable(page)
