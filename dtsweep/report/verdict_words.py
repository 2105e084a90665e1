"""Words for verdicts and reasons of `dtsweep.inference.verdicts`.

`dtsweep.compare.points` has the words for methods, `dtsweep.report.answer` those for the
answer of a recommendation, and `dtsweep.compare.words` writes the verdict on a run with its
numbers.
"""

from __future__ import annotations

from collections.abc import Mapping

from dtsweep.inference.verdicts import Reason, Verdict

VERDICT_WORDS: Mapping[str, str] = {
    Verdict.FASTER: "faster",
    Verdict.SLOWER: "slower",
    Verdict.EQUAL: "equal within {zone}",
    Verdict.UNDECIDED: "undecided",
    Verdict.UNKNOWN: "unknown",
}
"""Words for verdicts on points; the zone is the indifference zone, in percent."""

REASON_WORDS: Mapping[str, str] = {
    Reason.NOT_MEASURED: "not measured",
    Reason.ONE_LAUNCH_EACH: "one launch each",
    Reason.TOO_FEW_LAUNCHES: "too few launches",
}

_NO_SPREAD = "and nothing says how far launches differ"

LONG_REASON_WORDS: Mapping[str, str] = {
    **REASON_WORDS,
    Reason.ONE_LAUNCH_EACH: f"one launch each, {_NO_SPREAD}",
    Reason.TOO_FEW_LAUNCHES: f"one launch of one of them, {_NO_SPREAD}",
}
"""Reasons of an unknown verdict, in a sentence about two points."""
