"""What a worker pushes to a shard, packed on one end and unpacked on the other.

No Ray is started.
"""

from __future__ import annotations

import asyncio
import functools
from typing import Any

import pytest
import torch
from torch import Tensor

from dtsweep.sweep.compressions import COMPRESSIONS, reads_of
from dtsweep.sweep.point import Point
from dtsweep.sync.pushes import Pushes
from dtsweep.sync.server_shard import Shard

SHAPES = [torch.Size([40, 30]), torch.Size([7])]
NUMEL = 1207
VARIANTS = [
    (None, None),
    *(
        (name, coding)
        for name in COMPRESSIONS
        for coding in (None, "zstd")
        if not coding or COMPRESSIONS[name].can_be_coded
    ),
]


def point(compression: str | None, coding: str | None = None, **fields: Any) -> Point:
    if coding:
        fields["compression_coding"] = coding
    return Point(sync="parameter_server", workers=2, compression=compression, **fields)


def gradient(step: int) -> Tensor:
    return torch.randn(NUMEL, generator=torch.Generator().manual_seed(step))


@pytest.mark.parametrize(("compression", "coding"), VARIANTS)
def test_the_shard_reads_what_the_worker_takes_for_pushed(
    compression: str | None, coding: str | None
) -> None:
    worker, twin, shard = (Pushes(point(compression, coding), SHAPES) for _ in range(3))
    total, read = torch.zeros(NUMEL), torch.zeros(NUMEL)
    for step in range(5):
        pushed = worker.pack(gradient(step))
        pushed.flags.writeable = False
        found = shard.unpack(pushed)
        assert torch.equal(found, twin.changed(gradient(step)))
        total, read = total + gradient(step), read + found
    if compression in (None, "fp16", "bf16", "int8"):
        assert torch.allclose(read, total, atol=0.2)
    assert (worker.pack(gradient(9)).nbytes < 4 * NUMEL) == (compression is not None)


@pytest.mark.parametrize("compression", [None, *COMPRESSIONS])
def test_each_worker_s_pushes_are_read_by_themselves(compression: str | None) -> None:
    """One worker pushes twice before the other does: payloads depend on their worker's count."""
    fields: dict[str, Any] = {}
    if "compression_ratio" in reads_of(compression):
        fields = {"compression_ratio": 0.25}
    plan = point(compression, **fields)

    async def run() -> tuple[Tensor, Tensor]:
        shard = Shard()
        start = [torch.zeros(shape) for shape in SHAPES]
        await shard.reset(start, functools.partial(torch.optim.SGD, lr=1.0), plan)
        workers, twins = ([Pushes(plan, SHAPES) for _ in range(2)] for _ in range(2))
        expected, values = torch.zeros(NUMEL), None
        for step, rank in enumerate((0, 0, 1, 0, 1, 1)):
            values, _, _ = await shard.exchange(rank, workers[rank].pack(gradient(step)), 0)
            expected -= twins[rank].changed(gradient(step)) / 2
        assert values is not None
        return torch.from_numpy(values), expected

    values, expected = asyncio.run(run())
    assert torch.allclose(values, expected, atol=1e-5)


@pytest.mark.parametrize("compression", ["topk", "randomk"])
def test_what_leaves_nothing_out_is_the_gradient(compression: str) -> None:
    worker, shard = (Pushes(point(compression, compression_ratio=1.0), SHAPES) for _ in range(2))
    for step in range(3):
        assert torch.equal(shard.unpack(worker.pack(gradient(step))), gradient(step))
