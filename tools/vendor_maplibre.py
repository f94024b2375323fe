"""Bring MapLibre GL into the page of `atomizer view`, from npm; the files are committed, so that installing needs none.

    python tools/vendor_maplibre.py                  # fetch, check, copy
    python tools/vendor_maplibre.py maplibre-gl.tgz  # the same from a package that is there already

To take another version, change VERSION and SHA256, run it, look at the page, run tests/view.
"""

from __future__ import annotations

import hashlib
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

VERSION, SHA256 = "6.17.0", "587807d8d6c99349022e027fa310c16cfaa55392131f6263df080306db6809b0"
FILES = ("dist/maplibre-gl.mjs", "dist/maplibre-gl-worker.mjs", "dist/maplibre-gl.css", "LICENSE.txt")
TARGET = Path(__file__).resolve().parents[1] / "src/atomizer_io/view/page/vendor"


def main() -> None:
    """Fetch, check and copy the files."""
    with tempfile.TemporaryDirectory() as folder:
        if len(sys.argv) > 1:
            package = Path(sys.argv[1])
        else:
            subprocess.run(["npm", "pack", f"maplibre-gl@{VERSION}", "--silent"], cwd=folder, check=True)
            package = Path(folder) / f"maplibre-gl-{VERSION}.tgz"
        digest = hashlib.sha256(package.read_bytes()).hexdigest()
        if digest != SHA256:
            raise SystemExit(f"{package} is not maplibre-gl {VERSION}: its SHA-256 is {digest}, expected {SHA256}")
        TARGET.mkdir(parents=True, exist_ok=True)
        with tarfile.open(package) as archive:
            for name in FILES:
                content = archive.extractfile(f"package/{name}")
                assert content is not None
                name = f"maplibre-gl-{Path(name).name}" if name.startswith("LICENSE") else Path(name).name
                lines = content.read().split(b"\n")  # source maps are left out
                kept = b"\n".join(line for line in lines if not line.startswith(b"//# sourceMappingURL"))
                (TARGET / name).write_bytes(kept)
                print(TARGET / name)


if __name__ == "__main__":
    main()
