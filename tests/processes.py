"""Processes of their own for tests: forked from one that has imported what they need, as importing takes seconds."""

from __future__ import annotations

import multiprocessing
import multiprocessing.forkserver
import os
import pickle
import sys
import warnings
from collections.abc import Callable
from multiprocessing.context import ForkServerContext, ForkServerProcess
from pathlib import Path

import torch

PRELOADED = [
    *("atomizer_io.cli.train", "atomizer_io.training.run", "atomizer_io.training.task", "lightning.pytorch"),
    *("atomizer_io.cli.predict", "atomizer_io.prediction.rasters", "atomizer_io.prediction.points"),
]


def context() -> ForkServerContext:
    """Where processes come from: a server that does nothing but import, once for all tests.

    It starts now, so that it has neither the environment nor the temporary folder of a test.
    """
    server = multiprocessing.get_context("forkserver")
    server.set_forkserver_preload(PRELOADED)
    multiprocessing.forkserver.ensure_running()
    return server


def start(
    work: Callable[..., object], *arguments: object, errors: Path | None = None, **environment: str
) -> ForkServerProcess:
    """A process that calls a function of a module, in this folder; its errors go to a file, if one is named."""
    arguments_of_work = (pickle.dumps((work, arguments)), os.getcwd(), torch.get_num_threads(), errors, environment)
    process = context().Process(target=_work, args=arguments_of_work, daemon=True)
    process.start()
    return process


def exit_code(process: ForkServerProcess) -> int | None:
    """How a process ended; one that does not end is for the time limit of the test."""
    process.join()
    return process.exitcode


def command(words: tuple[str, ...], before: Callable[[], None] | None = None) -> None:
    """``atomizer`` with these words, after ``before``."""
    from atomizer_io.cli import main

    if before is not None:
        before()
    sys.exit(main(list(words)))


def _work(pickled: bytes, folder: str, threads: int, errors: Path | None, environment: dict[str, str]) -> None:
    os.chdir(folder)
    os.environ.update(environment)
    if errors is not None:
        with errors.open("wb") as file:
            os.dup2(file.fileno(), 2)
    torch.set_num_threads(threads)  # as many as here: sums of another number of threads differ in their last bits
    warnings.simplefilter("ignore")
    work, arguments = pickle.loads(pickled)  # now, as the module of the function may look at its environment
    work(*arguments)
