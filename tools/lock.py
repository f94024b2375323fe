"""Write requirements.lock: every package of the environment that runs this, with the SHA-256 of its files on PyPI.

Run it with the interpreter of `.venv` after constraints.txt changed and the tests passed with the new versions:
`.venv/bin/python tools/lock.py`. torch stays out, as its build depends on the machine (CPU or GPU): `./run setup`
installs it first.
"""

from __future__ import annotations

import re
import urllib.request
from importlib.metadata import distributions
from pathlib import Path

from packaging.utils import canonicalize_name, parse_wheel_filename

LOCK = Path(__file__).resolve().parents[1] / "requirements.lock"
NOT_LOCKED = {"atomizer-io", "torch", "pip"}
INTERPRETERS = ("py", "cp311", "cp312", "cp313", "cp314")
HEADER = """\
# Written by tools/lock.py: the tested set, with the SHA-256 of every file for Linux and macOS. ./run setup runs
#   pip install --require-hashes --no-deps -r requirements.lock
"""


def main() -> None:
    """Write the lock file."""
    versions = sorted({(canonicalize_name(dist.name), dist.version) for dist in distributions()})
    entries = [entry(name, version) for name, version in versions if name not in NOT_LOCKED]
    LOCK.write_text(HEADER + "".join(entries), encoding="utf-8")
    print(f"{LOCK.name}: {len(entries)} packages")


def entry(name: str, version: str) -> str:
    """Return the lines of one package."""
    hashes = sorted({digest for filename, digest in files(name) if fits(filename, version)})
    if not hashes:
        raise SystemExit(f"PyPI has no file of {name} {version}")
    return f"{name}=={version}" + "".join(f" \\\n    --hash=sha256:{digest}" for digest in hashes) + "\n"


def files(name: str) -> list[tuple[str, str]]:
    """Return the name and the SHA-256 of every file of a project on PyPI."""
    with urllib.request.urlopen(f"https://pypi.org/simple/{name}/", timeout=60) as page:
        return re.findall(r'/([^/"#]+)#sha256=([0-9a-f]{64})"', page.read().decode())


def fits(filename: str, version: str) -> bool:
    """Return whether a file is the source or a wheel of this version for an interpreter and a system we support."""
    if filename.endswith(".tar.gz"):
        return filename.removesuffix(".tar.gz").rpartition("-")[2] == version
    if not filename.endswith(".whl") or filename.split("-")[1] != version:
        return False
    return any(
        tag.interpreter.startswith(INTERPRETERS) or tag.abi == "abi3"
        for tag in parse_wheel_filename(filename)[3]
        if tag.platform == "any" or tag.platform.startswith(("manylinux", "macosx"))
    )


if __name__ == "__main__":
    main()
