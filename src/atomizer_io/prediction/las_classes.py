"""Classes in LAS files: their codes, the dimensions that are added, and the file written again with them.

Shapes: P points of a chunk of the file, C classes.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError, listed
from atomizer_io.io.las_classes import standard_code
from atomizer_io.io.las_guard import VLR_BYTES
from atomizer_io.io.point_store import PointStore
from atomizer_io.prediction.las import (
    DESCRIPTION,
    EXTRA,
    Extra,
    Original,
    Record,
    check_extras,
    described_bytes,
    written_like,
)
from atomizer_io.prediction.options import Execution, PointCloudClasses
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.prediction.point_windows import PREDICTIONS
from atomizer_io.progress import progress_bar

PREDICTED, ENTROPY = "PredictedClassification", "entropy"
OWN = 64  # the first code that LAS leaves to its users
LEGACY = 31  # the last code that point formats 0 to 5 can hold
MARKS = ("predictedclassification", "entropy")  # by these a file is known to have been predicted before
LAST = 255  # of all codes


def las_codes(
    classes: Sequence[str], chosen: Mapping[str, int] | None = None, labelled: Sequence[int] = ()
) -> dict[str, int]:
    """Return the LAS code of each class: as ``chosen``, else that of the training labels, else by its name.

    ``labelled`` are the codes of the training labels, where a model knows them. By its name a class has the standard
    code: ground (2), vegetation (5; low 3, medium 4), building (6), water (9), rail (10), road (11), power line (14),
    transmission tower (15), bridge (17) and others in ``CODES``; what a model calls other is unclassified (1). A class
    that the standard does not know, such as cars, is 64 + its number in the model, or the next code that is free.
    """
    code_of = {}
    for name, code in (chosen or {}).items():
        if name not in classes:
            raise ConfigError(f"codes names the class {name!r}, but the classes of the model are {', '.join(classes)}")
        if not 0 <= int(code) <= LAST:
            raise ConfigError(f"the code of {name!r} is {code}, but LAS codes are 0 … {LAST}")
        code_of[name] = int(code)
    for name, own in zip(classes, labelled or map(standard_code, classes), strict=True):
        if name not in code_of and own is not None and 0 <= own <= LAST:
            code_of[name] = own
    taken = set(code_of.values())
    for number, name in enumerate(classes):
        if name in code_of:
            continue
        free = next((code for code in range(OWN + number, LAST + 1) if code not in taken), None)
        if free is None:
            raise ConfigError(f"no LAS code is left for class {name!r}: name one with codes of PointCloudClasses")
        code_of[name] = free
        taken.add(free)
    return {name: code_of[name] for name in classes}


def dimensions_of(
    original: Original, codes: Mapping[str, int], classes: PointCloudClasses, execution: Execution
) -> tuple[Original, list[Extra]]:
    """Return the file without what an earlier prediction added, and the dimensions that are added to it.

    Those that its file cannot hold are an error.
    """
    name = max(codes, key=lambda name: codes[name])
    if classes.replace and original.point_format < 6 and codes[name] > LEGACY:
        raise ConfigError(
            f"{original.called} has point format {original.point_format}, whose classes end at {LEGACY}, but {name!r} "
            f"is {codes[name]}: give it another code (codes of PointCloudClasses), or do not replace the classification"
        )
    extras = [] if classes.replace else [(PREDICTED, "u1", "LAS code of the likeliest class")]
    if classes.probabilities:
        extras += [(ENTROPY, "f4", "nats"), *((name, "f4", "probability") for name in codes)]
    original, replaced = without_earlier(original, [name for name, _, _ in extras])
    if replaced:
        execution.report(f"{original.called.name} was predicted before: {listed(replaced)} are replaced in the output")
    check_extras(original, [name for name, _, _ in extras])
    return original, extras


def without_earlier(original: Original, names: Sequence[str]) -> tuple[Original, list[str]]:
    """Return the file without the extra dimensions that an earlier prediction called as ``names``, and which they are.

    A file is taken to be predicted before if it has a dimension ``PredictedClassification`` or ``entropy``; the
    dimensions of others are their own.
    """
    if not {name.casefold() for name in original.dimensions} & set(MARKS):
        return original, []
    replaced, byte = {name.casefold() for name in names}, original.record_length - original.extra_bytes
    gone, lost, head, records = list[int](), list[str](), original.head[: original.header_size], list[Record]()
    for record in original.records:
        own = original.copied_record(record)
        if (record.owner, record.number) == EXTRA and original.extra_bytes:
            still = b""
            for first in range(VLR_BYTES, len(own), DESCRIPTION):
                text = own[first : first + DESCRIPTION]
                name, size = text[4:36].split(b"\0")[0].decode("utf-8", "replace"), described_bytes(text)
                if name.casefold() in replaced:
                    lost.append(name)
                    gone += range(byte, min(byte + size, original.record_length))
                else:
                    still += text
                byte += size
            own = own[:20] + struct.pack("<H", len(still)) + own[22:VLR_BYTES] + still
        records.append(replace(record, start=len(head), size=len(own)))
        head += own
    shorter = bytearray(head + original.gap)
    struct.pack_into("<H", shorter, 105, original.record_length - len(gone))
    rest = tuple(name for name in original.dimensions if name not in lost)
    kept = replace(original, head=bytes(shorter), records=tuple(records), dimensions=rest, gone=tuple(gone))
    return (kept, lost) if lost else (original, [])


def write(
    original: Original,
    parts: PartsFolder,
    store: PointStore,
    target: Path,
    codes: Mapping[str, int],
    extras: Sequence[Extra],
    maker: Mapping[str, str],
    overwrite_classification: bool,
    progress: bool,
) -> NDArray[np.int64]:
    """Copy the file with the classes of its points to ``target``; return how many points each class has."""
    code_of = np.array(list(codes.values()), np.uint8)
    counts = np.zeros(len(codes), np.int64)
    outputs, done = len(codes), 0
    new = np.dtype([(name, kind) for name, kind, _ in extras])
    bar = progress_bar(original.points, title="writing", unit=" points", large=True, show=progress)
    with (
        (parts.folder / PREDICTIONS).open("rb") as predictions,
        written_like(original, target, extras, maker) as put,
        bar,
    ):
        for chunk in original.chunks():
            raw = original.bytes_of(chunk)
            rows = store.numbers(done, len(raw)) - done  # each chunk was sorted by block
            mean_PC = np.empty((len(raw), outputs), np.float32)
            mean_PC[rows] = np.fromfile(predictions, np.float32, len(raw) * outputs).reshape(-1, outputs)
            known = mean_PC.any(axis=1)
            label = mean_PC.argmax(axis=1)
            counts += np.bincount(label[known], minlength=outputs)
            code = np.where(known, code_of[label], np.array(chunk["classification"]))
            if overwrite_classification:
                legacy = original.point_format < 6  # then three flags share the byte
                at = 15 if legacy else 16
                raw[:, at] = code | (raw[:, at] & ~np.uint8(LEGACY) if legacy else 0)
            table = np.zeros(len(raw), new)
            for name, column in new_columns(mean_PC, code, codes).items():
                if name in (new.names or ()):
                    table[name] = column
            put(np.concatenate([raw, table.view(np.uint8).reshape(len(raw), -1)], axis=1) if extras else raw)
            done += len(raw)
            bar.update(len(raw))
    return counts


def new_columns(mean_PC: NDArray[np.float32], code: NDArray[np.uint8], codes: Mapping[str, int]) -> dict[str, Any]:
    """Return the values of the new dimensions of each point, by name."""
    safe_PC = np.where(mean_PC > 0, mean_PC, 1).astype(np.float64)
    entropy = -(mean_PC * np.log(safe_PC)).sum(axis=1)
    return {PREDICTED: code, ENTROPY: np.abs(entropy), **dict(zip(codes, mean_PC.T, strict=True))}
