"""The benchmark behind docs/compression.md: crossings of step times, and its end without rights."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks.crossings import (
    crossing,
    crossing_by_arithmetic,
    curves_of,
    measured_crossings,
)
from tests.pages import ROOT

RATES = (10_000, 1000, 100)
WORK_S, OWN_S = 0.1, 0.05


def rows(name: str, *, megabytes: float, own_s: float | None = None) -> list[dict[str, object]]:
    """Rows of two launches of a job without overlap; the second is slower and has fewer rates."""
    made: list[dict[str, object]] = []
    for launch, rates in ((0, RATES), (1, RATES[:2])):
        for rate in rates:
            step_s = WORK_S * (1 + launch) + (own_s or 0) + 2 * megabytes * 8 / rate
            row = {"launch": launch, "model": "m", "mbits": rate, "variant": name}
            row |= {f"latency_s{end}": step_s for end in ("", "_low", "_high")}
            row |= {"comm_share": None, "overlap_share": None, "compression_error": None}
            sent = megabytes * 1e6 if rate == RATES[0] else None
            made.append(row | {"compress_s": own_s, "bytes_sent_per_step": sent})
    return made


def test_without_overlap_measured_and_arithmetic_crossings_are_the_same() -> None:
    found = curves_of(rows("ddp", megabytes=8) + rows("half", megabytes=4, own_s=OWN_S), "m")
    expected = 2 * 4 * 8 / OWN_S
    assert crossing_by_arithmetic(found["ddp"], found["half"]) == pytest.approx(expected)
    assert measured_crossings(found["ddp"], found["half"]) == pytest.approx([expected] * 3)


def test_less_to_send_without_own_time_wins_at_all_and_more_never() -> None:
    found = curves_of(
        rows("ddp", megabytes=8) + rows("less", megabytes=1) + rows("more", megabytes=9), "m"
    )
    for name, expected in (("less", math.inf), ("more", 0.0)):
        assert crossing_by_arithmetic(found["ddp"], found[name]) == expected
        assert measured_crossings(found["ddp"], found[name]) == [expected] * 3


def test_a_lead_that_is_lost_again_does_not_count() -> None:
    assert crossing([1000, 100, 10], [1.0, 2.0, 9.0], [0.9, 3.0, 3.0]) == pytest.approx(
        1 / (0.01 + 0.09 / 7)
    )


def test_without_tc_it_ends_with_one_line(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-m", "benchmarks.slow_network"],
        cwd=ROOT,
        env=os.environ | {"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert ended.stdout == ""
    (line,) = ended.stderr.splitlines()
    assert "tc" in line
