"""Tables of one results folder, each prepared once, for all questions that are asked of it."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from dtsweep.analysis.canaries import canaries_of, drift_of
from dtsweep.analysis.ladders import Ladders, Per, far_above_linear, ladders_of
from dtsweep.analysis.launches import check_asked, joined_cautions, measured, points_of
from dtsweep.analysis.where import Condition, parse_condition
from dtsweep.inference.contrasts import logarithms_of
from dtsweep.inference.looks import look_level
from dtsweep.inference.spread import POINT, Launches, of_environment, spread_of
from dtsweep.results.schema import IMPORTED
from dtsweep.results.statuses import ABOVE_LINEAR
from dtsweep.sweep.goal import GOALS, Goal, Question
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd

_GRID_LEVEL = 0.05
"""Two-sided significance level of a comparison in a plain grid, which is looked at once."""


class Study:
    """A table of trials with the tables that analyses derive from it.

    Each table is made when it is first needed, and kept.

    Nobody may change a table in place.
    """

    def __init__(
        self,
        frame: pd.DataFrame,
        *,
        question: Question | None = None,
    ) -> None:
        """Take the trials.

        Args:
            frame: one row per trial, as `dtsweep.load` gives it, canaries included.
            question: that the trials are to answer; None is the one that they were measured for.
        """
        self.frame = frame
        self._question = question
        self._launches: dict[tuple[Any, str], Launches] = {}
        self._drifts: dict[Any, float | None] = {}
        self._ladders: dict[Per, Ladders] = {}
        self._conditions: dict[str, Condition] = {}
        self._narrowed: dict[str, Study] = {}

    def __repr__(self) -> str:
        """Count its trials and points."""
        count = int((self.frame["role"] != "canary").sum())
        points = count_of(len(self.points), "measured point")
        return f"<Study: {count_of(count, 'trial')}, {points}>"

    @cached_property
    def trials(self) -> pd.DataFrame:
        """Rows of `measured`: one per launch of a point that ended `ok`."""
        return measured(self.frame)

    @cached_property
    def points(self) -> pd.DataFrame:
        """Rows of `over_launches`."""
        points = points_of(self.trials)
        doubted = far_above_linear(points)[list(POINT)].assign(doubt=ABOVE_LINEAR)
        doubts = points[list(POINT)].merge(doubted, how="left", on=list(POINT))["doubt"]
        doubts = doubts.fillna("")
        cautions = [joined_cautions(pair) for pair in zip(points["caution"], doubts, strict=True)]
        return points.assign(caution=cautions)

    @cached_property
    def question(self) -> Question | None:
        """Question to answer, of the newest measured trial; None of a plain grid."""
        if self._question is not None:
            return self._question
        questions = self.trials.loc[self.trials["harness"] != IMPORTED, "question"]
        if questions.empty:
            return None
        text = questions.iloc[-1]
        if not isinstance(text, str):
            return None
        return Question.from_json(text)

    @property
    def goal(self) -> Goal:
        """Goal of that question; the highest throughput, if it asks for the frontier or is None."""
        if self.question is None or self.question.goal is None:
            return GOALS["throughput"]
        return self.question.goal

    @cached_property
    def level(self) -> float:
        """Two-sided significance level of a comparison, corrected for the looks of a question."""
        if self.question is None:
            return _GRID_LEVEL
        launches = self.question.max_launches
        if not self.points.empty:
            launches = max(launches, int(self.points["launches"].max()))
        return look_level(self.question.confidence, launches)

    @property
    def confidence(self) -> float:
        """Probability of a right answer, over all looks at the data."""
        return (self.question or Question()).confidence

    @cached_property
    def zone(self) -> float:
        """Indifference zone, as a share."""
        return (self.question or Question()).indifference

    @cached_property
    def seconds(self) -> pd.Series[float]:
        """Time of each trial that was begun, its share of its session's start included, or null."""
        begun = self.frame[self.frame["status"] != "skipped"]
        own = begun["trial_s"].astype("float64") + begun["overhead_s"].fillna(0.0)
        sessions = begun.groupby("session", dropna=False)["startup_s"]
        starts = (sessions.transform("max") / sessions.transform("size")).astype("float64")
        return own.astype("float64") + starts.fillna(0.0)

    @cached_property
    def canaries(self) -> pd.DataFrame:
        """Rows of `canaries`."""
        return canaries_of(self.frame)

    def launches(self, env_id: Any, of: str) -> Launches:
        """Logarithms of a measured column in one environment, with their pooled variances."""
        key = (_environment_key(env_id), of)
        if key not in self._launches:
            self._launches[key] = logarithms_of(of_environment(self.trials, env_id), of)
        return self._launches[key]

    def drift(self, env_id: Any) -> float | None:
        """Drift of the machine in one environment, as `drift_of` gives it."""
        key = _environment_key(env_id)
        if key not in self._drifts:
            self._drifts[key] = drift_of(of_environment(self.canaries, env_id))
        return self._drifts[key]

    def ladders(self, per: Per) -> Ladders:
        """Groups of points by their number of workers or nodes."""
        if per not in self._ladders:
            self._ladders[per] = ladders_of(
                self.points, lambda env_id: self.launches(env_id, "samples_per_s"), per=per
            )
        return self._ladders[per]

    def condition(self, text: str) -> Condition:
        """Read a condition on points, once; errors as `parse_condition` has them."""
        if text not in self._conditions:
            self._conditions[text] = parse_condition(text, self.points)
        return self._conditions[text]

    def where(self, text: str) -> Study:
        """Leave out the trials of points that don't meet a condition; canaries stay.

        A point that is not known to meet it is left out, too.

        Raises:
            SweepError: the condition can't be read.
        """
        if not text:
            return self
        if text not in self._narrowed:
            is_met = self.condition(text).holds(self.points).fillna(value=False)
            points = self.points.loc[is_met, [*POINT]].assign(meets=True)
            trials = self.frame[[*POINT]].merge(points, how="left", on=list(POINT))
            is_canary = self.frame["role"].eq("canary").to_numpy()
            is_kept = trials["meets"].notna().to_numpy() | is_canary
            self._narrowed[text] = Study(
                self.frame[is_kept],
                question=self._question,
            )
        return self._narrowed[text]


