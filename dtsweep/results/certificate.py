"""Certificate of a search: the points that it left out, and how likely they beat its answer."""

from __future__ import annotations

from dataclasses import dataclass

from dtsweep.text import count_of, in_percent


@dataclass(frozen=True, kw_only=True)
class Certificate:
    """Evidence of a search for the points that it has not measured."""

    measured: int
    """Points that were measured, failed ones too."""

    points: int
    """Points of the sweep that can be measured."""

    could_beat: int
    """Unmeasured points that beat the answer by more than `zone` with `least_chance` or more."""

    chance: float
    """Largest probability with which an unmeasured point beats it so."""

    expected: float
    """Expected number of unmeasured points that beat it so: the sum of their probabilities."""

    least_chance: float
    """Probability from which on a point is counted."""

    zone: float
    """Indifference zone, as a share."""

    gain: float
    """Largest expected gain of another point: a share of the hypervolume, or of the best value."""

    is_frontier: bool = True
    """True if the answer is a frontier, False if it is the best point for a goal."""

    most: int | None = None
    """Number of such points that is not exceeded with probability 95 %; None in older results."""

    has_answer: bool = True
    """True if a measured point meets the goal's condition."""

    @property
    def words(self) -> str:
        """Sentence for the report.

        >>> facts = {"measured": 17, "points": 216, "zone": 0.02, "gain": 0.001}
        >>> facts |= {"chance": 0.04, "expected": 0.1, "least_chance": 0.01}
        >>> print(Certificate(could_beat=3, most=1, **facts).words)
        17 of 216 points measured; 3 points could still beat the frontier by more than 2 % (0.1 expected, at most 1 with 95 %), each with probability of at most 4.0 %. One more point is expected to gain at most 0.10 % of the hypervolume.
        """  # noqa: E501
        counted = f"{self.measured} of {count_of(self.points, 'point')} measured"
        answer = "frontier" if self.is_frontier else "best point"
        beat = f"beat the {answer} by more than {100 * self.zone:g} %"
        if not self.has_answer:
            counted = f"{counted}, and they do not meet the condition"
            beat = "meet it"
        if self.measured >= self.points:
            return f"{counted}."
        if not self.could_beat:
            least = in_percent(self.least_chance)
            return f"{counted}; no other point could {beat} with probability of {least} or more."
        could = f"{count_of(self.could_beat, 'point')} could still {beat}"
        expected = f"{self.expected:.1f} expected"
        if self.most is not None:
            expected = f"{expected}, at most {self.most} with 95 %"
        could = f"{could} ({expected})"
        chance = f"with probability of at most {in_percent(self.chance, digits=1)}"
        if self.could_beat > 1:
            chance = f"each {chance}"
        return f"{counted}; {could}, {chance}.{self._gain_words}"

    @property
    def _gain_words(self) -> str:
        """Sentence on the largest expected gain; empty where nothing meets the condition."""
        if not self.has_answer:
            return ""
        of_what = "hypervolume" if self.is_frontier else "best value"
        gain = in_percent(self.gain, digits=2)
        return f" One more point is expected to gain at most {gain} of the {of_what}."
