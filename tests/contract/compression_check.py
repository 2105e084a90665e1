"""Check of one compression: its payloads by themselves, and the mean that workers make of them."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from dtsweep.compression.compression import Compression, Layout, compression_for
from dtsweep.compression.exchange import mean_for, unmarked
from dtsweep.sweep.compressions import COMPRESSIONS, CompressionInfo
from dtsweep.sweep.point import Point
from tests.contract.mode_check import broken, raise_broken
from tests.contract.regression import CPU
from tests.contract.simulated import Simulated, on_ranks

LENGTHS = (0, 1, 2, 7, 8, 9, 255, 256, 257, 773)
"""Numbers of values, also around the sizes of blocks."""

TYPES = (torch.float32, torch.float64, torch.bfloat16)
"""Types of values, which are those of the parameters."""

RANKS = (1, 2, 3, 5)
"""Numbers of workers, also odd ones."""

STEPS = 400
"""Steps after which error feedback has sent what it had left out.

Where a share of the values travels, enough for each to travel 40 times.
"""


@dataclass(frozen=True)
class Codec:
    """A compression with the fields of its points."""

    name: str
    fields: dict[str, Any]

    @property
    def info(self) -> CompressionInfo:
        """Its declaration."""
        return COMPRESSIONS[self.name]

    def point(self, workers: int = 1) -> Point:
        """A point that uses it."""
        return Point(workers=workers, compression=self.name, **self.fields)

    def made(self, numel: int, dtype: torch.dtype = torch.float32) -> Compression:
        """The compression of a tensor that is a matrix of 7 columns, as far as it goes, and a rest.

        Args:
            numel: number of values.
            dtype: of the values.
        """
        shapes = [torch.Size([numel // 7, 7]), torch.Size([numel % 7])]
        layout = Layout(numel=numel, dtype=dtype, device=CPU, shapes=shapes)
        return compression_for(self.point(), layout)


def values_of(numel: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values of magnitudes from 1e-3 to 10, with zeros."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(numel) * 10.0 ** random.integers(-3, 2, size=numel)
    return torch.from_numpy(np.where(random.random(numel) < 0.1, 0, values)).to(dtype)


def read(reader: Compression, payload: Tensor, like: Tensor) -> Tensor:
    """Values that another process reads from a payload."""
    values = torch.zeros_like(like)
    reader.expect()
    reader.add_to(values, payload)
    return values


def a_payload_depends_on_the_number_of_values_alone(codec: Codec) -> Iterator[str]:
    """Its length and type; it is one-dimensional, and empty for no values."""
    for numel in LENGTHS:
        writer = codec.made(numel)
        payloads = [writer.compress_alone(values_of(numel, seed)) for seed in range(3)]
        if len({len(payload) for payload in payloads}) > 1:
            yield f"payloads of {numel} values have {[len(p) for p in payloads]} elements"
        if any(p.dim() != 1 or p.dtype != writer.payload_dtype for p in payloads):
            yield f"a payload of {numel} values is not 1-D of type {writer.payload_dtype}"
        if not numel and len(payloads[0]):
            yield "the payload of no values is not empty"


def values_are_left_as_they_are(codec: Codec) -> Iterator[str]:
    """`compress` writes to a payload alone."""
    values = values_of(773)
    before = values.clone()
    codec.made(773).compress_alone(values)
    if not torch.equal(values, before):
        yield "compress writes to its values"


def a_payload_is_read_wherever_it_lies(codec: Codec) -> Iterator[str]:
    """Bytes come behind others, where nothing is aligned."""
    values = values_of(773)
    payload = codec.made(773).compress_alone(values)
    if payload.dtype != torch.uint8:
        return
    moved = torch.cat([torch.zeros(1, dtype=torch.uint8), payload])[1:]
    aligned = read(codec.made(773), payload, values)
    if not torch.equal(read(codec.made(773), moved, values), aligned):
        yield "bytes that do not begin at a multiple of 4 are read differently"


def zeros_stay_zeros_in_every_type(codec: Codec) -> Iterator[str]:
    """Rows that have no gradient stay as they are."""
    for dtype in TYPES:
        zeros = torch.zeros(263, dtype=dtype)
        payload = codec.made(263, dtype).compress_alone(zeros)
        if read(codec.made(263, dtype), payload, zeros).any():
            yield f"zeros of type {dtype} are read as other values"


def random_numbers_of_the_workload_are_left_alone(codec: Codec) -> Iterator[str]:
    """A compression that draws has a generator of its own."""
    before = torch.get_rng_state()
    codec.made(773).compress_alone(values_of(773))
    if not torch.equal(torch.get_rng_state(), before):
        yield "compress draws from torch's own generator"


def adding_with_a_scale_is_adding_so_much_of_it(codec: Codec) -> Iterator[str]:
    """`add_to(values, payload, scale)`."""
    values = values_of(515)
    payload = codec.made(515).compress_alone(values)
    found, reader = torch.ones(515), codec.made(515)
    reader.expect()
    reader.add_to(found, payload, 0.25)
    if not torch.allclose(found, 1 + 0.25 * read(codec.made(515), payload, values), rtol=1e-2):
        yield "add_to with scale=0.25 does not add a quarter"


def the_mean_is_equal_on_all_workers(codec: Codec) -> Iterator[str]:
    """To the last bit, for each number of workers and values."""
    for ranks in RANKS:
        for numel in LENGTHS[1:]:
            first, *others = means_of(codec, ranks=ranks, numel=numel, steps=1)
            if not all(torch.equal(first, other) for other in others):
                yield f"{ranks} workers have different means of {numel} values"
            if not first.isfinite().all():
                yield f"the mean of {numel} values over {ranks} workers is not finite"


def over_time_all_that_was_given_arrives(codec: Codec) -> Iterator[str]:
    """With error feedback."""
    if not codec.info.has_feedback:
        return
    numel = 777
    steps = max(STEPS, math.ceil(40 / (codec.point().compression_ratio or 1)))
    for total in means_of(codec, ranks=2, numel=numel, steps=steps):
        exact = (values_of(numel, 0) + values_of(numel, 1)) / 2
        lost = float((total / steps - exact).norm() / exact.norm())
        if lost > 0.1:
            yield f"after {steps} steps {lost:.0%} of what was given has not arrived"


def means_of(codec: Codec, *, ranks: int, numel: int, steps: int) -> list[Tensor]:
    """Sums over steps of the mean of the workers' values, by rank."""

    def work(worker: Simulated) -> Tensor:
        total = torch.zeros(numel)
        shapes = [torch.Size([numel // 7, 7]), torch.Size([numel % 7])]
        mean = mean_for(codec.point(ranks), total, worker, shapes=shapes)
        for _ in range(steps):
            tensor = values_of(numel, seed=worker.rank)
            mean.begin(tensor, unmarked)
            mean.finish(tensor, unmarked)
            total += tensor
        return total

    return on_ranks(ranks, work)


PROMISES: Collection[Callable[[Codec], Iterator[str]]] = (
    a_payload_depends_on_the_number_of_values_alone,
    values_are_left_as_they_are,
    a_payload_is_read_wherever_it_lies,
    zeros_stay_zeros_in_every_type,
    random_numbers_of_the_workload_are_left_alone,
    adding_with_a_scale_is_adding_so_much_of_it,
    the_mean_is_equal_on_all_workers,
    over_time_all_that_was_given_arrives,
)
"""All promises of a compression."""


def check_compression(name: str, **fields: Any) -> None:
    """Check that a compression keeps what its declaration promises.

    Args:
        name: value of `compression`.
        fields: more fields of the points, such as `compression_ratio=0.1`.

    Raises:
        ExceptionGroup: an `AssertionError` for each broken promise, in words.
        SweepError: the compression can't be found.
    """
    codec = Codec(name, fields)
    errors = broken(PROMISES, codec)
    raise_broken(f"compression {name!r}", errors)
