"""Step times of a trial: which time a step has, and which steps are kept."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep import SweepError, plots, steps
from dtsweep.results.store import Results
from dtsweep.show.step_times_plot import MOST_STEPS, series_in, series_of, step_times_plot, thinned

Rank = tuple[list[float], list[float]]
"""Starts and lengths of a rank's steps, in seconds."""


def rows_of(*ranks: Rank, warmup: int = 0, attempt: str = "a") -> pd.DataFrame:
    """Rows of `dtsweep.steps` of one attempt."""
    rows: list[dict[str, Any]] = [
        {"attempt_id": attempt, "rank": rank, "step": step, "start_s": start, "step_s": seconds}
        | {"warmup": step < warmup, "part": "warmup" if step < warmup else "window"}
        for rank, (starts, lengths) in enumerate(ranks)
        for step, (start, seconds) in enumerate(zip(starts, lengths, strict=True))
    ]
    return pd.DataFrame(rows)


@pytest.mark.parametrize(
    ("ranks", "warmup", "step_ms"),
    [
        # From latest end to latest end.
        ([([0.0, 1.0], [1.0, 3.0]), ([0.0, 2.0], [2.0, 2.0])], 0, (2000.0, 2000.0)),
        # The pause between warm-up and window belongs to no step.
        ([([-9.0, -8.0, 0.0, 1.0], [1.0] * 4)], 2, (1000.0,) * 4),
        # Of ranks with different steps the longest of each.
        ([([0.0, 1.0, 2.0], [1.0] * 3), ([0.0, 3.0], [3.0, 2.0])], 0, (3000.0, 2000.0, 1000.0)),
    ],
)
def test_a_step_lasts_until_the_last_rank_has_ended_it(
    ranks: list[Rank], warmup: int, step_ms: tuple[float, ...]
) -> None:
    series = series_in(rows_of(*ranks, warmup=warmup))["a"]
    assert series.step_ms == step_ms
    assert series.warmup == warmup


def test_the_median_is_of_all_measured_steps_and_not_of_the_warm_up() -> None:
    lengths = [9.0, 1.0, 2.0, 3.0]
    starts = [0.0, *np.cumsum(lengths)[:-1].tolist()]
    assert series_in(rows_of((starts, lengths), warmup=1))["a"].median_ms == 2000.0


def test_steps_after_the_window_and_unknown_ones_are_left_out() -> None:
    rows = rows_of(([0.0, 1.0, 2.0, 3.0, 4.0], [1.0, 1.0, 1.0, float("inf"), 1.0]))
    rows.loc[1, "part"] = "no_exchange"
    rows.loc[2, "step_s"] = None
    assert series_in(rows)["a"].steps == (0, 4)
    assert series_in(rows.iloc[1:4]) == {}


@pytest.mark.parametrize("count", [1, MOST_STEPS, MOST_STEPS + 1, 54_321])
def test_thinning_keeps_the_first_the_last_and_the_extremes(count: int) -> None:
    values = np.random.default_rng(count).exponential(size=count)
    places = thinned(values)
    assert len(places) <= MOST_STEPS
    assert (np.diff(places) > 0).all()
    kept = {0, count - 1, int(values.argmin()), int(values.argmax())}
    assert kept <= set(places.tolist())
    assert count > MOST_STEPS or len(places) == count


def test_a_long_trial_is_drawn_with_its_spike_and_says_how_many_steps_it_had() -> None:
    lengths = np.full(1_000, 0.01)
    lengths[500] = 0.5
    starts = np.concatenate([[0.0], np.cumsum(lengths)[:-1]])
    series = series_in(rows_of((starts.tolist(), lengths.tolist()), warmup=100))["a"]
    plot = step_times_plot(series)
    warmup, measured, median = plot.traces
    assert max(warmup["x"]) < 100 <= min(measured["x"])
    assert max(measured["y"]) == pytest.approx(500)
    assert set(median["y"]) == {10.0}
    assert warmup["marker"]["symbol"] != measured["marker"]["symbol"]
    (ground,) = plot.layout["shapes"]
    assert (ground["x0"], ground["x1"]) == (-0.5, 99.5)
    assert plot.subtitle.startswith(f"{len(series.steps)} of 1000 steps are drawn")
    assert len(plot.table["step"]) == len(series.steps)
    assert "Steps before number 100 are warm-up." in plot.description
    json.dumps([plot.traces, plot.layout, asdict(series)], allow_nan=False)


def test_the_series_of_stored_attempts_are_those_that_were_asked_for(tmp_path: Path) -> None:
    store = Results(tmp_path)
    for name in ("a", "b", "c"):
        rows = rows_of(([0.0, 0.5], [0.5, 0.25])).drop(columns="attempt_id")
        columns = {str(column): rows[column].to_list() for column in rows}
        store.commit(
            {"attempt_id": name, "trial_id": name, "status": "ok", "role": "trial"}, steps=columns
        )
    found = series_of(store, ["a", "c"])
    assert sorted(found) == ["a", "c"]
    assert found["c"].step_ms == (500.0, 250.0)
    figure = plots.step_times(steps(store).query("attempt_id == 'b'")).to_dict()
    assert list(figure["data"][0]["y"]) == [500.0, 250.0]


def test_rows_of_several_attempts_are_refused_with_the_way_to_choose_one() -> None:
    both = pd.concat([rows_of(([0.0], [1.0])), rows_of(([0.0], [1.0]), attempt="b")])
    with pytest.raises(SweepError, match=r"2 attempts.*rows\['attempt_id'\] == ATTEMPT_ID"):
        plots.step_times(both)
