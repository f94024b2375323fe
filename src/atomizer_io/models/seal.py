"""The seal of a model: one digest over its ``config.json``, its weights and its calibrations.

The header of ``model.safetensors`` holds a checksum over every byte of the file, and behind it, covered by it, the
digest of the text of ``config.json``. ``calibration.json`` has a digest of its own, as it is written later, and each
calibration names its model. So each file can be replaced at any instant. The seal shows that a model is the one that
was saved. It cannot show who saved it: whoever changes a model can seal it again, and the digest is then another one.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from safetensors import SafetensorError, safe_open

from atomizer_io.errors import CheckpointError
from atomizer_io.models import checksum
from atomizer_io.texts import read_text

CONFIG, WEIGHTS = "config.json", "model.safetensors"
CALIBRATION = "calibration.json"  # of cheaper decoding, where there is one
FIRST_SEALED = 3  # version of the format
BYTES = 20  # of a digest


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
            return (file.metadata() or {}).get(checksum.FIELD, "").split()
    except (SafetensorError, OSError) as error:
        raise CheckpointError(f"{path} is missing, damaged or incomplete: {error}") from error
