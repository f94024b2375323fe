"""What is drawn depends on the seed and the place in the run, and on nothing else."""

from __future__ import annotations

import pytest
import torch

from atomizer_io.errors import ConfigError
from atomizer_io.training.draws import Draws, generator


def test_each_sample_comes_once_an_epoch_in_another_order() -> None:
    draws = Draws(10, 2, seed=3)
    first = [draw.index for batch in draws for draw in batch]
    draws.epoch = 1
    second = [draw.index for batch in draws for draw in batch]
    assert sorted(first) == sorted(second) == list(range(10)) and first != second
    assert first == [draw.index for batch in Draws(10, 2, seed=3) for draw in batch]
    assert first != [draw.index for batch in Draws(10, 2, seed=4) for draw in batch]


def test_an_incomplete_batch_is_left_out_unless_it_is_the_only_one() -> None:
    assert [len(batch) for batch in Draws(7, 2, seed=0)] == [2, 2, 2]
    (only,) = Draws(3, 8, seed=0)
    assert sorted(draw.index for draw in only) == [0, 1, 2]


def test_processes_share_the_same_batches() -> None:
    whole = list(Draws(13, 4, seed=1))
    parts = [list(Draws(13, 2, seed=1, process=p, processes=2)) for p in range(2)]
    assert len(whole) == len(parts[0]) == 3
    for batch, *shares in zip(whole, *parts, strict=True):
        assert sorted(batch, key=lambda d: d.place) == sorted(
            (draw for share in shares for draw in share), key=lambda d: d.place
        )


def test_every_process_has_something_to_do() -> None:
    parts = [list(Draws(2, 1, seed=1, process=p, processes=5)) for p in range(5)]
    assert all(len(batches) == 1 and len(batches[0]) == 1 for batches in parts)
    draws = [draw for (batch,) in parts for draw in batch]
    assert {draw.index for draw in draws} == {0, 1} and sorted(draw.place for draw in draws) == list(range(5))


def test_one_can_begin_anywhere() -> None:
    whole = list(Draws(12, 3, seed=5))
    later = Draws(12, 3, seed=5)
    later.first = later.place = 2
    assert list(later) == whole[2:]


def test_a_round_goes_through_the_ends_of_epochs() -> None:
    epochs = Draws(12, 3, seed=5)
    every = []
    for epochs.epoch in range(3):
        every += list(epochs)
    rounds = Draws(12, 3, seed=5, round=5)
    assert len(rounds) == 5 and list(rounds) == every[:5]
    rounds.epoch, rounds.first = 1, 1
    assert list(rounds) == every[5:10]
    rounds.epoch, rounds.first, rounds.place = 2, 0, 3
    assert list(rounds) == every[8:10]


def test_generators_are_their_own() -> None:
    a, b = generator(0, "sample", 1, 2, 3), generator(0, "sample", 1, 2, 3)
    assert torch.equal(torch.rand(4, generator=a), torch.rand(4, generator=b))
    others = [generator(*keys).initial_seed() for keys in ((1, "x"), (0, "x"), (0, "y"), (0, "x", 0), (0, "x", 1))]
    assert len(set(others)) == len(others)


def test_nothing_to_draw() -> None:
    with pytest.raises(ConfigError, match="no sample"):
        Draws(0, 1, seed=0)
    with pytest.raises(ConfigError, match="batch_size"):
        Draws(3, 0, seed=0)
