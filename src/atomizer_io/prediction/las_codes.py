"""The LAS code that each class of a model is written as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from atomizer_io.errors import ConfigError
from atomizer_io.io.las_classes import standard_code

OWN = 64  # the first code that LAS leaves to its users
LEGACY = 31  # the last code that point formats 0 to 5 can hold
LAST = 255  # of all codes


def las_codes(
    classes: Sequence[str], given: Mapping[str, int] | None = None, labelled: Sequence[int] = ()
) -> dict[str, int]:
    """Return the LAS code of each class: as ``given``, else that of the training labels, else by its name.

    ``labelled`` are the codes of the training labels, where a model knows them. By its name a class has the standard
    code: ground (2), vegetation (5; low 3, medium 4), building (6), water (9), rail (10), road (11), power line (14),
    transmission tower (15), bridge (17) and others in ``CODES``; what a model calls other is unclassified (1). A class
    that the standard does not know, such as cars, is 64 + its number in the model, or the next code that is free.
    """
    wanted = {}
    for name, code in (given or {}).items():
        if name not in classes:
            raise ConfigError(f"codes names the class {name!r}, but the classes of the model are {', '.join(classes)}")
        if not 0 <= int(code) <= LAST:
            raise ConfigError(f"the code of {name!r} is {code}, but LAS codes are 0 … {LAST}")
        wanted[name] = int(code)
    for name, own in zip(classes, labelled or map(standard_code, classes), strict=True):
        if name not in wanted and own is not None and 0 <= own <= LAST:
            wanted[name] = own
    taken = set(wanted.values())
    for number, name in enumerate(classes):
        if name in wanted:
            continue
        free = next((code for code in range(OWN + number, LAST + 1) if code not in taken), None)
        if free is None:
            raise ConfigError(f"no LAS code is left for class {name!r}: name one with codes of CloudClasses")
        wanted[name] = free
        taken.add(free)
    return {name: wanted[name] for name in classes}
