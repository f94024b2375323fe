"""Writing a cloud again together with the answers for its points.

Shapes: P points of a chunk of the file, C classes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from atomizer_io.errors import ConfigError
from atomizer_io.prediction.cloud_blocks import ANSWERS, POINTS, record_type
from atomizer_io.prediction.las import Bytes, Extra, Original, written_like
from atomizer_io.prediction.las_codes import LEGACY
from atomizer_io.prediction.parts_folder import PartsFolder
from atomizer_io.progress import progress_bar

PREDICTED, ENTROPY = "PredictedClassification", "entropy"


def check_legacy(original: Original, codes: Mapping[str, int]) -> None:
    """Refuse LAS codes that the point format of the file cannot hold."""
    name = max(codes, key=lambda name: codes[name])
    if original.point_format < 6 and codes[name] > LEGACY:
        raise ConfigError(
            f"{original.path} has point format {original.point_format}, whose classes end at {LEGACY}, but {name!r} is "
            f"{codes[name]}: give it another code (codes of CloudClasses), or do not replace the classification"
        )


def write(
    original: Original,
    parts: PartsFolder,
    output: Path,
    fields: Sequence[str],
    codes: Mapping[str, int],
    extras: Sequence[Extra],
    maker: Mapping[str, str],
    overwrite_classification: bool,
    progress: bool,
) -> NDArray[np.int64]:
    """Copy the cloud with its classes into the parts folder; return how many points each class has."""
    code_of = np.array(list(codes.values()), np.uint8)
    counts = np.zeros(len(codes), np.int64)
    kind, outputs, done = record_type(fields), len(codes), 0
    new = np.dtype([(name, kind) for name, kind, _ in extras])
    target = parts.path(f"output{output.suffix}")
    bar = progress_bar(original.points, title="writing", unit=" points", large=True, show=progress)
    with (
        parts.path(POINTS).open("rb") as points,
        parts.path(ANSWERS).open("rb") as answers,
        written_like(original, target, extras, maker) as put,
        bar,
    ):
        for chunk in original.chunks():
            raw = original.bytes_of(chunk)
            place = np.fromfile(points, kind, len(raw))["index"] - done
            mean_PC = np.empty((len(raw), outputs), np.float32)
            mean_PC[place] = np.fromfile(answers, np.float32, len(raw) * outputs).reshape(-1, outputs)
            known = mean_PC.any(axis=1)
            label = mean_PC.argmax(axis=1)
            counts += np.bincount(label[known], minlength=outputs)
            code = np.where(known, code_of[label], np.array(chunk["classification"]))
            if overwrite_classification:
                put_class(raw, original, code)
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


def put_class(raw: Bytes, original: Original, code: NDArray[np.uint8]) -> None:
    """Write LAS codes into stored points; formats 0 to 5 keep the three flags that share the byte."""
    at = original.code_byte
    flags = raw[:, at] & ~np.uint8(LEGACY) if original.point_format < 6 else 0
    raw[:, at] = code | flags
