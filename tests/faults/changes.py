"""What is done to a file before it is read: changes of bytes and of text that fit any format, drawn by a generator."""

from __future__ import annotations

import json
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

Change = Callable[[bytes, random.Random], bytes]

NUMBERS = (0, 1, 0x7F, 0xFF, 0x7FFF, 0xFFFF, 1_000_000_000, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFF, 1 << 40, (1 << 64) - 1)
ODD: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 1, 2**31, 2**70, 1e308, -1e308, 5e-324, float("inf"), float("nan")),
    *("", "x", "..", "../../../outside", "/etc/passwd", "a\0b", "~", "1e999", "é\u2028", "\x1b[2J", "9" * 5000),
    *([], {}, [[]], [None], {"a": None}, [1, "a"], [1e300] * 4, {"": ""}, "x" * 100_000),
)
CELLS = ("", "nan", "inf", "-inf", "1e999", "-1", "x", "..", "../../outside", "/dev/zero", "a,b", '"', "\0", "9" * 400)


def truncate(data: bytes, rng: random.Random) -> bytes:
    """Cut the end off."""
    return data[: rng.randrange(len(data) + 1)]


def flip_bits(data: bytes, rng: random.Random) -> bytes:
    """Flip up to eight bits, often near the beginning, where headers are."""
    changed = bytearray(data)
    reach = len(changed) if rng.random() < 0.5 else min(len(changed), 512)
    for _ in range(rng.choice((1, 1, 2, 8)) if changed else 0):
        changed[rng.randrange(reach)] ^= 1 << rng.randrange(8)
    return bytes(changed)


def put_number(data: bytes, rng: random.Random) -> bytes:
    """Overwrite some bytes by a number that is absurd as a size, a count or an offset."""
    width, changed = rng.choice((1, 2, 4, 8)), bytearray(data)
    reach = max(1, (len(changed) if rng.random() < 0.3 else min(len(changed), 512)) - width)
    at = rng.randrange(reach)
    number = rng.choice(NUMBERS) % (1 << (8 * width))
    changed[at : at + width] = number.to_bytes(width, rng.choice(("little", "big")))
    return bytes(changed)


def fill_run(data: bytes, rng: random.Random) -> bytes:
    """Overwrite a run of bytes by zeros, ones or noise."""
    begin = rng.randrange(len(data) + 1)
    length = min(rng.choice((1, 4, 16, 256, 4096)), len(data) - begin)
    new = rng.choice((bytes(length), b"\xff" * length, rng.randbytes(length)))
    return data[:begin] + new + data[begin + length :]


def drop_run(data: bytes, rng: random.Random) -> bytes:
    """Leave out a run of bytes, so that all behind it moves."""
    begin = rng.randrange(len(data) + 1)
    return data[:begin] + data[begin + rng.choice((1, 2, 4, 64, 1024)) :]


def repeat_run(data: bytes, rng: random.Random) -> bytes:
    """Write a run of bytes twice."""
    begin = rng.randrange(len(data) + 1)
    run = data[begin : begin + rng.choice((1, 8, 64, 1024))]
    return data[:begin] + run + data[begin:]


def swap_runs(data: bytes, rng: random.Random) -> bytes:
    """Exchange two blocks of a file."""
    length = rng.choice((4, 64, 512))
    if len(data) < 2 * length:
        return data[::-1]
    first, second = sorted(rng.sample(range(len(data) - length), 2))
    second = max(second, first + length)
    between = data[first + length : second]
    return (
        data[:first] + data[second : second + length] + between + data[first : first + length] + data[second + length :]
    )


def append(data: bytes, rng: random.Random) -> bytes:
    """Write something behind the end."""
    return data + rng.choice((b"\0", b"\n", b"garbage", data, bytes(1 << 16)))


def nothing(data: bytes, rng: random.Random) -> bytes:
    """Leave an empty file, or one of zeros or noise."""
    return rng.choice((b"", bytes(len(data)), rng.randbytes(max(1, len(data))), b"\n"))


BYTES: tuple[Change, ...] = (
    *(truncate, truncate, flip_bits, flip_bits, put_number, put_number),
    *(fill_run, drop_run, repeat_run, swap_runs, append, nothing),
)


def odd_value(rng: random.Random) -> Any:
    """Return a value that no setting expects."""
    return rng.choice(ODD)


