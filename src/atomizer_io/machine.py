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

    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        processor = next(line.split(":", 1)[1].strip() for line in lines if line.startswith("model name"))
    except (OSError, StopIteration):
        processor = platform.processor() or platform.machine()
    commit = _git("rev-parse", "--short=12", "HEAD")  # marked unless this package is as committed
    if commit is not None and _git("status", "--porcelain", "--", ".") != "":
        commit = f"{commit}-dirty"
    return {
        "processor": processor,
        "threads": torch.get_num_threads(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "numpy": numpy.__version__,
        "scipy": scipy.__version__,
        "commit": commit,
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
    }


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
