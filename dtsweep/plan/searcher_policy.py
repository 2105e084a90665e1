"""Search by a searcher of Ray Tune: points as it suggests them, then rounds of the contenders."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, error_line, quoted
from dtsweep.plan.policy import Round, Rows
from dtsweep.plan.settle import Settle, is_over, states_of
from dtsweep.results.current_attempt import current_attempts
from dtsweep.sweep.goal import Question
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.search import Search
from dtsweep.sweep.settings import Sweep
from dtsweep.sweep.values import value_of_axis


@dataclass(frozen=True, kw_only=True)
class SearcherPolicy:
    """One point after the other, each the nearest to what the searcher suggests.

    A searcher is made for each plan, and gets the results so far again in their order. So a run
    that goes on chooses the same points, if the searcher has a seed.
    """

    sweep: Sweep
    question: Question
    search: Search

    def rounds(
        self,
        points: Sequence[Point],
        rows: Rows,
        *,
        over: Collection[str] = (),
    ) -> Sequence[Round]:
        """Replay the suggestions; then the rounds of `Settle` among the points so far."""
        settle = Settle(sweep=self.sweep, question=self.question)
        first = [row for row in rows if row["repeat"] == 1 and row["role"] != "canary"]
        results = {first[at]["point_id"]: first[at] for at in current_attempts(first).values()}
        states = states_of(rows)
        left = {identity(point): point for point in points}
        most = min(len(points), self.search.max_points or len(points))
        searcher = self._made()
        rounds: list[Round] = []
        while len(rounds) < most:
            number = str(len(rounds))
            config = searcher.suggest(number)
            if not isinstance(config, Mapping):
                # It has no more suggestions.
                break
            point = self._nearest(config, [*left.values()])
            measure = settle.first_measure()
            rounds.append(
                Round(repeat=1, points=[point], measure=measure, chosen_by="the sweep's searcher")
            )
            if not is_over(self.sweep, rounds[-1], states, over):
                return rounds
            result = results.get(identity(left.pop(identity(point))))
            is_ok = result is not None and result["status"] == "ok"
            searcher.on_trial_complete(number, result=result if is_ok else None, error=not is_ok)
        chosen = [point for one in rounds for point in one.points]
        return [*rounds, *settle.rounds(chosen, rows, over=over)[1:]]

    def _made(self) -> Any:
        """Make the searcher.

        Raises:
            SweepError: it can't be made, or is not a searcher.
        """
        if self.search.searcher is None:
            raise SweepError("the search has no searcher", word="search")
        try:
            searcher = self.search.searcher()
        except Exception as error:
            raise SweepError(f"searcher failed: {error_line(error)}", word="searcher") from error
        if not (hasattr(searcher, "suggest") and hasattr(searcher, "on_trial_complete")):
            raise SweepError(
                f"searcher returned {quoted(searcher)}; it must return a searcher of Ray Tune, "
                "such as OptunaSearch(…)",
                word="searcher",
            )
        return searcher

    def _nearest(self, config: Mapping[str, Any], points: Sequence[Point]) -> Point:
        """Find the point that is nearest to a suggestion; the first one of equal ones.

        Raises:
            SweepError: the suggestion names what is not an axis.
        """
        for name in config:
            if name not in self.sweep.axes:
                raise SweepError(
                    f"the searcher suggests {name!r}, which is not an axis; "
                    f"{did_you_mean(name, self.sweep.axes)}",
                    word="searcher",
                )
        return min(
            points,
            key=lambda point: sum(
                _distance(value, value_of_axis(point, name)) for name, value in config.items()
            ),
        )


def _distance(asked: Any, value: Any) -> float:
    """Distance of two values of an axis: by ratio where both are numbers above 0, else 0 or 1.

    >>> _distance(8, 16) == _distance(32, 16), _distance("ddp", "ring"), _distance(None, None)
    (True, 1.0, 0.0)
    """
    if asked == value:
        return 0.0
    if _is_number(asked) and _is_number(value):
        return 1 - 1 / (1 + abs(math.log(asked / value)))
    return 1.0


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
