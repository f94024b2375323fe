"""A checksum inside a safetensors file, over every byte of it: safetensors itself does not notice a changed weight."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Mapping
from pathlib import Path
from typing import BinaryIO

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from atomizer_io.texts import check_regular

DIGITS = 64  # in hexadecimal
FIELD = "checksum"  # of the metadata
_FIELD = b'"checksum":"'  # cannot be part of another entry: quotes inside of those have a backslash before them
_CHUNK = 1 << 20


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
