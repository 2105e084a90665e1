"""Ray Tune's view of a run: a *search algorithm*, which suggests the next attempt.

Tune asks it for the next trial and tells it how one ended. (Tune's own *schedulers* stop trials
early, which `dtsweep.measure.stopping` does here.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ray.tune.search import Searcher

from dtsweep.driver.attempts import Attempts

TRIALS_PER_TUNER = 500
"""A Tuner slows down and grows with its trials; a fresh one over the same sessions does not."""


class Scheduler(Searcher):  # type: ignore[misc]  # Ray has no types
    """Tune's search algorithm; it suggests the next attempt of a slot that is free."""

    def __init__(self, attempts: Attempts) -> None:
        super().__init__()
        self._attempts = attempts
        self._handed_out = 0
        self.while_waiting: Callable[[], None] = lambda: None
        """Called where Tune is to wait although nothing runs: it then calls no callback."""

    def __getstate__(self) -> dict[str, Any]:
        """Be pickled empty: a Tuner writes a copy of its settings that nobody reads."""
        return {}

    def next_tuner(self) -> None:
        """Count trials again: the last Tuner has ended."""
        self._handed_out = 0

    def suggest(self, trial_id: str) -> dict[str, Any] | str | None:
        """Give Tune the next task: None to wait, FINISHED only when nothing runs any more."""
        attempts = self._attempts
        if self._handed_out >= TRIALS_PER_TUNER or not attempts.goes_on():
            # The last attempts of other slots may be long.
            attempts.free_nodes()
            return None if attempts.running else Searcher.FINISHED
        task = attempts.begin_next(trial_id)
        if task is not None:
            self._handed_out += 1
        elif not attempts.running:
            self.while_waiting()
        return task

    def on_trial_complete(
        self, trial_id: str, result: dict[str, Any] | None = None, error: bool = False
    ) -> None:
        """Have the attempt's result fetched and stored."""
        self._attempts.end(trial_id, result or {})

    def save(self, checkpoint_path: str) -> None:
        """Keep nothing: the Parquet rows say what is done."""

    def restore(self, checkpoint_path: str) -> None:
        """Restore nothing, since nothing was kept."""
