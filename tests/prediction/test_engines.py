"""The same bytes, whoever computes the windows; and what happens when one of them dies."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from atomizer_io.errors import AtomizerError, ConfigError, DataError
from atomizer_io.prediction.engines import Dask, Processes, ThisProcess, engine
from chips import model_folder, scene
from predicting import predict_raster


def twice(number: int) -> int:
    return 2 * number


def slowly(number: int) -> int:
    time.sleep(0.2)
    return number


def fail(number: int) -> int:
    raise DataError("image.tif", "is broken")


def die(number: int) -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return number


def test_the_engine_of_a_name() -> None:
    assert isinstance(engine("local", 0), ThisProcess)
    assert isinstance(engine("local", 1), ThisProcess)
    assert isinstance(engine("local", 2), Processes)
    assert isinstance(engine("dask"), Dask)
    with pytest.raises(ConfigError, match="'spark' is not known"):
        engine("spark")
    with pytest.raises(ConfigError, match="negative"):
        engine("local", -1)
    with pytest.raises(ConfigError, match="for Dask only"):
        engine("local", 1, "tcp://somewhere:8786")


def test_every_task_once(cluster: Any) -> None:
    expected = [(i, 2 * i) for i in range(20)]
    for one in (ThisProcess(), Dask(cluster.scheduler_address)):
        assert sorted(one.run(twice, range(20))) == expected
        assert list(one.run(twice, [])) == []


@pytest.mark.usefixtures("forked")
def test_errors_come_through(cluster: Any) -> None:
    for one in (ThisProcess(), Processes(1), Dask(cluster.scheduler_address)):
        with pytest.raises(DataError, match=r"image\.tif: is broken"):
            list(one.run(fail, range(3)))


@pytest.mark.usefixtures("forked")
def test_a_process_that_dies() -> None:
    with pytest.raises(AtomizerError, match="worker process died"):
        list(Processes(1).run(die, range(3)))


def test_no_scheduler_there(monkeypatch: pytest.MonkeyPatch) -> None:
    from distributed import Client

    with pytest.raises(ConfigError, match="no Dask scheduler responds at tcp://"):
        monkeypatch.setattr("atomizer_io.prediction.engines.TIMEOUT_S", 1)
        list(Dask("tcp://127.0.0.1:1").run(twice, range(3)))
    with pytest.raises(ValueError):
        Client.current()


def test_a_dask_worker_that_is_killed_loses_nothing(cluster: Any) -> None:
    from distributed import Client

    with Client(cluster.scheduler_address, set_as_default=False) as client:
        victim = min(client.run(os.getpid).values())
    results = []
    for number, result in Dask(cluster.scheduler_address).run(slowly, range(30)):
        results.append((number, result))
        if len(results) == 4:
            with contextlib.suppress(ProcessLookupError):
                os.kill(victim, signal.SIGKILL)
    assert sorted(results) == [(i, i) for i in range(30)]


def test_the_same_bytes_from_every_engine(tmp_path: Path, cluster: Any) -> None:
    raster = scene(tmp_path, 30, 30)
    engines = {"here": ThisProcess(), "processes": Processes(2), "dask": Dask(cluster.scheduler_address)}
    layers = ("probabilities", "confidence", "attention")
    kinds = {}
    for name, one in engines.items():
        product = predict_raster(model_folder(), raster, tmp_path / f"{name}.tif", layers=layers, engine=one)
        kinds[name] = {kind: path.read_bytes() for kind, path in product.files.items()}
    assert kinds["here"] == kinds["processes"] == kinds["dask"]
    assert set(kinds["here"]) == {
        *(f"{layer}.tif" for layer in ("map", *layers)),
        *("areas.json", "areas.csv", "map.aux.xml", "preview.png"),
    }


def test_a_cluster_of_its_own() -> None:
    import dask

    with dask.config.set({"distributed.worker.multiprocessing-method": "spawn"}):  # as it is by default
        assert sorted(Dask(workers=1).run(twice, range(3))) == [(0, 0), (1, 2), (2, 4)]
