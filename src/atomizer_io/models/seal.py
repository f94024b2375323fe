"""The seal of a model: one digest over its ``config.json``, its weights and its calibrations.

The header of ``model.safetensors`` holds a checksum over every byte of the file (safetensors itself does not notice a
changed weight), and behind it, covered by it, the digest of the text of ``config.json``. ``calibration.json`` has a
digest of its own, as it is written later, and each calibration names its model. So each file can be replaced at any
instant. The seal shows that a model is the one that was saved. It cannot show who saved it: whoever changes a model can
seal it again, and the digest is then another one.
"""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from atomizer_io.errors import CheckpointError
from atomizer_io.texts import check_regular, read_text

CONFIG, WEIGHTS = "config.json", "model.safetensors"
CALIBRATION = "calibration.json"  # of cheaper decoding, where there is one
FIRST_SEALED = 3  # version of the format
BYTES = 20  # of a digest
DIGITS = 64  # in hexadecimal
FIELD = "checksum"  # of the metadata
_FIELD = b'"checksum":"'  # cannot be part of another entry: quotes inside of those have a backslash before them
_CHUNK = 1 << 20


def digest(text: str) -> str:
    """Return the digest of a text as :func:`~atomizer_io.texts.read_text` gives it, for which line ends are alike."""
    return hashlib.blake2b(text.encode(), digest_size=BYTES).hexdigest()


def seal_of(folder: Path) -> str | None:
    """Return the digest of a model, which loading has checked; None for one that was saved before there were seals."""
    checksums, calibrations = _stored(folder / WEIGHTS), folder / CALIBRATION
    if not checksums[1:]:
        return None
    return digest("\n".join([*checksums, read_text(calibrations) if calibrations.is_file() else ""]))


def check(folder: Path, config: str, version: int) -> None:
    """Refuse a model whose ``config`` is not the text that its weights were saved with."""
    sealed = _stored(folder / WEIGHTS)[1:]
    again = (
        "get the folder anew from where it came; if the change is meant, look at it and then seal the model again with "
        f"`atomizer info {folder} --seal`"
    )
    if not sealed and version >= FIRST_SEALED:
        raise CheckpointError(f"{folder / WEIGHTS} has lost the seal that it was saved with: {again}")
    if sealed and sealed != [digest(config)]:
        raise CheckpointError(f"{folder / CONFIG} was changed after the model was saved (its seal is broken): {again}")


def _stored(path: Path) -> list[str]:
    """Return the checksum of a file of weights and the digest of its config, as far as it has them."""
    try:
        with safe_open(path, framework="pt") as file:
            return (file.metadata() or {}).get(FIELD, "").split()
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is missing, damaged or incomplete: {error}") from error


def save(tensors: Mapping[str, Tensor], path: Path, metadata: Mapping[str, str], of: str = "") -> None:
    """Write tensors with a checksum to a file, for :func:`~atomizer_io.durable.publish`; what fails is an OSError.

    ``of`` is the digest of what belongs to the tensors. It stands behind the checksum, which covers it: the order of
    several entries of metadata is random, and a file would not be the same twice.
    """
    path.touch()
    mode = stat.S_IMODE(path.stat().st_mode)  # what the umask leaves; safetensors makes files for their owner only
    try:
        save_file(dict(tensors), path, metadata={**metadata, FIELD: f"{'0' * DIGITS} {of}".strip()})
    except SafetensorError as error:  # a full disk, mostly
        raise OSError(f"{path} cannot be written: {error}") from error
    path.chmod(mode)
    stamp(path)


def stamp(path: Path) -> None:
    """Write the checksum into a file that was saved with zeros in its place."""
    with path.open("r+b") as file:
        offset = _offset(file)
        assert offset is not None, f"{path} was saved without room for a checksum"
        digits = _digits(file, offset)
        file.seek(offset)
        file.write(digits)


def matches(path: Path) -> bool | None:
    """Whether a file is as it was when it was stamped; None where it has no checksum. Its content is not read."""
    check_regular(path)
    with path.open("rb") as file:
        offset = _offset(file)
        if offset is None:
            return None
        file.seek(offset)
        return file.read(DIGITS) == _digits(file, offset)


def _offset(file: BinaryIO) -> int | None:
    """Where the checksum stands: in the header, the length of which is in the first eight bytes."""
    file.seek(0)
    length = int.from_bytes(file.read(8), "little")
    start = file.read(min(length, os.fstat(file.fileno()).st_size)).find(_FIELD)
    return None if start < 0 else 8 + start + len(_FIELD)


def _digits(file: BinaryIO, offset: int) -> bytes:
    """The checksum of all bytes, with zeros where it stands itself."""
    digest = hashlib.blake2b(digest_size=DIGITS // 2)
    file.seek(0)
    digest.update(file.read(offset) + b"0" * DIGITS)
    file.seek(offset + DIGITS)
    while chunk := file.read(_CHUNK):
        digest.update(chunk)
    return digest.hexdigest().encode()
