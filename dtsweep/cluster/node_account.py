"""Account of a run's nodes: their node-seconds by type, and what these cost."""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dtsweep.metrics.attempt_result import AttemptResult
from dtsweep.metrics.charge import NO_CHARGE, Charge
from dtsweep.plan.prices import Prices, written_types
from dtsweep.text import count_of, duration, usd

_ASK_EVERY_S = 5.0
"""Least seconds between two questions to Ray's head which nodes there are."""

_LAST_TRIALS = 50
"""Trials by which the time of the next one is expected."""


@dataclass(frozen=True, kw_only=True)
class NodeLife:
    """Start, end and type of a node, in seconds since the epoch by the clock of its head."""

    node_id: str
    node_type: str
    began: float
    ended: float | None = None
    """None while it is up."""

    room: int = 1
    """Number of workers that it can hold; 0 for a head without room for one."""


class NodeAccount:
    """Counts node-seconds by node type; several slots may work at once.

    It may be asked from any thread. Only `refresh` and the notes on attempts ask Ray's head.
    """

    def __init__(
        self,
        lives: Callable[[], Sequence[NodeLife] | None],
        *,
        prices: Prices | None,
        say: Callable[[str], None],
        shares_nodes: bool = False,
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Begin now.

        Args:
            lives: asks for all nodes of the run, ended ones too; None where nobody answers.
            prices: of nodes; None charges nothing.
            say: called with a node type that has no price, once.
            shares_nodes: whether sessions share nodes: each then pays for the part of its workers.
            clock: seconds since the epoch.
        """
        self._ask = lives
        self._prices = prices
        self._say = say
        self._shares_nodes = shares_nodes
        self._clock = clock
        self._lock = threading.RLock()
        self._asked_at = float("-inf")
        self._lives: dict[str, NodeLife] = {}
        self._unpriced: set[str] = set()
        self._working: dict[int, float] = {}
        """Time at which each slot's attempt under way began."""
        self._last: dict[int, tuple[Any, Mapping[str, int]]] = {}
        """Session and world of each slot's last attempt, and its workers by node.

        No workers where their nodes are not known yet.
        """
        self._took_s = deque[float](maxlen=_LAST_TRIALS)
        self.began = clock()
        self._ended_at: float | None = None
        self.refresh(at_once=True)

    def _now(self) -> float:
        """Seconds since the epoch, until the end of the run."""
        if self._ended_at is not None:
            return self._ended_at
        return self._clock()

    def close(self) -> None:
        """End with the run: nothing is counted any more."""
        self.refresh(at_once=True)
        self._ended_at = self._now()

    def handed_out(self, slot: int, *, session: Any) -> None:
        """Note that a slot begins an attempt.

        `session` is equal for attempts whose workers are on the same nodes.
        """
        with self._lock:
            last_session, workers = self._last.get(slot, (None, {}))
            if last_session != session:
                workers = {}
            self._last[slot] = session, workers
            self._working[slot] = self._now()

    def ended(self, slot: int, result: AttemptResult, *, wall_s: float, is_trial: bool) -> Charge:
        """Note that the attempt of a slot ended; return the columns of its nodes."""
        # Empty where no worker has come up.
        workers = Counter(facts.node_id or facts.node for facts in result.facts.values())
        self.refresh(at_once=not workers.keys() <= self._lives.keys())
        with self._lock:
            self._working.pop(slot, None)
            session, _ = self._last.get(slot, (None, {}))
            self._last[slot] = session, workers
            if result.session_has_ended:
                del self._last[slot]
            if is_trial:
                self._took_s.append(max(0.0, wall_s - (result.startup_s or 0.0)))
            return self._charge(workers)

    def cut(self, slot: int) -> dict[str, Any]:
        """Note that the attempt of a slot is cut now; return columns of its time and its nodes."""
        charge = NO_CHARGE
        seconds = 0.0
        with self._lock:
            began = self._working.pop(slot, None)
            if began is not None:
                _, workers = self._last[slot]
                charge = self._charge(workers)
                seconds = self._now() - began
        times = {"trial_s": seconds}
        return {**times, **charge.columns(times)}

    def _charge(self, workers: Mapping[str, int]) -> Charge:
        """Columns of the nodes of these workers, of a shared node their part.

        `NO_CHARGE` where one of the nodes is unknown.
        """
        if not workers or not workers.keys() <= self._lives.keys():
            return NO_CHARGE
        parts: dict[str, float] = defaultdict(float)
        for node_id, count in workers.items():
            life = self._lives[node_id]
            part = 1.0
            if self._shares_nodes:
                part = min(1.0, count / max(1, life.room))
            parts[life.node_type] += part
        return Charge(node_types=written_types(parts), usd_per_hour=self._price(parts))

    def refresh(self, *, at_once: bool = False) -> None:
        """Ask which nodes there are, unless that was asked some seconds ago."""
        now = self._now()
        if not at_once and now - self._asked_at < _ASK_EVERY_S:
            return
        self._asked_at = now
        lives = self._ask()
        # Of a head that is silent for a moment, what was known of the nodes stays.
        if lives is not None:
            with self._lock:
                self._take(lives)

    def _take(self, lives: Sequence[NodeLife]) -> None:
        """Note the nodes that there are, and say which types have no price."""
        for life in lives:
            if life.ended is None or life.ended > self.began:
                self._lives[life.node_id] = life
        if self._prices is None:
            return
        for node_type in sorted({life.node_type for life in self._lives.values()}):
            if self._prices.price_of(node_type) is None and node_type not in self._unpriced:
                self._unpriced.add(node_type)
                self._say(
                    f"node type {node_type!r} has no price, so the cost is unknown; "
                    f"{self._prices.how_to_add(node_type)}"
                )

    @property
    def unpriced(self) -> list[str]:
        """Node types of the run without a price; empty without prices."""
        return sorted(self._unpriced)

    @property
    def attempt_s(self) -> float | None:
        """Median time of the run's last trials without starts of sessions; None before the first.

        The first trial of a run may take much longer than the others.
        """
        if not self._took_s:
            return None
        return statistics.median(self._took_s)

    @property
    def cost_usd(self) -> float | None:
        """Cost of all nodes of the run so far; None where a price is unknown."""
        with self._lock:
            usd_seconds = self._price(self.node_s())
            if usd_seconds is None:
                return None
            return usd_seconds / 3600

    @property
    def usd_per_hour_now(self) -> float | None:
        """Cost of an hour of all nodes that are up; None where a price is unknown."""
        with self._lock:
            lives = self._lives.values()
            return self._price(Counter(life.node_type for life in lives if life.ended is None))

    def _price(self, counts: Mapping[str, float]) -> float | None:
        if self._prices is None:
            return None
        return self._prices.of_nodes(counts)

    def node_s(self) -> dict[str, float]:
        """Node-seconds so far by node type: the lifetimes of the nodes in the run."""
        with self._lock:
            now = self._now()
            seconds: defaultdict[str, float] = defaultdict(float)
            for life in self._lives.values():
                first = max(life.began, self.began)
                last = now
                if life.ended is not None:
                    last = min(life.ended, now)
                seconds[life.node_type] += max(0.0, last - first)
            return dict(sorted(seconds.items()))

    def words(self) -> list[str]:
        """Say what the run has cost; nothing without prices."""
        if self._prices is None:
            return []
        total = self.cost_usd
        if total is None:
            added = "; ".join(self._prices.how_to_add(node_type) for node_type in self.unpriced)
            return [f"the cost of this run is unknown: {added}"]
        return [f"this run cost {usd(total)}"]

    def words_on_nodes_left(self, until: str, *, idle_timeout_s: float | None) -> list[str]:
        """Say what the nodes that are up cost after the run, where that is known.

        Args:
            until: end of that time, in words.
            idle_timeout_s: seconds until then; None is unknown.
        """
        if self.cost_usd is None:
            return []
        up = [life for life in self._lives.values() if life.ended is None]
        workers = Counter(life.node_type for life in up if life.room)
        heads = Counter(life.node_type for life in up if not life.room)
        lines = []
        per_hour = self._price(workers)
        if workers and per_hour is not None:
            words = f"{usd(per_hour)} an hour until {until}"
            if idle_timeout_s is not None:
                more = usd(per_hour * idle_timeout_s / 3600)
                words = f"about {more} more until {until}, idle for {duration(idle_timeout_s)}"
            lines.append(f"{count_of(workers.total(), 'node')} still up: {words}")
        if usd_of_heads := self._price(heads):
            lines.append(
                f"the head costs {usd(usd_of_heads)} an hour until it is taken down (ray down)"
            )
        return lines

    def record(self) -> dict[str, Any]:
        """Fields of the run's record that the account knows."""
        with self._lock:
            seconds = self.node_s()
            prices = {node_type: self._price({node_type: 1.0}) for node_type in seconds}
            return {
                "node_s": seconds,
                "usd_per_hour": {name: usd for name, usd in prices.items() if usd is not None},
                "cost_usd": self.cost_usd,
            }
