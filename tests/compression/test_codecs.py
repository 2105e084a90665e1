"""Properties of every compression, on flat tensors made to be hard, without processes."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from dtsweep.compression.compression import Compression, Layout, compression_for
from dtsweep.compression.feedback import ErrorFeedback
from dtsweep.compression.randomk import random_numbers
from dtsweep.compression.scale_blocks import BLOCK, CHUNK
from dtsweep.compression.topk import AT_LEAST, SAMPLE
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.point import Point

CPU = torch.device("cpu")
FEEDBACK = [name for name, info in COMPRESSIONS.items() if info.has_feedback]
LENGTHS = (0, 1, 2, 7, 8, 9, BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK + 5, CHUNK + BLOCK + 3)
CODES = {"int8": 126.9, "int4": 6.9}
"""Steps from zero to the largest magnitude of a block."""


def made(
    name: str, numel: int, *, dtype: torch.dtype = torch.float32, seed: int = 0, **fields: Any
) -> Compression:
    """The compression of a tensor that is a matrix of 7 columns, as far as it goes, and a rest."""
    shapes = [torch.Size([numel // 7, 7]), torch.Size([numel % 7])]
    layout = Layout(numel=numel, dtype=dtype, device=CPU, shapes=shapes, seed=seed)
    if name == "powersgd":
        fields = {"compression_rank": 2, **fields}
    return compression_for(Point(compression=name, **fields), layout)


def read(reader: Compression, payload: Tensor, like: Tensor) -> Tensor:
    """Values that another process reads from a payload."""
    values = torch.zeros_like(like)
    reader.expect()
    reader.add_to(values, payload)
    return values


def sent(name: str, values: Tensor, **fields: Any) -> Tensor:
    """Values as another process reads them from their payload."""
    writer, reader = (made(name, len(values), dtype=values.dtype, **fields) for _ in range(2))
    return read(reader, writer.compress_alone(values), values)


def random_values(numel: int, seed: int = 0) -> Tensor:
    """Of magnitudes from 1e-6 to 1e3, with zeros."""
    random = np.random.default_rng(seed)
    values = random.standard_normal(numel) * 10.0 ** random.integers(-6, 4, size=numel)
    return torch.from_numpy(np.where(random.random(numel) < 0.1, 0, values)).float()


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_payload_is_as_long_as_the_number_of_values_says_and_stands_by_itself(name: str) -> None:
    for numel in LENGTHS:
        writer, values = made(name, numel), [random_values(numel, seed) for seed in range(3)]
        before = [each.clone() for each in values]
        payloads = [writer.compress_alone(each) for each in values]
        assert all(map(torch.equal, values, before))
        assert {payload.dtype for payload in payloads} == {writer.payload_dtype}
        (shape,) = {payload.shape for payload in payloads}
        assert shape if numel else shape == (0,)
        aligned = read(made(name, numel), payloads[0], values[0])
        assert aligned.isfinite().all()
        if writer.payload_dtype == torch.uint8:
            # Behind a byte, where nothing is aligned.
            moved = torch.cat([torch.zeros(1, dtype=torch.uint8), payloads[0]])[1:]
            assert torch.equal(read(made(name, numel), moved, values[0]), aligned)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_zeros_stay_zeros_in_every_type(name: str) -> None:
    for dtype in (torch.float32, torch.float64, torch.bfloat16):
        assert not sent(name, torch.zeros(BLOCK + 7, dtype=dtype)).any()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", [name for name in COMPRESSIONS if name != "randomk"])
def test_what_is_not_finite_is_not_lost(name: str, bad: float) -> None:
    for numel, place in ((3 * BLOCK, BLOCK + 1), (AT_LEAST, 12345)):
        values = random_values(numel)
        values[place] = bad
        assert not sent(name, values).isfinite().all()


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_the_workload_s_random_numbers_are_left_alone(name: str) -> None:
    before = torch.get_rng_state()
    made(name, 3 * BLOCK).compress_alone(random_values(3 * BLOCK))
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_adding_with_a_scale_is_adding_so_much_of_it(name: str) -> None:
    values = random_values(2 * BLOCK + 3)
    writer, reader = (made(name, len(values)) for _ in range(2))
    payload, found = writer.compress_alone(values), torch.ones(len(values))
    reader.expect()
    reader.add_to(found, payload, 0.25)
    expected = 1 + 0.25 * sent(name, values)
    assert torch.allclose(found, expected, rtol=1e-2 if name == "bf16" else 1e-5)


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 3 * BLOCK), st.integers(0, 2**32 - 1), st.sampled_from(sorted(CODES)))
def test_a_quantized_value_is_less_than_a_step_of_its_block_away(
    numel: int, seed: int, name: str
) -> None:
    values = random_values(numel, seed)
    for block, back in zip(values.split(BLOCK), sent(name, values).split(BLOCK), strict=True):
        assert (back - block).abs().max() <= block.abs().max() / CODES[name] * 1.001


@pytest.mark.parametrize("name", CODES)
def test_the_largest_of_a_block_never_wraps_around(name: str) -> None:
    random = np.random.default_rng(0)
    largest = torch.from_numpy(random.uniform(1e-30, 1e30, size=2000)).float()
    for sign in (-1.0, 1.0):
        values = (sign * largest[:, None]).repeat(1, BLOCK).reshape(-1)
        found = sent(name, values)
        assert (found / values).min() > 1 - 1.001 / CODES[name]
        assert (found / values).max() < 1 + 1.001 / CODES[name]


@pytest.mark.parametrize("name", CODES)
def test_a_block_of_tiny_values_comes_out_no_farther_off_than_zero(name: str) -> None:
    for largest in (1e-45, 1e-40, 1e-37, 1e-30):
        values = torch.linspace(-largest, largest, BLOCK)
        assert (sent(name, values) - values).abs().max() <= largest * 1.001


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", CODES)
def test_quantizing_is_right_on_average(name: str, dtype: torch.dtype) -> None:
    values, draws = torch.linspace(-1, 1, 97).to(dtype).repeat(200), 50
    writer, reader = made(name, len(values), dtype=dtype), made(name, len(values))
    step, like = 1 / CODES[name], values.float()
    mean = sum(read(reader, writer.compress(values), like) for _ in range(draws)) / draws
    errors = (mean - values).view(200, 97).mean(dim=0)
    # Rounding to nearest is wrong by up to half a step, always the same way; at random, by at most
    # this on average.
    assert errors.abs().max() < 5 * step / 2 / math.sqrt(200 * draws)


@pytest.mark.parametrize("name", CODES)
def test_small_numbers_in_half_precision_are_read_as_large_as_they_are(name: str) -> None:
    values, draws = torch.linspace(-1e-5, 1e-5, 8 * BLOCK).half(), 20
    writer, reader = (made(name, len(values), dtype=torch.float16) for _ in range(2))
    found = [read(reader, writer.compress(values), values).double() for _ in range(draws)]
    mean, given = torch.stack(found).mean(dim=0), values.double()
    assert float(mean @ given / given.square().sum()) == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("name", CODES)
def test_what_is_rounded_away_differs_from_value_to_value_and_from_time_to_time(name: str) -> None:
    values = torch.full((BLOCK,), 0.5)
    values[0] = 1.0
    compression = made(name, BLOCK)
    first, second = (read(compression, compression.compress(values), values) for _ in range(2))
    assert len(first[1:].unique()) == 2
    assert not torch.equal(first, second)
    assert not torch.equal(first, sent(name, values, seed=1))


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(FEEDBACK),
    st.integers(1, 3 * BLOCK),
    st.integers(0, 2**32 - 1),
    st.integers(1, 12),
)
def test_with_feedback_what_was_read_and_what_is_left_is_what_was_given(
    name: str, numel: int, seed: int, steps: int
) -> None:
    writer, reader = made(name, numel, dtype=torch.float64), made(name, numel, dtype=torch.float64)
    given, got = torch.zeros(numel, dtype=torch.float64), torch.zeros(numel, dtype=torch.float64)
    for step in range(steps):
        values = random_values(numel, seed + step).double()
        given += values
        got += read(reader, writer.compress_alone(values), values)
    assert torch.allclose(
        got + left_of(writer, numel), given, rtol=0, atol=1e-6 * float(given.abs().max() + 1)
    )


def left_of(compression: Any, numel: int) -> Tensor:
    """What has not travelled yet."""
    if isinstance(compression, ErrorFeedback):
        assert compression._residual is not None
        return compression._residual
    left = torch.zeros(numel, dtype=torch.float64)
    for group in compression._groups:
        torch._foreach_copy_(group.views(left), list(group.residual.unbind()))
    return left


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 2000), st.floats(0.001, 1.0), st.integers(0, 2**32 - 1))
def test_the_largest_values_travel_as_they_are(numel: int, ratio: float, seed: int) -> None:
    values = random_values(numel, seed)
    found = sent("topk", values, compression_ratio=ratio)
    count = math.ceil(ratio * numel)
    assert (found != 0).sum() == min(count, int((values != 0).sum()))
    assert torch.equal(found[found != 0], values[found != 0])
    left, travelled = values[found == 0].abs(), found[found != 0].abs()
    assert not len(left) or not len(travelled) or left.max() <= travelled.min()


@pytest.mark.parametrize(
    "kind", ["normal", "mostly zeros", "equal", "sorted", "periodic", "large where sampled"]
)
def test_a_guess_by_a_sample_finds_the_same_as_an_order_of_all(kind: str) -> None:
    numel, random = AT_LEAST + 77, torch.Generator().manual_seed(1)
    values = {
        "normal": lambda: torch.randn(numel, generator=random),
        "mostly zeros": lambda: (
            torch.randn(numel, generator=random) * (torch.rand(numel, generator=random) < 0.001)
        ),
        "equal": lambda: torch.ones(numel),
        "sorted": lambda: torch.linspace(-1, 1, numel),
        "periodic": lambda: torch.arange(numel) % 8.0,
        # Too few above the guessed limit: 500 of those looked at are large, and all others small.
        "large where sampled": lambda: torch.linspace(1, 2, numel).index_fill_(
            0, torch.arange(500) * (numel // SAMPLE), 10.0
        ),
    }[kind]()
    count = math.ceil(0.01 * numel)
    largest, found = (each.abs().topk(count).values for each in (values, sent("topk", values)))
    assert torch.equal(found, largest)


def places_of(compression: Any) -> Tensor:
    """Places of the values in the next payload of `randomk`."""
    compression.expect()
    positions: Tensor = compression._positions
    return positions


def test_every_place_is_as_likely_and_none_comes_twice() -> None:
    numel, draws = 103, 1000
    compression = made("randomk", numel, compression_ratio=0.1)
    counts = torch.zeros(numel)
    for _ in range(draws):
        positions = places_of(compression)
        assert len(positions.unique()) == len(positions) == 11
        counts[positions] += 1
    expected = draws * 11 / numel
    assert (counts - expected).abs().max() < 5 * math.sqrt(expected)


def test_random_numbers_are_the_same_on_every_machine_and_device() -> None:
    expected = [4277687882, 1722258072, 3539916773, 1009487758]
    assert random_numbers(torch.arange(4), [1, 2]).tolist() == expected


@pytest.mark.parametrize("name", CODES)
def test_ranks_round_apart(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    values, payloads = random_values(BLOCK), []
    monkeypatch.setattr(torch.distributed, "is_initialized", lambda: True)
    for rank in (0, 1):
        monkeypatch.setattr(torch.distributed, "get_rank", lambda rank=rank: rank)
        payloads.append(made(name, BLOCK).compress(values))
    assert not torch.equal(*payloads)


@pytest.mark.parametrize("numel", [7, BLOCK, 2 * BLOCK + 13])
def test_signs_are_those_of_the_values_and_as_large_as_a_block_is_on_average(numel: int) -> None:
    values = torch.randn(numel, generator=torch.Generator().manual_seed(0))
    expected = torch.cat([block.sign() * block.abs().mean() for block in values.split(BLOCK)])
    assert torch.allclose(sent("sign", values), expected)


def test_places_are_spread_also_where_most_travel_and_are_others_by_seed() -> None:
    first, other = (
        places_of(made("randomk", 1000, compression_ratio=0.7, seed=seed)) for seed in (0, 1)
    )
    assert len(first.unique()) == 700
    # A part is one place or two, so that between two of them lie no more than two.
    assert first.sort().values.diff().max() <= 3
    assert not torch.equal(first, other)


def test_low_ranks_are_exact_where_a_matrix_has_no_more() -> None:
    random = torch.Generator().manual_seed(0)
    left, right = (torch.randn(shape, generator=random) for shape in ((60, 3), (3, 7)))
    thin = (left @ right).view(-1)
    assert torch.allclose(sent("powersgd", thin, compression_rank=3), thin, atol=1e-3)


def test_a_low_rank_is_a_projection_that_comes_near_the_best_when_it_is_kept() -> None:
    matrix = torch.randn(60, 7, generator=torch.Generator().manual_seed(0)) * 0.5 ** torch.arange(7)
    best = torch.linalg.svdvals(matrix)[2:].norm()
    writer, reader = (made("powersgd", matrix.numel()) for _ in range(2))
    for _ in range(8):
        # Without what was left out before.
        for group in writer._groups:  # type: ignore[attr-defined]  # of powersgd
            group.residual = None
        values = matrix.reshape(-1)
        found = read(reader, writer.compress_alone(values), values).view_as(matrix)
        assert torch.linalg.matrix_rank(found, atol=1e-4) == 2
        assert (found.T @ (matrix - found)).abs().max() < 1e-3
    assert (matrix - found).norm() < 1.05 * best


def test_sign_leaves_rows_of_zeros_as_they_are() -> None:
    numel = 7 * 40 + 3
    compression = made("sign", numel)
    values = random_values(numel, seed=3) + 1e-3
    rows = values[: 7 * 40].view(40, 7)
    rows[11], values[-1] = 0, 0
    for step in range(20):
        given = values * (step + 1)
        found = read(made("sign", numel), compression.compress(given), given)
        assert not found[: 7 * 40].view(40, 7)[11].any()
        assert not found[-1]
        assert found[: 7 * 40].view(40, 7)[10].all()


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", FEEDBACK)
def test_a_value_that_is_not_finite_leaves_no_trace_once_it_has_gone(name: str, bad: float) -> None:
    numel = 7 * 60
    fields: dict[str, Any] = {"compression_ratio": 0.5} if name in ("topk", "randomk") else {}
    compression = made(name, numel, **fields)
    for step in range(30):
        values = random_values(numel, seed=step)
        if step == 3:
            values[100] = bad
        payload = compression.compress_alone(values)
        if step > 3:
            # What was left out of the step before is in it.
            assert read(compression, payload, values).isfinite().all(), step
