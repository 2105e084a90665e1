"""Points of results over their runs, and the runs at which they became slower or faster."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from dtsweep.compare.runs import (
    Run,
    names_of_machines,
    other_machines,
    other_software,
    other_source,
)
from dtsweep.compare.words import point_labels, run_name
from dtsweep.inference.changes import changes_in
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd

_LEVEL = 0.05
"""Largest probability of any wrong change among all points."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Trend:
    """Points over runs."""

    of: str
    """A rate or a time."""
    runs: Sequence[str]
    """Name of each run, the oldest first."""
    differs: Sequence[Sequence[str]]
    """Changes of source, software and machine since the run before."""
    points: Mapping[str, pd.DataFrame]
    """By label, the one that became slowest first: a row per run with `of` and its interval."""
    changes: Mapping[str, tuple[int, float]]
    """Significant changes: index of the first run after it, and the ratio of the levels."""

    def words(self) -> list[str]:
        """Say at which run points became slower or faster, and what changed there."""
        sentences = []
        for begin in sorted({begin for begin, _ in self.changes.values()}):
            ratios = {
                label: ratio for label, (place, ratio) in self.changes.items() if place == begin
            }
            most = max(ratios, key=lambda label: abs(math.log(ratios[label])))
            differs = "; ".join(self.differs[begin]) or "nothing that is known"
            sentences.append(
                f"Since the run of {self.runs[begin]}, {count_of(len(ratios), 'point')} changed, "
                f"{most} most: {self.of} is {ratios[most]:.3f} times what it was. Changed since "
                f"the run of {self.runs[begin - 1]}: {differs}."
            )
        return sentences


def trend_of(runs: Sequence[Run], *, of: str) -> Trend:
    """Follow the points of runs, the oldest first, by a rate or a time."""
    import pandas as pd

    names = [of, f"{of}_low", f"{of}_high"]
    rows = pd.concat(
        [run.study.points[["point_id", *names]].assign(run=n) for n, run in enumerate(runs)]
    )
    # A point that ran on other hosts, too: the last row.
    rows = rows.dropna(subset=[of]).drop_duplicates(["point_id", "run"], keep="last")
    index = pd.MultiIndex.from_product([rows["point_id"].unique(), range(len(runs))])
    rows = rows.set_index(["point_id", "run"]).astype("float64").reindex(index)
    logs = np.log(rows[of].to_numpy().reshape(-1, len(runs)))
    labels = point_labels(runs)
    slowdowns, changes = {}, {}
    for (begin, p_value), (point_id, series) in zip(
        zip(*changes_in(logs), strict=True), rows.groupby(level=0, sort=False), strict=True
    ):
        label = labels[str(point_id)]
        levels = np.log(series[of].to_numpy())
        growth = 0.0
        if np.isfinite(levels[begin:]).any() and np.isfinite(levels[:begin]).any():
            growth = np.nanmean(levels[begin:]) - np.nanmean(levels[:begin])
        slowdowns[label] = (p_value <= _LEVEL, -growth if of == "samples_per_s" else growth, series)
        if p_value <= _LEVEL:
            changes[label] = (int(begin), math.exp(growth))
    slowest = sorted(slowdowns, key=lambda label: slowdowns[label][:2], reverse=True)
    machines = names_of_machines(runs)
    differs = [
        [*other_source(*pair), *other_software(*pair), *other_machines(*pair, machines)]
        for pair in pairwise(runs)
    ]
    return Trend(
        of=of,
        runs=[run_name(run) for run in runs],
        differs=[[], *differs],
        points={label: slowdowns[label][2].droplevel(0) for label in slowest},
        changes=changes,
    )
