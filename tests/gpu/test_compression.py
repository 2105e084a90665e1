"""Compressions on a GPU: no step waits for one, and all devices draw the same places."""

from __future__ import annotations

import pytest
import torch

from dtsweep.compression.compression import Layout, compression_for
from dtsweep.compression.randomk import random_numbers
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.point import Point

ROWS, COLUMNS = 2**10, 2**8


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_bucket_is_compressed_and_read_without_a_wait(name: str) -> None:
    device = torch.device("cuda", 0)
    values = torch.randn(ROWS * COLUMNS, device=device)
    layout = Layout(
        numel=len(values),
        dtype=values.dtype,
        device=device,
        shapes=[torch.Size([ROWS, COLUMNS])],
    )
    compression = compression_for(Point(compression=name), layout)
    # Twice: libraries are loaded, and what is used again is made, at the first.
    compression.add_to(values, compression.compress_alone(values), 0.5)
    torch.cuda.set_sync_debug_mode("error")
    try:
        compression.add_to(values, compression.compress_alone(values), 0.5)
    finally:
        torch.cuda.set_sync_debug_mode("default")


def test_random_numbers_are_those_of_a_cpu() -> None:
    keys = (123456789, 987654321)
    on_cpu = random_numbers(torch.arange(10_000), keys)
    on_gpu = random_numbers(torch.arange(10_000, device="cuda"), keys)
    assert torch.equal(on_gpu.cpu(), on_cpu)
