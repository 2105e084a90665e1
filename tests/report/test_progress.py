from __future__ import annotations

from io import StringIO

import pytest
from rich.console import Console

from dtsweep.report.progress import Progress, short_name
from dtsweep.sweep.point import Point

OK = {"status": "ok", "repeat": 1, "latency_s": 0.1, "semantics": "exact", "model_digest": "a"}


@pytest.mark.parametrize(
    ("learning_rate", "name"), [(0.1 + 0.2, "0.3"), (0.012345678901234567, "0.0123457"), (1e-5, "1e-05")]
)
def test_a_name_has_six_digits_of_a_drawn_float(learning_rate: float, name: str) -> None:
    assert short_name(Point(learning_rate=learning_rate), ["learning_rate"]) == f"learning_rate={name}"


def test_an_attempt_that_ended_is_named_by_what_is_swept() -> None:
    out = StringIO()
    progress = Progress(axes=["workers", "learning_rate"], console=Console(file=out, width=80))
    progress.total = 3
    progress.ended(
        Point(workers=2, learning_rate=1 / 30),
        OK | {"samples_per_s": 40.0},
    )
    assert out.getvalue() == "[1/3] workers=2 learning_rate=0.0333333: 100 ms/step, 40 samples/s\n"


def test_the_best_is_that_of_the_semantics_and_model_measured_last() -> None:
    progress = Progress(axes=["micro_batch"], console=Console(file=StringIO(), width=80))
    progress.total = 9
    rows = [(8, {}), (4, {}), (2, {"model_digest": "b"}), (1, {"semantics": "stale"})]
    for rate, own in rows:
        progress.ended(Point(micro_batch=rate), OK | {"samples_per_s": float(rate)} | own)
        shown = str(progress._line())
        best = 8 if not own else rate
        assert f"best {best} samples/s (micro_batch={best})" in shown
    assert shown.index("left") < shown.index("best")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_rate_that_cannot_be_true_is_named_so_where_it_is_the_best(is_terminal: bool) -> None:
    out = StringIO()
    console = Console(file=out, width=400, force_terminal=is_terminal, color_system=None)
    row = OK | {"samples_per_s": 40.0}
    with Progress(axes=["workers"], console=console) as progress:
        progress.ended(Point(workers=1), row)
        progress.ended(Point(workers=2), row | {"samples_per_s": 4e6, "implausible": "mfu is 1.37"})
    assert "workers=2: 100 ms/step, 4e+06 samples/s; implausible: mfu is 1.37" in out.getvalue()
    assert ("implausible best 4e+06 samples/s (workers=2)" in out.getvalue()) is is_terminal
    assert ("workers=1: 100 ms/step, 40 samples/s\n" in out.getvalue()) is not is_terminal
