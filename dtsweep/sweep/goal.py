"""Goals: what a configuration should be best at, and what it has to keep to."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.sweep.mode_info import SEMANTICS

FRONTIER = "frontier"
"""Name of the question which points are on the frontier, in place of a goal."""

MOST_CHARACTERS, MOST_LEVELS = 2_000, 50
"""Longest condition, and most brackets in brackets of one."""

_BRACKETS = re.compile(r"'[^']*'|\"[^\"]*\"|[()]")
"""Brackets of a condition, or a text in quotes, whose brackets are not counted."""

TO_LOSS = ("time_to_loss_s", "samples_to_loss", "worker_s_to_loss", "usd_to_loss")
"""Objectives of a goal with a target, less is better: what a training to that loss takes."""

FINAL_LOSS = "final_loss"
"""Objective of a goal that trains on a number of samples."""

OF_REQUESTS: Mapping[str | None, str] = {
    "requests_per_s": "samples_per_s",
    "request_p50_s": "step_p50_s",
    "request_p95_s": "step_p95_s",
    "request_p99_s": "step_p99_s",
    "energy_j_per_request": "energy_j_per_sample",
}
"""Columns by their names in inference: a request is a sample, and its latency is a step."""

_SHORT_NAMES: dict[str | None, str] = {
    "time_to_loss": "time_to_loss_s",
    "cost_to_loss": "usd_to_loss",
    **OF_REQUESTS,
}
"""Objectives as a user may write them."""

LAUNCHES, FRONTIER_LAUNCHES = 8, 3
"""Launches of a point, at most, where a sweep does not set `max_launches`."""


@dataclass(frozen=True, kw_only=True)
class Goal:
    """Goal: the objective of a configuration, and its limits."""

    maximize: str | None = None
    """A column of points; either this or `minimize`."""
    minimize: str | None = None
    where: str = ""
    """A condition, as `parse_condition` reads it."""
    allow: tuple[str, ...] = ()
    """Semantics in addition to exact ones."""
    least_rate: float = 0.0
    """Least `samples_per_s`, as a share of the highest among the candidates."""
    target: float | None = None
    """Loss to which each launch trains a new model, from the seed of its repeat.

    By the workload's `evaluate`, else by the losses of training. None trains no further than a
    window needs."""
    train_samples: int | None = None
    """In place of a target: each launch trains a new model on so many samples.

    `final_loss` is then an objective, at equal data; `build` may load a checkpoint to begin with.
    """
    longest_s: float = 600.0
    """Seconds of training, at most. A launch that takes longer to a target is `censored`."""

    @property
    def trains(self) -> bool:
        """True if launches train before their windows."""
        return self.target is not None or self.train_samples is not None

    def __post_init__(self) -> None:
        """Take short names of objectives for their columns."""
        for name in ("maximize", "minimize"):
            asked = getattr(self, name)
            object.__setattr__(self, name, _SHORT_NAMES.get(asked, asked))

    @property
    def columns_text(self) -> str:
        """Its columns and its condition, to be searched for names of columns."""
        text = " ".join([self.maximize or "", self.minimize or "", self.where])
        for name, column in OF_REQUESTS.items():
            text = text.replace(str(name), column)
        return text


@dataclass(frozen=True, kw_only=True)
class Question:
    """Question that a sweep is measured for until it is decided."""

    goal: Goal | None = None
    """None asks which points are on the frontier."""
    indifference: float = 0.03
    """Indifference zone: difference of two points that makes no practical difference, as a share.

    Points within it count as equal.
    """
    confidence: float = 0.95
    """Probability of a right answer, over all looks at the data."""
    max_launches: int = 8
    """Launches of a point, at most."""

    def __post_init__(self) -> None:
        """Refuse numbers that can't be meant."""
        if not 0 < self.indifference < 1:
            raise SweepError(
                f"indifference={self.indifference:g} must be above 0 and below 1: a share, such as "
                "0.03",
                word="indifference",
            )
        if not 0.5 <= self.confidence < 1:
            raise SweepError(
                f"confidence={self.confidence:g} must be at least 0.5 and below 1: a probability, "
                "such as 0.95",
                word="confidence",
            )
        if self.max_launches < 2:
            raise SweepError(
                f"max_launches={self.max_launches} must be at least 2: one launch of each point "
                "decides nothing; Measure(repeats=1) measures a plain grid",
                word="max_launches",
            )

    def as_json(self) -> str:
        """Write it as the column `question` of `trials`.

        >>> Question.from_json(Question(max_launches=3).as_json())
        Question(goal=None, indifference=0.03, confidence=0.95, max_launches=3)
        """
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> Question:
        """Read what `as_json` wrote.

        Raises:
            SweepError: this dtsweep did not write it.
        """
        try:
            values = json.loads(text)
            if values["goal"] is not None:
                goal = values["goal"]
                values["goal"] = Goal(**{**goal, "allow": tuple(goal["allow"])})
            return cls(**values)
        except (ValueError, KeyError, TypeError) as error:
            raise SweepError(
                f"the question of these results can't be read: {quoted(text)}; "
                "ask one: --goal throughput"
            ) from error


