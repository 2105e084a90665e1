"""Steps of trials, over all workers of each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from dtsweep.trackers.plain_values import plain

if TYPE_CHECKING:
    import pandas as pd

MOST_STEPS = 1000
"""Steps of a trial that a tracker gets; of more, as many that are equally far apart."""


class Step(NamedTuple):
    """A step of a trial, over all its workers."""

    number: int
    is_warmup: bool
    at_s: float
    """Start, in seconds from the start of the trial's first step."""

    step_s: float
    """Time of the slowest worker."""

    loss: float | None
    """Mean of the workers."""

    def values(self) -> dict[str, float]:
        """Series that the step is part of, each with its value."""
        series = "steps/step_s"
        if self.is_warmup:
            series = "steps/warmup_step_s"
        values = {series: self.step_s}
        if self.loss is not None:
            values["steps/loss"] = self.loss
        return values


def steps_of(steps: pd.DataFrame) -> dict[str, list[Step]]:
    """Give the steps of each attempt in their order: those of the warm-up and of the window."""
    timed = steps[steps["part"].isin(["warmup", "window"])]
    over_workers = (
        timed.groupby(["attempt_id", "step"], sort=True)
        .agg(
            warmup=("warmup", "max"),
            start_s=("start_s", "min"),
            step_s=("step_s", "max"),
            loss=("loss", "mean"),
        )
        .reset_index()
    )
    return {
        str(attempt): _steps_of_attempt(rows)
        for attempt, rows in over_workers.groupby("attempt_id")
    }


def thinned(steps: Sequence[Step], most: int = MOST_STEPS) -> Sequence[Step]:
    """Leave out steps of a long trial, so that the others are equally far apart.

    >>> [step.number for step in thinned([Step(n, False, 0.0, 0.1, None) for n in range(9)], 3)]
    [0, 4, 8]
    """
    if len(steps) <= most:
        return steps
    return [steps[round(index * (len(steps) - 1) / (most - 1))] for index in range(most)]


def _steps_of_attempt(rows: pd.DataFrame) -> list[Step]:
    numbers = rows["step"].astype(int).tolist()
    starts = (rows["start_s"] - rows["start_s"].iloc[0]).tolist()
    losses = [plain(loss) for loss in rows["loss"]]
    warmups = rows["warmup"].astype(bool).tolist()
    times = rows["step_s"].tolist()
    return [Step(*values) for values in zip(numbers, warmups, starts, times, losses, strict=True)]
