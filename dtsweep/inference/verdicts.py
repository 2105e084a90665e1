"""Verdicts of comparisons of points and runs as stable codes.

`dtsweep.report.verdict_words` has the words for them.
"""

from __future__ import annotations

from enum import StrEnum


class Verdict(StrEnum):
    """Result of a test of two points, or of one point in two runs."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUAL = "equal"
    """The interval of the ratio lies within the indifference zone."""
    UNDECIDED = "undecided"
    """Launches show neither a difference nor that the points are equal."""
    UNKNOWN = "unknown"
    """Nothing was tested."""


class KneeVerdict(StrEnum):
    """Result of the search for the size from which one more worker doesn't pay."""

    FOUND = "found"
    BEYOND_SIZES = "beyond_sizes"
    """Every step up to the largest size pays."""
    NOT_DISTINGUISHABLE = "not_distinguishable"
    UNKNOWN = "unknown"
    """No step was tested."""


class RunVerdict(StrEnum):
    """Result of a comparison of runs."""

    REGRESSION = "regression"
    NO_REGRESSION = "no_regression"
    """No significant one."""
    UNKNOWN = "unknown"
    """Nothing was tested."""
    FIRST = "first"
    """The results have no earlier run of this machine."""


class Answer(StrEnum):
    """Answer to the question which point is the best."""

    BEST = "best"
    """One point is significantly better than all others."""
    EQUAL = "equal"
    """No point is better than the chosen one by more than the indifference zone."""
    UNDECIDED = "undecided"
    """Launches show neither."""
    SINGLE_LAUNCH = "single_launch"
    """One launch of each point; nothing shows how far launches differ."""
    ONLY_CANDIDATE = "only_candidate"
    """No other point is a candidate."""


class ConditionVerdict(StrEnum):
    """Result of a condition on a point, by the 95 % intervals of what was measured."""

    MEETS = "meets"
    MISSES = "misses"
    UNDECIDED = "undecided"
    """A limit lies within an interval, or a value has no interval."""
    UNKNOWN = "unknown"
    """A column of the condition was not measured."""


class Reason(StrEnum):
    """Cause of an unknown verdict, or of a missing number."""

    NOT_MEASURED = "not_measured"
    ONE_LAUNCH_EACH = "one_launch_each"
    TOO_FEW_LAUNCHES = "too_few_launches"
    """One of the two points was launched once; or no step of a group of sizes was tested."""


class Method(StrEnum):
    """Way in which two points were compared; the file `difference` explains each."""

    IN_TURN = "in_turn"
    PAIRED = "paired"
    PAIRED_POOLED = "paired_pooled"
    POOLED = "pooled"
    WELCH = "welch"
    NONE = "none"
    """Nothing was tested."""
