"""Fixtures that tests of several folders share."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator
from typing import Any

import pytest

import processes
from power import Disk


@pytest.fixture
def forked(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers that the package would spawn are forked from a process that has imported what they need."""
    forked_context = processes.context()
    monkeypatch.setattr(multiprocessing, "get_context", lambda method=None: forked_context)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Disk:
    """What a power cut would leave of the files that this process writes."""
    return Disk(monkeypatch)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Any]:
    """Two Dask workers of this machine, as a user would have them elsewhere; they are forked too."""
    dask, distributed = pytest.importorskip("dask"), pytest.importorskip("distributed")
    size = {"n_workers": 2, "threads_per_worker": 2}
    with (
        dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}),
        distributed.LocalCluster(**size, dashboard_address=":0", silence_logs=50) as local,
    ):
        yield local


@pytest.fixture(scope="session", autouse=True)
def forking() -> None:
    """Start the server that processes are forked from now, with neither the environment nor the folders of a test."""
    processes.context()
