"""Cost of the exchange in a user's training loop, by steps without it after the window."""

from __future__ import annotations

import time
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
import torch

from dtsweep.measure.store_group import StoreGroup
from dtsweep.measure.turns import LEAD, Turn, by_pair, is_known, turns
from dtsweep.sweep.settings import Measure
from dtsweep.worker.exchange_cost import (
    WindowTime,
    noise_of_a_step,
    precise_s,
    quick_turn_steps,
    round_steps,
)
from dtsweep.worker.own_parts import TimedParts
from dtsweep.worker.own_silence import Silence


class ExchangeTurns:
    """Steps of a loop with and without the exchange, in turns."""

    def __init__(
        self, parts: TimedParts, group: StoreGroup, silence: Silence, window: WindowTime
    ) -> None:
        """Prepare them.

        Args:
            parts: times the steps.
            group: all ranks.
            silence: switches the exchange off.
            window: that was measured.
        """
        self._parts = parts
        self._group = group
        self._silence = silence
        self._window = window
        self._kept = 0

    def timed(
        self, measure: Measure, *, spent_s: float, device: torch.device
    ) -> Generator[None, None, None]:
        """Run steps without the exchange as `Measure.exchange` says; quick if no round fits.

        Args:
            measure: the settings.
            spent_s: what has followed the window on this rank so far, in seconds.
            device: of this rank.
        """
        window = self._window
        steps = None
        if measure.exchange == "precise":
            (limit_s,) = self._group.largest(precise_s(measure, window))
            steps = round_steps(window, limit_s=limit_s, device=device)
        before = len(self._parts.parts)
        try:
            if steps is None:
                yield from self._quick(spent_s)
            else:
                yield from self._precise(steps, limit_s=limit_s)
        except BaseException:
            # Of rounds that not all ranks have ended nothing is kept.
            del self._parts.parts[before + self._kept :]
            raise
        finally:
            self._silence.end()

    def _quick(self, spent_s: float) -> Generator[None, None, None]:
        """Run one turn without the exchange in what the window's budget has left."""
        noise = noise_of_a_step(self._parts.last("window").times["step_s"])
        spent_s, noise = self._group.largest(spent_s, noise)
        steps = quick_turn_steps(self._window, spent_s=spent_s, noise=noise)
        yield from self._turn(Turn(exchanges=False, blocks=(0,)), steps)
        self._group.barrier()
        self._kept = 1

    def _precise(self, steps: int, *, limit_s: float) -> Generator[None, None, None]:
        """Run rounds of steps with and without it until its share is known, or time is spent."""
        block_means: list[float] = []
        began = time.perf_counter()
        goes_on, rounds = True, 0
        while goes_on:
            for turn in turns(rounds):
                yield from self._turn(turn, steps)
                part = self._parts.parts[-1]
                means = part.times["step_s"].reshape(-1, steps).mean(axis=1)
                block_means += means.tolist()
            rounds += 1
            spent_s = time.perf_counter() - began
            fits = spent_s * (rounds + 1) / rounds <= limit_s
            # All must take the same steps: rank 0 decides.
            goes_on = self._group.decided(
                {"means": block_means, "fits": fits}, _needs_another_round
            )
            self._kept = rounds * len(turns(0))

    def _turn(self, turn: Turn, steps: int) -> Generator[None, None, None]:
        """Run a turn of so many steps per block."""
        self._silence.switch(exchange=turn.exchanges)
        self._group.barrier()
        yield from self._parts.timed(
            "exchange" if turn.exchanges else "no_exchange",
            range(steps * len(turn.blocks)),
            blocks=turn.blocks,
            lead=LEAD,
        )


def _needs_another_round(ranks: Sequence[dict[str, Any]]) -> bool:
    """True if the share is not known yet, and another round fits into some rank's time."""
    means = np.mean([rank["means"] for rank in ranks], axis=0)
    return not is_known(*by_pair(means)) and any(rank["fits"] for rank in ranks)
