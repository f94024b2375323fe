"""A batch in one block of memory is the same batch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import atomizer_io as aio
from atomizer_io.data.sensors import SENTINEL2
from atomizer_io.training.batches import pack

TENSORS = {
    "rotated": torch.arange(12.0).reshape(3, 4).T,
    "sliced": torch.arange(12)[::2],
    "empty": torch.zeros(0, 2),
    "single": torch.tensor(3.5, dtype=torch.float64),
    "flags": torch.tensor([True, False]),
    "short": torch.tensor([1, 2], dtype=torch.uint8),
    "half": torch.ones(3, dtype=torch.float16),
    "brain": torch.ones(3, dtype=torch.bfloat16),
}


@pytest.mark.parametrize("name", TENSORS)
def test_tensors_come_back_as_they_were(name: str) -> None:
    tensor = TENSORS[name]
    unpacked = pack({"a": [tensor, tensor], "b": name}).unpack()
    assert unpacked["b"] == name and unpacked["a"][0] is unpacked["a"][1]
    assert unpacked["a"][0].dtype == tensor.dtype and torch.equal(unpacked["a"][0], tensor)


def test_what_is_found_can_be_written_to() -> None:
    unpacked = pack([torch.zeros(5)]).unpack()[0]
    unpacked += 1
    assert float(unpacked.sum()) == 5


def test_numbers_of_16_bits_and_dates_survive() -> None:
    values = np.arange(32, dtype=np.uint16).reshape(2, 4, 4)
    atoms = aio.AtomSet.from_raster(values, SENTINEL2.pick("B02", "B03"), 10.0, "2021-07-04")
    unpacked = pack(atoms).unpack()
    assert unpacked.acquisitions[0].date == atoms.acquisitions[0].date and unpacked.channels == atoms.channels
    assert torch.equal(unpacked.acquisitions[0].values.long(), atoms.acquisitions[0].values.long())
