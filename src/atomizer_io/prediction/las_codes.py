"""The LAS code that each class of a model is written as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atomizer_io.channels import plain_name
from atomizer_io.errors import ConfigError

OWN = 64  # the first code that LAS leaves to its users
LEGACY = 31  # the last code that point formats 0 to 5 can hold
# LAS 1.4, table 17; 64 is IGN's code of the structures that FRACTAL calls permanent
CODES = {
    1: ("unclassified", "other", "unknown", "default", "background"),
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


def las_codes(classes: Sequence[str], given: Mapping[str, int] | None = None) -> dict[str, int]:
    """Return the LAS code of each class: as ``given``, else the standard one for its name, else a free one from 64 on.

    The standard knows ground (2), vegetation (5; low 3, medium 4), building (6), water (9), rail (10), road (11), power
    line (14), transmission tower (15), bridge (17) and others in ``CODES``; what a model calls other is unclassified
    (1). A class that it does not know, such as cars, is 64 + its number in the model, or the next code that is free.
    """
    wanted = {}
    for name, code in (given or {}).items():
        if name not in classes:
            raise ConfigError(f"codes names the class {name!r}, but the classes of the model are {', '.join(classes)}")
        if not 0 <= int(code) <= 255:
            raise ConfigError(f"the code of {name!r} is {code}, but LAS codes are 0 … 255")
        wanted[name] = int(code)
    for name in classes:
        if name not in wanted and plain_name(name) in BY_NAME:
            wanted[name] = BY_NAME[plain_name(name)]
    taken = set(wanted.values())
    for number, name in enumerate(classes):
        if name in wanted:
            continue
        free = next((code for code in range(OWN + number, 256) if code not in taken), None)
        if free is None:
            raise ConfigError(f"no LAS code is left for class {name!r}: name one with codes of CloudClasses")
        wanted[name] = free
        taken.add(free)
    return {name: wanted[name] for name in classes}
