"""What a result depends on: the machine, the versions, the commit and the time."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


def machine() -> dict[str, Any]:
    """Return processor, threads, versions, commit and time, to be kept beside a result."""
    import numpy
    import scipy
    import torch

    return {
        "processor": _processor(),
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "commit": _commit(),
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or platform.machine()


def _commit() -> str | None:
    """The commit of the source tree, marked unless this package is as committed; None outside a checkout."""
    commit = _git("rev-parse", "--short=12", "HEAD")
    return commit if commit is None or _git("status", "--porcelain", "--", ".") == "" else f"{commit}-dirty"


def _git(*arguments: str) -> str | None:
    """The output of git in the folder of this package, without waiting for others that use it; None where it fails."""
    command = ["git", "--no-optional-locks", *arguments]
    try:
        process = subprocess.run(
            command, cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, env=os.environ, check=True
        )
    except (OSError, subprocess.SubprocessError):
        return None
    return process.stdout.strip()