Frame: TypeAlias = "pd.DataFrame | Study"
"""One row per trial, as `dtsweep.load` gives it, or a study of it."""


def _environment_key(env_id: Any) -> Any:
    """An environment as a key: null is one, and equals itself."""
    import pandas as pd

    if pd.isna(env_id):
        return None
    return env_id


def study_of(frame: Frame) -> Study:
    """Give the study that a question is asked of: a new one of a frame."""
    if isinstance(frame, Study):
        return frame
    return Study(frame)


def launch_sigma(frame: Frame, *, of: str = "samples_per_s") -> pd.DataFrame:
    """Estimate the standard deviation between launches of a point, beyond what their steps explain.

    Points that one launch measured share its effect, so they show it only once: `degrees` counts
    launches less one for each set of points that share launches, not for each point.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.
        of: one of the rates and times that windows have an error of.

    Returns:
        One row per `env_id` (the index), as shares of the point's mean: `launch_sigma`, the
        standard deviation of what launches add, not below 0, null where no window's own error is
        known; `spread`, the standard deviation of launch means over all points with several, errors
        of windows included; `degrees` of freedom; `points` with several launches, and `left_out`,
        further ones with too few launches that have a value (`step_p99_s` needs 100 steps). An
        environment where no point has two launches has no row.

    Raises:
        SweepError: `of` is none of the rates and times that windows have an error of.
    """
    check_asked(of)
    return spread_of(study_of(frame).trials, of)


def over_launches(frame: Frame) -> pd.DataFrame:
    """Combine the `ok` trials of each point into one row; canaries are left out.

    Launches in another environment, or on another number of hosts, are another point (`POINT`).

    `_low` and `_high` of rates and times, `comm_share` with its two parts, and `data_share` are a
    95 % interval. `interval` says which:

    - `launches`: Student's t over the point's own launch means. Of a share it is at most as wide
      as within one launch, if the launches vary no more than their windows explain.
    - `pooled`: with what launches add (`launch_sigma`), which all points of the environment have in
      common, where it is known with at least twice the degrees of freedom of the point's own
      launches. Several launches: that and the point's own variance within a launch, moderated by
      its own launches. One launch gets half-widths of sqrt(h² + (t · launch_sigma · mean)²), h
      within the launch.
    - `launch`: within the one launch there is; another launch may well lie outside.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.

    Returns:
        One row per point: the settings; `launches`; the means over launches of rates, step times,
        shares, energy, bytes sent, staleness and `compression_error`; `throughput_per_latency` =
        samples_per_s ÷ latency_s; the highest `memory_peak_bytes`; `latency_s` (`step_p50_s`, or
        `step_mean_s` where semantics is local); the intervals; `interval`, null where there is
        none; `caution`, what puts these numbers in doubt: the flags of
        `dtsweep.results.statuses.CAUTIONS` that a launch has, and `above_linear` where the rate is
        over twice what the workers explain; mostly empty.
    """
    return study_of(frame).points


def canaries(frame: Frame) -> pd.DataFrame:
    """Compare the canaries of each session with each other and with those of their world.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, canaries included, or a study of it.

    Returns:
        One row per world and session that measured a canary, the earliest first: the world;
        `alone`, False for those next to other trials, which are compared with each other;
        `session`; `canaries` (how many ended `ok`); `first_s` and `last_s`, their `step_mean_s`,
        and `first_ratio` and `last_ratio`, the same over the median of all canaries of the world
        (the better one is known, the more it counts); `drift` = last ÷ first - 1, with `drift_low`
        and `drift_high`, its 95 % interval; `known_to`, half of the widest 95 % interval of what is
        compared; `flagged`: the drift, or what a canary is from the world's median, is more than 2
        % and more than its own interval; null where it is not, but such an interval is wider than 2
        %; `trials` that the session measured `ok`. With one canary `last_s`, `last_ratio` and the
        drift are null; with one in the whole world `flagged` and `known_to` are null too, because
        nothing can be compared.
    """
    return study_of(frame).canaries
