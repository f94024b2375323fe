"""Many runs that make up one table: what is there is skipped, what was interrupted goes on, results come one by one.

A task is a function of this package with plain arguments. It runs in a process of its own with one thread, so that two
side by side do not disturb each other, and returns plain values. The result file is written after each task. A single
task, as of an array of jobs, leaves its result in a file of its own (:func:`run_alone`), which the next call gathers.
"""

from __future__ import annotations

import json
import os
import time
import traceback
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from atomizer_io.errors import AtomizerError
from atomizer_io.machine import machine
from atomizer_io.texts import parse_json, read_text, write_text
from atomizer_io.training.config import OLD_KEYS
from atomizer_io.workers import spawned

# words that results were recorded with, and those of today
RETIRED = {"made-up": "synthetic", "asked, %": "decoded, %"}  # old name
Run = Callable[..., dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Task:
    """One run: ``run(**arguments)``, a function that another process can import, with arguments that JSON can hold.

    ``folders`` are further arguments that are only folders: they are not kept with the result, and another
    folder is not another run. ``minutes`` is how long it takes, as far as one knows: long ones begin first, and the
    time left is estimated from it.
    """

    name: str
    run: Run
    arguments: Mapping[str, Any] = field(default_factory=dict)
    minutes: float = 1.0
    folders: Mapping[str, str] = field(default_factory=dict)

    @property
    def all_arguments(self) -> dict[str, Any]:
        """Everything that ``run`` is called with."""
        return {**self.arguments, **self.folders}


About = Callable[[Mapping[str, Any]], Mapping[str, Any]]  # what a file holds beside the runs, from their results


def run_all(
    tasks: Sequence[Task], output: Path, *, jobs: int = 1, about: Mapping[str, Any] | About | None = None
) -> dict[str, Any]:
    """Run what ``output`` does not hold yet, ``jobs`` at once; return all results by the names of the tasks.

    With ``jobs`` 0 they run in this process, one after the other, with its threads. ``about`` is written beside the
    runs. A task whose arguments have changed runs again. One that fails leaves the others alone; the first error is
    raised at the end.
    """
    names = [task.name for task in tasks]
    if len(set(names)) < len(names):
        raise AtomizerError(f"two tasks have the same name: {next(name for name in names if names.count(name) > 1)}")
    kept = gathered(output)
    todo = sorted((task for task in tasks if not is_there(kept, task)), key=lambda task: -task.minutes)
    print(f"{len(tasks) - len(todo)} of {len(tasks)} runs are there, {len(todo)} to do", flush=True)
    failed: dict[str, str] = {}
    began = time.monotonic()
    ends: dict[str, float] = {}  # minutes after which each task was done
    for task, outcome in finished(todo, jobs):
        ends[task.name] = (time.monotonic() - began) / 60
        if isinstance(outcome, BaseException):
            known = isinstance(outcome, AtomizerError)  # whose message is enough
            failed[task.name] = str(outcome) if known else "".join(traceback.format_exception(outcome))
            print(f"{task.name} failed: {outcome}", flush=True)
            continue
        kept[task.name] = {"arguments": plain(task.arguments), **outcome}
        write(output, kept, about)
        rest = minutes_left(todo, max(1, jobs), ends)
        print(f"{task.name}: {ends[task.name]:.0f} min in all, about {rest:.0f} min left", flush=True)
    write(output, kept, about)
    if failed:
        name, text = next(iter(failed.items()))
        raise AtomizerError(f"{len(failed)} of {len(todo)} runs failed; the first is {name}:\n{text}")
    return {name: kept[name]["result"] for name in names}


def minutes_left(tasks: Sequence[Task], jobs: int, ends: Mapping[str, float]) -> float:
    """Return how many minutes tasks, ``jobs`` at once in their order, still take.

    ``ends`` has the minutes after which some were done, in the order of time. What is running counts for the time
    that it has had; the rest takes as much longer, or shorter, than its ``minutes`` as what was done so far.
    """
    times = list(ends.values())
    now, done = times[-1], 0.0
    for number, task in enumerate(tasks[: len(times) + jobs]):
        began = 0.0 if number < jobs else times[number - jobs]  # when another was done
        done += task.minutes if task.name in ends else min(task.minutes, now - began)
    return now * (sum(task.minutes for task in tasks) - done) / done


def finished(tasks: Sequence[Task], jobs: int) -> Iterator[tuple[Task, dict[str, Any] | BaseException]]:
    """Yield each task, as soon as it is done, with its result or error."""
    if jobs == 0:
        for task in tasks:
            try:
                outcome: dict[str, Any] | BaseException = timed(task.run, task.all_arguments)
            except Exception as error:
                outcome = error
            yield task, outcome
        return
    with spawned(jobs, one_thread) as pool:
        running: dict[Future[dict[str, Any]], Task] = {
            pool.submit(timed, task.run, task.all_arguments): task for task in tasks
        }
        while running:
            for future in wait(running, return_when=FIRST_COMPLETED).done:
                yield running.pop(future), future.exception() or future.result()


def run_alone(tasks: Sequence[Task], number: int, output: Path) -> dict[str, Any]:
    """Run the task of this number (from 0) in this process, and return its result; others may run beside it.

    The result goes to a file in the folder ``OUTPUT.cells``; where it is there already, nothing is computed.
    """
    if not 0 <= number < len(tasks):
        raise AtomizerError(f"there is no run {number}: the runs have the numbers 0 to {len(tasks) - 1}")
    task = tasks[number]
    kept = gathered(output)
    if not is_there(kept, task):
        kept = {task.name: {"arguments": plain(task.arguments), **timed(task.run, task.all_arguments)}}
        write(cells_of(output) / f"{zlib.crc32(task.name.encode()):08x}.json", kept, None)
    return dict(kept[task.name]["result"])


def cells_of(output: Path) -> Path:
    """Return the folder of results that were computed one by one."""
    return output.with_suffix(".cells")


def gathered(output: Path) -> dict[str, Any]:
    """Return the runs that a result file holds, and those that were computed one by one, by name."""
    kept = stored(output)
    for path in sorted(cells_of(output).glob("*.json")):
        kept |= stored(path)
    return kept


def one_thread() -> None:
    """Make this process compute with one thread."""
    os.environ["OMP_NUM_THREADS"] = "1"
    import torch

    torch.set_num_threads(1)


def timed(run: Run, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the result of a task with the minutes that it took."""
    began = time.monotonic()
    result = run(**arguments)
    minutes = round((time.monotonic() - began) / 60, 2)
    return {"result": plain(result), "minutes": minutes, "machine": machine()}


def plain(values: Any) -> Any:
    """Return values as JSON keeps them."""
    return json.loads(json.dumps(values, default=str))


def recorded(value: Any) -> Any:
    """Return settings under the names that results were recorded with: a renamed setting is not another run."""
    if isinstance(value, list | tuple):
        return [recorded(entry) for entry in value]
    if not isinstance(value, Mapping):
        return value
    old_names = {new: old for old, new in OLD_KEYS.items()}
    settings = {old_names.get(key, key): recorded(entry) for key, entry in value.items()}
    if isinstance(group := settings.get("training"), Mapping):
        old = {new.split(".")[-1]: old.split(".")[-1] for new, old in old_names.items()}
        settings["training"] = {old.get(key, key): entry for key, entry in group.items()}
    return settings


def present(value: Any) -> Any:
    """Return what a result file holds in the words of today; the names of files stay."""
    if isinstance(value, str):
        for old, new in RETIRED.items():
            value = value.replace(old, new)
    elif isinstance(value, list):
        return [present(entry) for entry in value]
    elif isinstance(value, Mapping):
        return {present(key): entry if key == "file" else present(entry) for key, entry in value.items()}
    return value


def is_there(kept: Mapping[str, Any], task: Task) -> bool:
    """Whether the result of a task, with the same arguments, is among those kept."""
    return task.name in kept and recorded(kept[task.name]["arguments"]) == recorded(plain(task.arguments))


def stored(output: Path) -> dict[str, Any]:
    """Return the runs that a result file holds, by name."""
    if not output.exists():
        return {}
    try:
        runs = present(parse_json(read_text(output))["runs"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise AtomizerError(f"{output} is not a file of results ({error}): remove it, or name another") from error
    return dict(runs)


def write(output: Path, runs: Mapping[str, Any], about: Mapping[str, Any] | About | None) -> None:
    """Write the runs with what they are about, whole or not at all."""
    output.parent.mkdir(parents=True, exist_ok=True)
    if callable(about):
        about = about({name: run["result"] for name, run in runs.items()})
    document = {**(about or {}), "machine": machine(), "runs": runs}
    write_text(output, json.dumps(document, indent=1) + "\n")