def paths_in(document: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the keys that lead to each value of a nested document, for at most two thousand values."""
    inner = (
        document.items() if isinstance(document, dict) else enumerate(document) if isinstance(document, list) else ()
    )
    paths = [path]
    for key, value in inner:
        if len(paths) > 2000:
            break
        paths += paths_in(value, (*path, key))
    return paths


def change_document(document: Any, rng: random.Random) -> Any:
    """Replace, remove or add a value somewhere in a nested document."""
    paths = paths_in(document)
    path = rng.choice(paths)
    if not path:
        return odd_value(rng) if rng.random() < 0.3 else change_document(document, rng) if len(paths) > 1 else None
    parent = document
    for key in path[:-1]:
        parent = parent[key]
    what = rng.random()
    if what < 0.65:
        parent[path[-1]] = odd_value(rng)
    elif what < 0.8:
        del parent[path[-1]]
    elif isinstance(parent, dict):
        parent[rng.choice(("extra", "", "__class__", "..", "x" * 300))] = odd_value(rng)
    else:
        parent *= rng.choice((2, 50))
    return document


def nested(opening: str, closing: str, depth: int = 100_000) -> bytes:
    """Return brackets in brackets, deeper than any program is written for."""
    return (opening * depth + closing * depth).encode()


def change_json(data: bytes, rng: random.Random) -> bytes:
    """Change a value of a JSON document, or write one that is hard to read."""
    what = rng.random()
    if what < 0.08:
        return rng.choice((nested("[", "]"), nested('{"a":', "}"), b"9" * 100_000, b'"' + b"a" * 1_000_000 + b'"'))
    if what < 0.12:
        return b"{" + b",".join(b'"k%d":%d' % (i, i) for i in range(20_000)) + b"}"
    try:
        return json.dumps(change_document(json.loads(data), rng)).encode()
    except (ValueError, UnicodeDecodeError):
        return flip_bits(data, rng)


YAML_TEXTS = (
    b"!!python/object/apply:os.system ['touch outside']",
    b"!!python/name:os.system ''",
    b"data: !!python/object/new:os.system ['touch outside']\n",
    b"a: &a [x,x,x,x,x,x,x,x,x]\n"
    + b"".join(b"%c: &%c [%s]\n" % (i, i, b",".join([b"*%c" % (i - 1)] * 9)) for i in range(98, 110)),
    *(nested("[", "]"), nested("{a: ", "}"), b"- " * 20_000, b"a: &a [*a]", b"? [1, 2]\n: 3", b"? {a: 1}\n: 3"),
    *(b"null", b"~", b"", b"---\n---\n", b"data: null\nmodel: null\ntraining: null\n", b"1: 2\nnull: 3\ntrue: 4\n"),
    *(b"seed: 1e999", b"seed: .nan", b"<<: [1]", b"2001-01-01: x", b"seed: !!binary aGVsbG8=", b"x: !!set {a, b}"),
)


def change_yaml(data: bytes, rng: random.Random) -> bytes:
    """Change a value of a YAML document, or write one of the known traps."""
    if rng.random() < 0.35:
        return rng.choice(YAML_TEXTS)
    try:
        return yaml.safe_dump(change_document(yaml.safe_load(data), rng), allow_unicode=True).encode()
    except (yaml.YAMLError, RecursionError, UnicodeEncodeError):
        return flip_bits(data, rng)


def change_table(data: bytes, rng: random.Random) -> bytes:
    """Change a cell, a row or the header of a text with commas or lines."""
    rows = [line.split(",") for line in data.decode("utf-8", "replace").splitlines()] or [[""]]
    row, what = rng.choice(rows), rng.random()
    if what < 0.6:
        row[rng.randrange(len(row))] = rng.choice(CELLS)
    elif what < 0.7:
        del row[rng.randrange(len(row))]
    elif what < 0.8:
        row.append(rng.choice(CELLS))
    elif what < 0.9:
        rows.insert(rng.randrange(len(rows)), list(rng.choice(rows)))
    else:
        rows.remove(row)
    return "\n".join(",".join(cells) for cells in rows).encode("utf-8", "replace")


TEXTS: dict[str, Change] = {
    ".json": change_json,
    ".jsonl": change_json,
    ".geojson": change_json,
    ".yaml": change_yaml,
    ".csv": change_table,
    ".txt": change_table,
}


# Changes of a file itself, rather than of its content


def replace_by_folder(path: Path, rng: random.Random, others: list[Path]) -> None:
    """Put a folder instead of a file."""
    path.unlink()
    path.mkdir()


def remove(path: Path, rng: random.Random, others: list[Path]) -> None:
    """Remove a file."""
    path.unlink()


def link_elsewhere(path: Path, rng: random.Random, others: list[Path]) -> None:
    """Put a symbolic link instead of a file: to itself, to nowhere, to a device, to another file."""
    path.unlink()
    target = rng.choice((path.name, "nowhere", "/dev/zero", "/dev/null", "/etc/passwd", "..", str(rng.choice(others))))
    path.symlink_to(target)


def put_pipe(path: Path, rng: random.Random, others: list[Path]) -> None:
    """Put a pipe instead of a file: who reads it waits for ever."""
    path.unlink()
    os.mkfifo(path)


def put_other(path: Path, rng: random.Random, others: list[Path]) -> None:
    """Put the content of another kind of file under this name."""
    source = rng.choice(others)
    path.unlink()
    shutil.copyfile(source, path)


def make_unreadable_name(path: Path, rng: random.Random, others: list[Path]) -> None:
    """Rename a file to a name that is hard to write or to read."""
    path.rename(path.with_name(rng.choice(("\udcff\udcfe" + path.suffix, "-rf" + path.suffix, "a\nb" + path.suffix))))


FILES = (
    replace_by_folder,
    remove,
    link_elsewhere,
    link_elsewhere,
    put_pipe,
    put_other,
    put_other,
    make_unreadable_name,
)
