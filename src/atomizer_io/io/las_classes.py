"""The classes of the LAS standard: their codes and what they are called."""

from __future__ import annotations

from atomizer_io.data.channels import plain_name

UNCLASSIFIED = 1
# LAS 1.4, table 17; 64 is IGN's code of the structures that FRACTAL calls permanent
CODES = {
    UNCLASSIFIED: ("unclassified", "other", "unknown", "default", "background"),
    2: ("ground", "terrain", "soil", "bare earth"),
    3: ("low vegetation", "grass"),
    4: ("medium vegetation", "shrub", "shrubs"),
    5: ("vegetation", "high vegetation", "tree", "trees"),
    6: ("building", "buildings", "roof", "roofs"),
    7: ("noise", "low noise", "low point"),
    9: ("water",),
    10: ("rail", "rails", "railway"),
    11: ("road", "roads", "road surface"),
    13: ("wire guard",),
    14: ("power line", "power lines", "wire", "wires", "wire conductor"),
    15: ("transmission tower", "transmission towers", "pylon", "pylons"),
    16: ("wire connector", "insulator"),
    17: ("bridge", "bridges", "bridge deck"),
    18: ("high noise",),
    19: ("overhead structure",),
    21: ("snow",),
    64: ("permanent structure", "permanent structures", "lasting above"),
}
BY_NAME = {plain_name(name): code for code, names in CODES.items() for name in names}


def standard_code(name: str) -> int | None:
    """Return the code that LAS has for a class of this name, None where it has none."""
    return BY_NAME.get(plain_name(name))
