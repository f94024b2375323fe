"""What GDAL itself opens, writes and connects to, seen by ``strace``: Python's audit hooks do not see it.

Hostile rasters are read by one process as ``atomizer predict`` and ``atomizer data check`` read them.
"""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np

import chips
from faults.hostile_rasters import HOSTILE, SIDE, hostile_scene, mosaic, sound

CALLS = (
    "open,openat,openat2,creat,connect,unlink,unlinkat,rename,renameat,renameat2,mkdir,mkdirat,rmdir,link,linkat,"
    "symlink,symlinkat,truncate,execve"
)
LINE = re.compile(r"\d+\s+(?P<call>\w+)\((?P<arguments>.*)\)\s+=\s+(?P<result>-?\d+)(?P<note>.*)")
NAME = re.compile(r'"((?:[^"\\]|\\.)*)"')
WRITES = re.compile(r"O_WRONLY|O_RDWR|O_CREAT|O_TRUNC|O_APPEND")
SYSTEM = ("/usr", "/lib", "/lib64", "/etc", "/proc", "/sys", "/dev", "/run", "/opt", "/bin")


def watch_gdal(work: Path) -> dict[str, float]:
    """Read every hostile raster under ``strace``; nothing but its own folder and the output may be touched."""
    if shutil.which("strace") is None:
        print("GDAL's own input and output: skipped, as strace is not installed (apt install strace)", file=sys.stderr)
        return {"skipped, as strace is not installed": 1}
    outside, inputs = work / "outside", work / "in"
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        for writer in HOSTILE:
            folder = inputs / writer.__name__
            hostile_scene(writer, folder / "image", outside, port)
            (folder / "mask").mkdir()
            chips.write(folder / "mask" / "scene.tif", np.ones((1, SIDE, SIDE), np.uint8), names=None)
        scene = sound(inputs / "sound", outside)
        (inputs / "sound" / "all.vrt").write_text(mosaic(scene.name, relative=True))
        for name in ("out", "home"):
            (work / name).mkdir()
        calls = traced(work, str(chips.model_folder()))
    ends = (work / "ends.txt").read_text().split()
    assert ends == ["0", "0", *["2", "1"] * len(HOSTILE)], f"hostile rasters were not refused: {ends}"
    seen = [text for call in calls if (text := wrong(call, work, chips.model_folder())) is not None]
    assert not seen, "\n".join(seen[:20])
    assert sum("/sound/scene.tif" in call for call in calls), "strace did not see that a sound raster was read"
    return {"hostile rasters": len(HOSTILE), "system calls watched": len(calls), "files touched elsewhere": len(seen)}


def traced(work: Path, model: str) -> list[str]:
    """Read everything in a process of its own; return its calls that concern files and the network."""
    line = ["strace", "-f", "-qq", "-s", "4096", "-e", f"trace={CALLS}", "-o", str(work / "trace")]
    environment = os.environ | {
        "GDAL_VRT_ENABLE_PYTHON": "YES",
        "ATOMIZER_KERNELS": "off",
        "HOME": str(work / "home"),
        "XDG_CACHE_HOME": str(work / "home"),
        "TMPDIR": str(work / "out"),
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    fonts = [sys.executable, "-B", "-c", "import matplotlib.font_manager"]  # lists the fonts of the system once
    subprocess.run(fonts, env=environment, check=True)
    line += [sys.executable, "-B", __file__, str(work), model]
    subprocess.run(line, env=environment, check=True, cwd=work / "out", timeout=600)
    return (work / "trace").read_text(encoding="utf-8", errors="replace").splitlines()


def wrong(line: str, work: Path, model: Path) -> str | None:
    """Return a call that opens a file of somebody else's, changes one that is no output, or calls out; else None."""
    match = LINE.match(line)
    if match is None or (int(match["result"]) < 0 and "AF_INET" not in match["arguments"]):
        return None
    call, arguments = match["call"], match["arguments"]
    if call == "connect":
        return None if "AF_UNIX" in arguments else line
    names = [os.path.realpath(work / "out" / name) for name in NAME.findall(arguments)]
    if call == "execve":
        return None if names[0] == os.path.realpath(sys.executable) else line
    own = (str(work / "out"), str(work / "home"), str(work / "ends.txt"), "/dev/null", "/dev/tty", "/dev/shm")
    readable = (*own, str(work / "in"), str(model), sys.prefix, sys.base_prefix, *SYSTEM, *filter(None, sys.path))
    changes = not call.startswith("open") or WRITES.search(arguments) is not None
    sound = all(_inside(name, own if changes else readable) or (not changes and os.path.isdir(name)) for name in names)
    return None if sound else line


def _inside(path: str, folders: tuple[str, ...]) -> bool:
    """Return whether a path is one of these files, or in one of these folders."""
    return any(path == (folder := os.path.realpath(name)) or path.startswith(f"{folder}/") for name in folders)


def main() -> None:
    """Read the rasters of a folder as the commands do, and write down with which exit code each ended."""
    from atomizer_io import cli

    work, model = Path(sys.argv[1]), sys.argv[2]
    predict = ["predict", "--quiet", "--workers", "0", "--model", model, "--window", "200"]
    ends = []

    def made(raster: Path, name: str, *more: str) -> None:
        words = [*predict, "--raster", str(raster), "--sensor", "sentinel2", "-o", str(work / "out" / name), *more]
        ends.append(cli.main(words))

    made(work / "in" / "sound" / "scene.tif", "sound.tif")
    made(work / "in" / "sound" / "all.vrt", "vrt.tif", "--allow-vrt")
    for writer in HOSTILE:
        folder = work / "in" / writer.__name__
        made(folder / "image" / "scene.tif", f"{writer.__name__}.tif")
        check = ["data", "check", "geotiff-folder", str(folder), "--split", "all", "sensor=sentinel2", "classes=3"]
        ends.append(cli.main(check))
    (work / "ends.txt").write_text(" ".join(map(str, ends)))


if __name__ == "__main__":
    main()
