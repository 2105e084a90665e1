"""Noise of trials behind an answer."""

from __future__ import annotations

from typing import Any

import pytest

from dtsweep.analysis.noise import Noise, noise_of
from tests.frames import trials

SHORT = {"flags": ["imprecise"], "stop_reason": "max_seconds"}


@pytest.mark.parametrize(
    ("rows", "noise", "is_mostly"),
    [
        ([SHORT, SHORT, {}], Noise(drift=0.0, imprecise=2, trials=3, limit="max_seconds"), True),
        ([SHORT, {}], Noise(drift=0.0, imprecise=1, trials=2, limit="max_seconds"), False),
        (
            [SHORT | {"stop_reason": "enough"}, {"stop_reason": "max_steps"}],
            Noise(drift=0.0, imprecise=0, trials=2, limit=""),
            False,
        ),
    ],
)
def test_windows_that_a_limit_ended_before_the_precision_asked_for_are_counted(
    rows: list[dict[str, Any]], noise: Noise, is_mostly: bool
) -> None:
    counted = noise_of(trials(*rows), drift=None)
    assert (counted, counted.is_mostly_imprecise) == (noise, is_mostly)
