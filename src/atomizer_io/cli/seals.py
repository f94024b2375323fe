"""What commands print of the seal of a model, and the way to seal one again."""

from __future__ import annotations

from pathlib import Path


def model_line(source: str) -> str:
    """Return the line about a saved model: its digest, or that it has none; one with a broken seal is refused."""
    from atomizer_io.decoding.scene_decoder import loaded
    from atomizer_io.models.storage import seal_at

    loaded(str(Path(source).absolute() if Path(source).is_dir() else source))  # kept for the prediction
    return f"model {source}: {seal_text(source, seal_at(source))}"


def seal_text(source: str, seal: str | None) -> str:
    """Return the seal of a model in words."""
    if seal is not None:
        return f"sealed as {seal}"
    return f"not sealed, as it was saved by an older version (`atomizer info {source} --seal` seals it)"


def seal(source: str) -> None:
    """Seal a folder again, after a change that is meant; its calibrations too."""
    from atomizer_io.decoding.calibration import seal_again as seal_calibrations
    from atomizer_io.errors import ConfigError
    from atomizer_io.models.storage import seal_again

    folder = Path(source)
    if not folder.is_dir():
        raise ConfigError(f"--seal is for the folder of a model, and {source} is none")
    seal_again(folder)
    seal_calibrations(folder)
