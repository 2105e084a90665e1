"""Compiled points against the same ones uncompiled, on rows whose ratios are known."""

from __future__ import annotations

from typing import Any

from dtsweep.report.content import content_of
from tests.frames import trials


def launches(rate: float, **point: Any) -> list[dict[str, Any]]:
    """Three launches around a rate, 1 % apart, each known to 0.5 %."""
    rates = [rate * factor for factor in (0.99, 1.0, 1.01)]
    name = " ".join(f"{key}={value}" for key, value in point.items())
    return [
        {
            **point,
            "point_id": name,
            "repeat": repeat,
            "session": f"s{name}{repeat}",
            "samples_per_s": each,
            "samples_per_s_low": each * 0.995,
            "samples_per_s_high": each * 1.005,
            "step_p50_s": 4 / each,
            "step_p50_s_low": 4 / each * 0.995,
            "step_p50_s_high": 4 / each * 1.005,
        }
        for repeat, each in enumerate(rates, start=1)
    ]


def test_the_report_says_where_compiled_is_slower_than_eager_and_where_faster() -> None:
    rates = {1: (240.0, 100.0), 4: (100.0, 100.0), 16: (100.0, 150.0)}
    rows = [
        row
        for micro_batch, pair in rates.items()
        for compiled, rate in zip((False, True), pair, strict=True)
        for row in launches(rate, micro_batch=micro_batch, compile=compiled)
    ]
    # Compiled alone: nothing to compare it with.
    rows += launches(80.0, micro_batch=64, compile=True)
    (found,) = [note for note in content_of(trials(*rows)).notes if note.code == "compiled"]
    first, *lines = found.text.splitlines()
    assert first.endswith("without it: slower (1); faster (1); equal (1).")
    slower, faster, _ = lines
    # 100 of 240, and 150 of 100.
    assert slower.strip().startswith("ddp micro_batch=1: 0.42 times the samples/s (0.4")
    assert slower.endswith("), slower")
    assert faster.strip().startswith("ddp micro_batch=16: 1.50 times the samples/s (1.4")
    assert faster.endswith("), faster")


def test_points_that_differ_in_more_than_compile_are_not_compared() -> None:
    rows = [
        *launches(100.0, micro_batch=4, compile=False, precision="bf16"),
        *launches(150.0, micro_batch=4, compile=True),
    ]
    assert "compiled" not in {note.code for note in content_of(trials(*rows)).notes}
