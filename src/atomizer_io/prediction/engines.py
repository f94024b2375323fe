"""Engines compute the windows: in this process, in several processes, or on the workers of a Dask cluster.

Each window is computed on one thread by whoever gets it, so the results are the same to the bit whichever engine is
used and however many workers it has.
"""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, CancelledError, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import torch

from atomizer_io.errors import AtomizerError, ConfigError
from atomizer_io.workers import spawned

Task = TypeVar("Task")
Result = TypeVar("Result")

AHEAD = 2  # tasks handed out per worker: enough to keep it busy, few enough to stay in memory
RETRIES = 5  # of a task that Dask gave up since its workers died
TIMEOUT_S = 20  # for a scheduler to respond
NAMES = ("local", "dask")


class Engine(Protocol):
    """Applies a function to tasks, in any order; the function and its results can be pickled."""

    def run(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Yield pairs of task and result as they are ready."""
        ...


def engine(name: str = "local", workers: int | None = None, scheduler: str | None = None) -> Engine:
    """Return the engine called ``name`` with this many processes (0: only this one; None: one per core).

    Dask takes the cluster at the address ``scheduler``, or makes one on this machine.
    """
    if name not in NAMES:
        raise ConfigError(f"engine {name!r} is not known; use {' or '.join(NAMES)}")
    if workers is not None and workers < 0:
        raise ConfigError(f"workers must not be negative, got {workers}")
    if name == "dask":
        return Dask(scheduler, workers)
    if scheduler is not None:
        raise ConfigError("scheduler is for Dask only: pass engine='dask' as well")
    count = cores() if workers is None else workers
    return Processes(count) if count > 1 else ThisProcess()


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True, slots=True)
class Execution:
    """Where a prediction runs, and what happens to existing files.

    ``engine`` computes the windows: this process by default, :class:`Processes` or :class:`Dask` otherwise. ``resume``
    continues an interrupted prediction, ``overwrite`` replaces an output. ``progress`` shows a progress bar. ``log``,
    such as ``print``, gets a line for each thing that was understood of the inputs or assumed of them.
    """

    engine: Engine | None = None
    resume: bool = False
    overwrite: bool = False
    progress: bool = True
    log: Callable[[str], None] | None = None

    def report(self, line: str) -> None:
        """Pass a line on to ``log``, if there is one."""
        if self.log is not None:
            self.log(line)


class ThisProcess:
    """Computes tasks in this process, one after the other, each on one thread: so sums are the same everywhere."""

    def run(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Yield pairs of task and result in the order of the tasks."""
        for task in tasks:
            before = torch.get_num_threads()
            torch.set_num_threads(1)
            try:
                result = function(task)
            finally:
                torch.set_num_threads(before)
            yield task, result


def keep_workers(engine: Engine | None) -> contextlib.AbstractContextManager[Any]:
    """Keep the workers of an engine between runs within this context, so that each loads a model only once."""
    kept: contextlib.AbstractContextManager[Any] = getattr(engine, "keep_workers", contextlib.nullcontext)()
    return kept


class Processes:
    """Computes tasks in several processes of this machine."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self._keep = False
        self._pool: ProcessPoolExecutor | None = None

    @contextlib.contextmanager
    def keep_workers(self) -> Iterator[None]:
        """Keep the workers until the context ends; see :func:`keep_workers`."""
        self._keep = True
        try:
            yield
        finally:
            self._keep = False
            if self._pool is not None:
                self._pool.shutdown(wait=True, cancel_futures=True)
            self._pool = None

    def run(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Yield pairs of task and result as they are ready, with a few tasks handed out ahead."""
        if self._pool is None:
            self._pool = spawned(self.workers)
        pool, broken = self._pool, False
        left, open_tasks = iter(tasks), {}
        try:
            for task in itertools.islice(left, AHEAD * self.workers):
                open_tasks[pool.submit(_alone, function, task)] = task
            while open_tasks:
                ready: set[Future[Result]] = wait(open_tasks, return_when=FIRST_COMPLETED).done
                for future in ready:
                    task = open_tasks.pop(future)
                    yield task, future.result()
                    for following in itertools.islice(left, 1):
                        open_tasks[pool.submit(_alone, function, following)] = following
        except BrokenProcessPool as error:
            broken = True
            raise AtomizerError(
                "a worker process died, probably out of memory; rerun with --resume and fewer --workers"
            ) from error
        finally:
            for future in open_tasks:
                future.cancel()
            if broken or not self._keep:
                self._pool = None
                pool.shutdown(wait=True, cancel_futures=True)


class Dask:
    """Computes tasks on a Dask cluster; needs the extra ``dask``."""

    def __init__(self, scheduler: str | None = None, workers: int | None = None) -> None:
        self.scheduler, self.workers = scheduler, workers

    @contextlib.contextmanager
    def keep_workers(self) -> Iterator[None]:
        """Keep the workers until the context ends; see :func:`keep_workers`."""
        if self.scheduler is not None:
            yield
            return
        with self._cluster() as cluster:
            self.scheduler = cluster.scheduler_address
            try:
                yield
            finally:
                self.scheduler = None

    def _cluster(self) -> Any:
        """Return a Dask cluster on this machine."""
        from distributed import LocalCluster

        count = cores() if self.workers is None else max(1, self.workers)
        return LocalCluster(n_workers=count, threads_per_worker=1, dashboard_address=":0", silence_logs=50)

    def run(self, function: Callable[[Task], Result], tasks: Iterable[Task]) -> Iterator[tuple[Task, Result]]:
        """Yield pairs of task and result as they are ready; a task whose worker died goes to another."""
        from distributed import Client, KilledWorker, as_completed

        with contextlib.ExitStack() as stack:
            if self.scheduler is None:
                client = stack.enter_context(Client(stack.enter_context(self._cluster())))
            else:
                try:
                    client = stack.enter_context(Client(self.scheduler, timeout=TIMEOUT_S))
                except OSError as error:
                    raise ConfigError(f"no Dask scheduler responds at {self.scheduler}: {error}") from error
            left, open_tasks, ready = iter(tasks), {}, as_completed()

            def submit(task: Any, tried: int = 0) -> None:
                future = client.submit(_alone, function, task, pure=False)
                open_tasks[future.key] = task, tried
                ready.add(future)

            def hand_out() -> None:
                threads = sum(client.nthreads().values())  # workers come and go
                for following in itertools.islice(left, max(0, AHEAD * max(1, threads) - len(open_tasks))):
                    submit(following)

            hand_out()
            for future in ready:
                task, tried = open_tasks.pop(future.key)
                try:
                    result = future.result()
                except KilledWorker as error:  # Dask blames the task; more likely its workers were ended
                    if tried >= RETRIES:
                        raise AtomizerError(
                            "workers die repeatedly, probably out of memory; rerun with --resume and workers with more "
                            "memory, or a smaller --window"
                        ) from error
                    submit(task, tried + 1)
                    continue
                except CancelledError as error:
                    raise AtomizerError("the connection to the Dask scheduler is lost; rerun with --resume") from error
                future.release()
                yield task, result
                hand_out()


def _alone(function: Callable[[Task], Result], task: Task) -> Result:
    """Compute one task on one thread, in a process that does nothing else meanwhile."""
    torch.set_num_threads(1)
    return function(task)
