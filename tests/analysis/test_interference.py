"""Advice on trials that run at the same time: in the report, and in the plan."""

from __future__ import annotations

from dataclasses import replace
from io import StringIO
from typing import Any

import pandas as pd
from rich.console import Console

from dtsweep import Measure, Sweep
from dtsweep.cli.plan_table import print_plan
from dtsweep.plan.plan import make_plan
from dtsweep.report.doubts import _interference
from dtsweep.sweep.axes import candidates
from tests.outcomes import Tokens


def rows(share: float, *, low: float) -> list[dict[str, Any]]:
    """A trial next to three others, one alone, and the canary that was measured alone."""
    known = {"interference": share, "interference_low": low}
    return [
        {**known, "concurrent_trials": 3},
        {"interference": None, "interference_low": None, "concurrent_trials": 0},
        {**known, "concurrent_trials": 0},
    ]


def planned(share: float, *, concurrent: int) -> str:
    """Plan of results with this interference, as it is printed."""
    sweep = Sweep(workload=Tokens(), axes={}, measure=Measure(repeats=1))
    plan = replace(make_plan(sweep, candidates(sweep), []), rows=rows(share, low=share / 2))
    out = StringIO()
    console = Console(file=out, width=200)
    print_plan(plan, None, console=console, where="r", axes=[], concurrent=concurrent)
    return out.getvalue()


def test_a_report_advises_fewer_trials_at_a_time_if_they_slow_each_other_down() -> None:
    (remark,) = _interference(pd.DataFrame(rows(0.08, low=0.06)), zone=0.03)
    doubt = remark.text
    assert doubt == (
        "Trials that ran at the same time, up to 4, took 8.0 % longer than alone, more than the "
        "indifference zone of 3.0 %. Run fewer: Resources(concurrent=2)."
    )


def test_a_report_is_silent_on_interference_within_the_zone_or_by_chance() -> None:
    for share, low in ((0.02, 0.01), (0.08, -0.01), (-0.2, -0.3)):
        assert _interference(pd.DataFrame(rows(share, low=low)), zone=0.03) == []
    assert _interference(pd.DataFrame({"status": ["ok"]}), zone=0.03) == []


def test_a_plan_advises_fewer_sessions_only_if_the_sweep_asks_for_more() -> None:
    assert "Run fewer: Resources(concurrent=2)." in planned(0.08, concurrent=4)
    assert "Run fewer" not in planned(0.08, concurrent=2)
    assert "Run fewer" not in planned(0.02, concurrent=4)
