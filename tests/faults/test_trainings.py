"""Trainings under faults, the quick part: one process at a time, files that are whole, sums in a fixed order."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from atomizer_io.errors import AtomizerError, ConfigError
from atomizer_io.models.storage import SAVING
from atomizer_io.training.batches import explained_worker_death
from atomizer_io.training.folder import exclusive
from atomizer_io.training.run import repeatable
from processes import exit_code, start


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("two_threads")
def test_threads_add_up_in_a_fixed_order() -> None:
    own = torch.Generator().manual_seed(0)
    numbers = torch.randn(200_000, 4, generator=own)
    places = torch.randint(0, 50, (200_000,), generator=own)

    def added() -> torch.Tensor:
        return torch.zeros(50, 4).index_put_((places,), numbers, accumulate=True)

    with repeatable():
        first = added()
        assert all(torch.equal(first, added()) for _ in range(10))
    assert not torch.are_deterministic_algorithms_enabled()


def trains(folder: Path) -> None:
    with exclusive(folder):
        pass


def test_one_training_at_a_time_has_a_folder_and_begins_without_leftovers(tmp_path: Path) -> None:
    (tmp_path / "best" / f"{SAVING}-killed").mkdir(parents=True)
    (tmp_path / SAVING).mkdir()
    with exclusive(tmp_path):
        assert not list(tmp_path.rglob(f"{SAVING}*"))
        assert exit_code(start(refused, tmp_path)) == 0
    assert exit_code(start(trains, tmp_path)) == 0


def refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="another training writes to"), exclusive(folder):
        pass


def test_the_death_of_a_loader_worker_is_explained_and_other_errors_are_left_alone() -> None:
    with pytest.raises(AtomizerError, match=r"a loader worker died, .*: go on"), explained_worker_death("go on"):
        raise RuntimeError("DataLoader worker (pid 7) is killed by signal: Killed.")
    with pytest.raises(RuntimeError, match="something else"), explained_worker_death("go on"):
        raise RuntimeError("something else")
