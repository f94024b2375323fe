"""Cases by number: which reader, which file, which change. The same number is the same case everywhere."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

from faults.changes import BYTES, FILES, TEXTS
from faults.headers import HEADERS
from faults.hostile_targets import HOSTILE_TARGETS
from faults.targets import TARGETS, Target

DAMAGED = 6000  # cases of sound files that are damaged; those from here on are hostile ones


def in_turn(targets: tuple[Target, ...]) -> tuple[Target, ...]:
    """Return the readers in the order of cases; those with a larger share come up more often."""
    shares = range(max(target.share for target in targets))
    return tuple(target for share in shares for target in targets if share < target.share)


ORDER, HOSTILE_ORDER = in_turn(TARGETS), in_turn(HOSTILE_TARGETS)


def target_of(number: int) -> Target:
    """Return the reader of a case."""
    return ORDER[number % len(ORDER)] if number < DAMAGED else HOSTILE_ORDER[number % len(HOSTILE_ORDER)]


def changeable(target: Target, folder: Path) -> list[Path]:
    """Return the files of a reader that may be changed, in a fixed order."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and path.name != "lock"]
    if target.kinds:
        paths = [path for path in paths if path.suffix in target.kinds]
    if target.only:
        paths = [path for path in paths if path.relative_to(folder).as_posix().startswith(target.only)]
    return paths


def change(number: int, folder: Path, others: list[Path]) -> tuple[Path, str]:
    """Change one file of a case; return the file and what was done to it. ``others`` are files of other readers."""
    rng, own = random.Random(number), target_of(number).change
    if own is not None:
        return own(folder, rng)
    path = rng.choice(changeable(target_of(number), folder))
    data = path.read_bytes()
    path.unlink()  # it may be one file with the seed
    path.write_bytes(data)
    what = rng.random()
    if what < 0.1:
        by_file = rng.choice(FILES)
        by_file(path, rng, others)
        return path, by_file.__name__
    if what < 0.5 and path.suffix in HEADERS:
        header = rng.choice(HEADERS[path.suffix])
        header(path, rng)
        return path, f"header {header.__name__}"
    if what < 0.75 and path.suffix in TEXTS:
        path.write_bytes(TEXTS[path.suffix](data, rng))
        return path, TEXTS[path.suffix].__name__
    by_bytes = rng.choice(BYTES)
    path.write_bytes(by_bytes(data, rng))
    return path, by_bytes.__name__


def link_files(seed: Path, folder: Path) -> None:
    """Put the files of a seed into ``folder`` as hard links, without copying their content."""
    import os

    shutil.copytree(seed, folder, copy_function=os.link)
