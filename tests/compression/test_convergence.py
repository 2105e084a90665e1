"""Every compression finds the optimum of a convex problem."""

from __future__ import annotations

import functools

import pytest

from dtsweep.sweep.compressions import COMPRESSIONS
from tests.compression.convex import MOST, steps_to_optimum

SLOWER = {
    **dict.fromkeys(("fp16", "bf16", "int8"), 1.1),
    **{"int4": 1.2, "sign": 1.3, "topk": 1.5, "powersgd": 1.5, "randomk": 1.5},
}
"""Most steps of a compression, relative to the exact mean, with the settings of `convex`."""

pytestmark = pytest.mark.slow
exact = functools.cache(lambda: steps_to_optimum(None))


def test_the_exact_mean_gets_there() -> None:
    assert 50 < exact() < MOST / max(SLOWER.values())


@pytest.mark.parametrize("name", COMPRESSIONS)
def test_a_compression_gets_there_too(name: str) -> None:
    assert steps_to_optimum(name) < SLOWER[name] * exact()
