"""Files that were predicted before: the dimensions of that prediction make room for the new ones, as in myria3d."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from atomizer_io.errors import DataError
from atomizer_io.io.las_guard import VLR_BYTES
from atomizer_io.prediction.las import DESCRIPTION, EXTRA, Bytes, Original, Record, described_bytes, extra_bytes

MARKS = ("predictedclassification", "entropy")  # by these a file is known to have been predicted before


@dataclass(frozen=True, slots=True)
class Predicted(Original):
    """A file without the extra dimensions of an earlier prediction; ``gone`` are their bytes in the stored points."""

    gone: tuple[int, ...] = ()

    def bytes_of(self, points: Any) -> Bytes:
        """Return a copy of the points as they are stored (P, bytes), without the bytes of the earlier prediction."""
        raw: Bytes = np.frombuffer(np.ascontiguousarray(points.array), np.uint8).reshape(len(points), -1)
        if raw.shape[1] != self.record_length + len(self.gone):
            raise DataError(self.path, f"cannot be read: its points have {raw.shape[1]} bytes, not as its header says")
        return np.delete(raw, self.gone, axis=1)


def without_earlier(original: Original, names: Sequence[str]) -> tuple[Original, list[str]]:
    """Return the file without the extra dimensions that an earlier prediction called as ``names``, and which they are.

    A file is taken to be predicted before if it has a dimension ``PredictedClassification`` or ``entropy``; the
    dimensions of others are their own.
    """
    if not {name.casefold() for name in original.dimensions} & set(MARKS):
        return original, []
    wanted, place = {name.casefold() for name in names}, original.record_length - extra_bytes(original)
    gone, lost, head, records = list[int](), list[str](), original.head[: _start(original)], list[Record]()
    for record in original.records:
        own = original.copied_record(record)
        if (record.owner, record.number) == EXTRA and extra_bytes(original):
            kept = b""
            for first in range(VLR_BYTES, len(own), DESCRIPTION):
                text = own[first : first + DESCRIPTION]
                name, size = text[4:36].split(b"\0")[0].decode("utf-8", "replace"), described_bytes(text)
                if name.casefold() in wanted:
                    lost.append(name)
                    gone += range(place, min(place + size, original.record_length))
                else:
                    kept += text
                place += size
            own = own[:20] + struct.pack("<H", len(kept)) + own[22:VLR_BYTES] + kept
        records.append(replace(record, start=len(head), size=len(own)))
        head += own
    head += original.head[max([r.start + r.size for r in original.records], default=_start(original)) :]
    shorter = bytearray(head)
    struct.pack_into("<H", shorter, 105, original.record_length - len(gone))
    rest = tuple(name for name in original.dimensions if name not in lost)
    stored = (original.path, bytes(shorter), tuple(records), original.tail, original.points, rest)
    return (Predicted(*stored, tuple(gone)), lost) if lost else (original, [])


def _start(original: Original) -> int:
    return int(struct.unpack_from("<H", original.head, 94)[0])
