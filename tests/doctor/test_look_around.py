"""What clocks tell."""

from __future__ import annotations

from dtsweep.doctor.look_around import ask_clock


def test_a_clock_is_believed_by_the_soonest_answer() -> None:
    # Asked at 0, 1, …; each answer takes 1 s, and the other clock is 100 s ahead.
    ours = iter(float(second) for second in range(100))
    there = iter(100.5 + 2 * second for second in range(100))
    assert ask_clock(lambda: next(there), clock=lambda: next(ours)) == {
        "clock_offset_s": 100.0,
        "clock_error_s": 0.5,
    }