GOALS = {
    "throughput": Goal(maximize="samples_per_s"),
    "fast-validation": Goal(minimize="latency_s", least_rate=0.5),
    "energy": Goal(minimize="energy_j_per_sample"),
    "cost": Goal(minimize="usd_per_million_samples"),
    "time-to-loss": Goal(minimize="time_to_loss_s"),
    "cost-to-loss": Goal(minimize="usd_to_loss"),
}
"""Goals by name."""


def goal_of(asked: Goal | str | None) -> Goal | None:
    """Find a goal by its name, and check it; None stands for the frontier.

    Raises:
        SweepError: there is no such goal, or it has no objective, two, or unknown semantics.
    """
    if asked is None or asked == FRONTIER:
        return None
    if isinstance(asked, str):
        if asked not in GOALS:
            raise SweepError(
                f"there is no goal {quoted(asked)}; {did_you_mean(asked, [FRONTIER, *GOALS])}",
                word="goal",
            )
        return GOALS[asked]
    if not isinstance(asked, Goal):
        raise SweepError(
            f"goal={quoted(asked)} must be Goal(…) or one of {', '.join([FRONTIER, *GOALS])}",
            word="goal",
        )
    _check(asked)
    return asked


def check_condition(text: str) -> None:
    """Refuse a condition that is too long or nested too deeply.

    Raises:
        SweepError: it is, or it is not a text.
    """
    if not isinstance(text, str):
        raise SweepError(
            f"where={quoted(text)} must be a text, such as 'workers <= 8'", word="where"
        )
    if len(text) > MOST_CHARACTERS:
        raise SweepError(
            f"the condition {quoted(text)} has {len(text):,} characters, over "
            f"{MOST_CHARACTERS:,}; `in (1, 2, 4)` replaces several `or`",
            word="where",
        )
    level = 0
    for mark in _BRACKETS.findall(text):
        level += {"(": 1, ")": -1}.get(mark, 0)
        if level > MOST_LEVELS:
            raise SweepError(
                f"the condition {quoted(text)} has more than {MOST_LEVELS} brackets in brackets; "
                "leave those out that nothing needs",
                word="where",
            )


def _check(goal: Goal) -> None:
    """Refuse a goal without an objective, with two, or with unknown semantics."""
    check_condition(goal.where)
    if (goal.maximize is None) == (goal.minimize is None):
        raise SweepError(
            "a goal has either maximize or minimize: one column, such as "
            "Goal(maximize='samples_per_s')",
            word="Goal",
        )
    if isinstance(goal.allow, str):
        raise SweepError(
            f"allow={quoted(goal.allow)} must be a tuple, such as allow=('lossy',)", word="allow"
        )
    for semantics in goal.allow:
        if semantics not in SEMANTICS:
            raise SweepError(
                f"allow has no semantics {quoted(semantics)}; {did_you_mean(semantics, SEMANTICS)}",
                word="allow",
            )


def check_target(goal: Goal) -> None:
    """Refuse a goal that trains to a loss without saying to which, or to none that can be reached.

    Raises:
        SweepError: its objective needs a target, or the target is not a number.
    """
    if goal.target is not None and goal.train_samples is not None:
        raise SweepError(
            "target and train_samples exclude each other: leave one out", word="train_samples"
        )
    objective = goal.minimize or goal.maximize
    if goal.target is None and objective in TO_LOSS:
        raise SweepError(
            f"{objective} needs a loss to train to: --target LOSS, or Goal(…, target=LOSS)",
            word="target",
        )
    if objective == FINAL_LOSS and not goal.trains:
        raise SweepError(
            "final_loss needs a training: Goal(…, train_samples=N)", word="train_samples"
        )
    if not goal.trains:
        return
    if goal.target is not None and not _is_number(goal.target):
        raise SweepError(f"target={quoted(goal.target)} must be a loss: a number", word="target")
    samples = goal.train_samples
    if samples is not None and (type(samples) is not int or samples < 1):
        raise SweepError(
            f"train_samples={quoted(samples)} must be a whole number of samples, at least 1",
            word="train_samples",
        )
    if not _is_number(goal.longest_s) or goal.longest_s <= 0:
        raise SweepError(
            f"longest_s={quoted(goal.longest_s)} must be seconds, above 0", word="longest_s"
        )


def _is_number(value: object) -> bool:
    # By type(), as a bool is no number here; so mypy doesn't know that the value is one.
    return type(value) in (int, float) and math.isfinite(value)  # type: ignore[arg-type]
