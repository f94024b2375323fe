"""Workers that die: of a loader, of a Dask cluster of eight, and a Dask scheduler that is restarted."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import time
from pathlib import Path
from typing import Any

import chips
from faults.kills import SETTINGS, same_weights, unwatched
from processes import command, exit_code, start

PATIENCE_S = 180.0


def wait_for(path: Path, process: Any, patience_s: float = PATIENCE_S) -> None:
    """Wait until a file is there."""
    deadline = time.monotonic() + patience_s
    while not path.exists():
        assert process.is_alive(), f"ended with {process.exitcode} before there was {path.name}"
        assert time.monotonic() < deadline, f"no {path.name} after {patience_s} s"
        time.sleep(0.02)


def children(process: int) -> list[int]:
    """Return the processes that a process has started."""
    lists = Path(f"/proc/{process}/task").glob("*/children")
    return [int(number) for path in lists for number in path.read_text().split()]


def kill_loader_worker(work: Path, kills: int = 2) -> dict[str, float]:
    """A training whose loader worker is killed reports it, goes on with --resume, and ends with the same weights."""
    (work / "run.yaml").write_text(SETTINGS.replace("max_steps: 12", "max_steps: 24"))
    words = ("train", str(work / "run.yaml"), "--quiet", f"output={work / 'runs'}", "data.workers=2")
    assert exit_code(start(unwatched, (*words, "name=whole"))) == 0
    folder, again, clean = work / "runs" / "killed", (*words, "name=killed"), 0
    for number in range(kills):
        log = work / f"log-{number}"
        process = start(unwatched, again, errors=log)
        assert process.pid
        wait_for(folder / "state.safetensors", process)
        while process.is_alive() and not (workers := children(process.pid)):
            time.sleep(0.01)
        os.kill(workers[-1], signal.SIGKILL)
        assert exit_code(process) == 2 and "a loader worker died" in log.read_text(), log.read_text()
        clean += 1
        again = ("train", str(folder), "--resume", "--quiet")
    assert exit_code(start(unwatched, again)) == 0
    same_weights(work / "runs" / "whole", folder)
    return {"loader workers killed": clean, "weights that differ": 0}


def dask_scheduler(port: int) -> None:
    """A Dask scheduler, until it is killed."""
    from distributed import Scheduler

    async def serve() -> None:
        async with Scheduler(host="127.0.0.1", port=port, dashboard=False) as scheduler:
            await scheduler.finished()

    asyncio.run(serve())


def dask_worker(port: int) -> None:
    """A Dask worker with one thread, until it is killed or its scheduler is gone."""
    from distributed import Worker

    async def serve() -> None:
        async with Worker(f"tcp://127.0.0.1:{port}", nthreads=1, dashboard=False) as worker:
            await worker.finished()

    asyncio.run(serve())


def free_port() -> int:
    """Return a port at which nobody listens."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


class Cluster:
    """A Dask scheduler and workers in processes of their own, on this machine."""

    def __init__(self, workers: int) -> None:
        self.count, self.port = workers, free_port()
        self.start()

    @property
    def address(self) -> str:
        """Where the scheduler listens."""
        return f"tcp://127.0.0.1:{self.port}"

    def start(self) -> None:
        """Start all processes, and wait until they know each other."""
        from distributed import Client

        self.scheduler = start(dask_scheduler, self.port, errors=Path(os.devnull))
        self.workers = [start(dask_worker, self.port, errors=Path(os.devnull)) for _ in range(self.count)]
        with Client(self.address, timeout=60, set_as_default=False) as client:
            client.wait_for_workers(self.count, timeout=PATIENCE_S)

    def kill(self) -> None:
        """Kill all processes."""
        for process in (self.scheduler, *self.workers):
            process.kill()
            process.join()


def use_dask_cluster(work: Path, count: int = 8, kills: int = 3) -> dict[str, float]:
    """A map from eight Dask workers, some of which are killed, has the bytes of one from this process."""
    words = prepared(work)
    cluster = Cluster(count)
    try:
        process = start(command, (*words, "-o", str(work / "map.tif"), *over(cluster)))
        for victim in cluster.workers[:kills]:
            seen = len(list((work / "map.tif.parts").glob("*.npy")))
            while process.is_alive() and len(list((work / "map.tif.parts").glob("*.npy"))) < seen + 4:
                time.sleep(0.02)
            assert process.is_alive(), f"ended with {process.exitcode} before workers were killed"
            victim.kill()
        assert exit_code(process) == 0
    finally:
        cluster.kill()
    assert (work / "whole.tif").read_bytes() == (work / "map.tif").read_bytes()
    return {"Dask workers": count, "of these killed": kills, "maps that differ": 0}


def restart_dask_scheduler(work: Path) -> dict[str, float]:
    """A prediction whose Dask scheduler is killed and restarted reports it, and goes on where it was."""
    words = (*prepared(work), "-o", str(work / "map.tif"))
    cluster, log = Cluster(2), work / "log"
    try:
        process = start(command, (*words, *over(cluster)), errors=log)
        while process.is_alive() and len(list((work / "map.tif.parts").glob("*.npy"))) < 5:
            time.sleep(0.02)
        began = time.monotonic()
        cluster.kill()
        cluster.start()
        assert exit_code(process) in (0, 2), log.read_text()
        seconds = time.monotonic() - began
        kept = len(list((work / "map.tif.parts").glob("*.npy")))
        if process.exitcode:
            assert "--resume" in log.read_text() and kept >= 4, log.read_text()
            assert exit_code(start(command, (*words, "--resume", *over(cluster)))) == 0
    finally:
        cluster.kill()
    assert (work / "whole.tif").read_bytes() == (work / "map.tif").read_bytes()
    return {"Dask schedulers restarted": 1, "noticed after s": round(seconds, 1), "maps that differ": 0}


def prepared(work: Path) -> tuple[str, ...]:
    """Write a scene and its map; return the words that predict it, without the output."""
    chips.scene(work, 120, 120)
    words = ("predict", "--model", str(chips.model_folder()), "--raster", str(work / "scene0.tif"), "--quiet")
    words += ("--sensor", "sentinel2", "--window", "120")
    assert exit_code(start(command, (*words, "--workers", "1", "-o", str(work / "whole.tif")))) == 0
    return words


def over(cluster: Cluster) -> tuple[str, ...]:
    """Return the words that choose a cluster."""
    return ("--engine", "dask", "--scheduler", cluster.address)
