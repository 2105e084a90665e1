"""A step on a GPU launches its compression without waiting for it, on tensors without values."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
from torch import Tensor

from dtsweep.compression.exchange import Wait, mean_for, unmarked
from dtsweep.compression.scale_blocks import BLOCK
from dtsweep.compression.topk import AT_LEAST
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.point import Point
from tests.host_waits import waits_of

RANKS = 3
SHAPES = [torch.Size([AT_LEAST // 256, 256]), torch.Size([BLOCK + 3])]
NUMEL = sum(shape.numel() for shape in SHAPES)


class Alone:
    """Collectives of a rank whose peers send what it sends."""

    ranks, rank = RANKS, 1

    def all_reduce(self, values: Tensor) -> Wait:
        return lambda: values

    def all_gather(self, payload: Tensor) -> Wait:
        return lambda: payload.repeat(RANKS, 1)

    def all_to_all(self, payloads: Tensor) -> Wait:
        return payloads.clone


class CpuGenerator(torch.Generator):
    """A generator of a CPU for that of a device that torch makes none for."""

    def __new__(cls, *_: Any) -> CpuGenerator:
        return super().__new__(cls)


@pytest.fixture(autouse=True)
def _generators(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "Generator", CpuGenerator)


def exchanged(name: str, **fields: Any) -> Callable[[], None]:
    """Two steps of one bucket, each begun and finished; what is made once is made here."""
    values = torch.empty(NUMEL, device="meta")
    point = Point(workers=RANKS, compression=name, **fields)
    mean = mean_for(point, values, Alone(), shapes=SHAPES)

    def steps() -> None:
        for _ in range(2):
            mean.begin(values, unmarked)
            mean.finish(values, unmarked)

    # The first step also makes what all others use again.
    with suppress(NotImplementedError):
        steps()
    return steps


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_bucket_is_compressed_exchanged_and_read_without_a_wait(name: str) -> None:
    assert waits_of(exchanged(name)) == {}


def test_operators_that_wait_are_counted() -> None:
    works: dict[str, Callable[[Tensor], Any]] = {
        "nonzero": lambda x: x.nonzero(),
        "_local_scalar_dense": lambda x: bool(x.any()),
        "equal": lambda x: torch.equal(x, x),
        "index": lambda x: x[x > 0],
        "masked_select": lambda x: x.masked_select(x > 0),
        "_unique2": lambda x: x.unique(),
        "_to_copy": lambda x: x.to("meta"),
        "copy_": lambda x: torch.empty(4, device="meta").copy_(x),
        "repeat_interleave": lambda x: x.repeat_interleave(torch.tensor([1, 0, 2, 3])),
    }
    for name, work in works.items():
        assert waits_of(functools.partial(work, torch.arange(4))) == {name: 1}
