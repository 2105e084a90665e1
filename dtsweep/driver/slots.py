"""The slots of a run, seen from the driver: their actors are started, watched, ended, replaced."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray

from dtsweep.session.deadlines import CLOSE_S, STOP_S
from dtsweep.session.nodes import pinned_to
from dtsweep.session.request import withdraw_all
from dtsweep.session.session_settings import Settings
from dtsweep.session.slot import Slot
from dtsweep.session.trainer import train_settings

_SLOT_CALLS = 100_000
"""Calls that a slot may serve at once: each rank waits in one for its task, while it makes others.

With Ray's default of 1,000, as many ranks would leave no room for their answers.
"""

_LAST_LINES_S = 2.0
"""Time limit for a slot to say what its session left behind."""

_CLOSED_S = 4 * CLOSE_S
"""Time limit for a slot to end its session and fetch its logs."""

ASK_EVERY_S, SLOT_SILENT_S = 5.0, 180.0
"""Seconds between two checks that a slot is alive, and time limit for its answer.

The limit is more than the start of its process takes on a busy machine. Both are in the driver's
own time.
"""


@dataclass(kw_only=True)
class SlotActor:
    """The actor of a slot, and whether it runs an attempt."""

    index: int
    actor: Any
    name: str
    settings: Settings
    places: Mapping[str, int] | None = None
    """Number of ranks of its session on each node, until it has ended.

    None where Ray chooses them.
    """

    attempt_began: float | None = None
    """Time at which its attempt was handed out, by the monotonic clock; None without one."""

    has_nodes: bool = False
    """True if the session that it has begun may use nodes."""

    ending: Any = None
    """Call that ends its session; None if there is none."""

    failure_counts: Mapping[str, frozenset[str]] | None = None
    """Of nodes, as its last result had them."""

    question: Any = None
    """Asked last, and not answered so far."""

    lines: list[str] = field(default_factory=list)
    """Of its ranks, for the user."""

    asked_s: float = math.inf
    """Time since then, in the driver's own time; infinite before the first question."""

    @property
    def is_busy(self) -> bool:
        """True while it runs an attempt."""
        return self.attempt_began is not None

    def end_session(self) -> None:
        """Begin to end its session; no attempt may use its nodes any more."""
        self.ending = self.actor.end_session.remote()
        self.has_nodes = False

    def look_for_end(self) -> None:
        """Free the nodes of a session that was told to end, once it has ended."""
        if self.ending is None or not ray.wait([self.ending], timeout=0)[0]:
            return
        # Where the process has ended, so has its session.
        with suppress(ray.exceptions.RayError):
            ray.get(self.ending)
        self.ending = None
        self.places = None

    def silence(self, passed_s: float) -> str | None:
        """Ask the slot for a sign of life; return a reason if it owes an answer for too long.

        Args:
            passed_s: since this was called last, in the driver's own time.
        """
        self.asked_s += passed_s
        if self.question is not None and ray.wait([self.question], timeout=0)[0]:
            # Where the process has ended, its callers get an error.
            with suppress(ray.exceptions.RayError):
                self.lines += ray.get(self.question)
            self.question = None
        if self.question is None and self.asked_s >= ASK_EVERY_S:
            self.question = self.actor.take_lines.remote()
            self.asked_s = 0.0
        is_silent = self.question is not None and self.asked_s >= SLOT_SILENT_S
        if not is_silent:
            return None
        return f"the session's process did not answer for {SLOT_SILENT_S:g} s"

    def replaced(self) -> SlotActor:
        """Kill the process of this slot, and start the one that takes its place."""
        ray.kill(self.actor)
        withdraw_all(self.name)
        slot = start_slot(self.index, self.settings, self.failure_counts)
        slot.places, slot.has_nodes = self.places, self.has_nodes
        if self.ending is not None:
            slot.end_session()
        return slot


def start_slot(
    index: int, settings: Settings, failure_counts: Mapping[str, frozenset[str]] | None = None
) -> SlotActor:
    """Start the actor of a slot next to this process.

    `failure_counts` are of the one whose place it takes.
    """
    name = f"dtsweep-slot-{index}-{os.urandom(4).hex()}"
    actor = (
        ray.remote(Slot)
        .options(name=name, **slot_options(settings))
        .remote(settings, failure_counts)
    )
    return SlotActor(
        index=index, actor=actor, name=name, settings=settings, failure_counts=failure_counts
    )


def slot_options(settings: Settings) -> dict[str, Any]:
    """Ray's options of the actor of a slot."""
    context = ray.get_runtime_context()
    options = {
        "num_cpus": 0,
        "max_concurrency": _SLOT_CALLS,
        "scheduling_strategy": pinned_to(context.get_node_id()),
    }
    if not settings.is_private:
        # A private Ray was started with them, so that the processes that it keeps ready fit.
        options["runtime_env"] = {
            "env_vars": train_settings(settings.node_timeout_s, is_private=False)
        }
    return options


def close_slots(slots: Sequence[SlotActor], say: Callable[[str], None]) -> dict[str, str]:
    """End all sessions in order, and then their slots; return the logs that became known.

    Args:
        slots: of the run.
        say: called with a session that could not be ended so: all that it measured is stored.
    """
    logs: dict[str, str] = {}
    for closed in [slot.actor.close.remote() for slot in slots]:
        try:
            logs |= ray.get(closed, timeout=_CLOSED_S)
        except ray.exceptions.RayError as error:
            say(
                f"a session was not ended in order ({type(error).__name__}); logs of its last "
                "trials may be missing"
            )
    _say_last_lines(slots, say)
    _kill(slots)
    return logs


def stop_slots(slots: Sequence[SlotActor], say: Callable[[str], None]) -> dict[str, str]:
    """End all sessions while their ranks work, then their slots.

    Returns:
        The logs of those that finished in time.
    """
    logs: dict[str, str] = {}
    try:
        stopping = [slot.actor.stop.remote() for slot in slots]
        ended = []
        if stopping:
            ended, _ = ray.wait(stopping, num_returns=len(stopping), timeout=STOP_S)
        for stopped in ended:
            # One that was stopped before is dead.
            with suppress(ray.exceptions.RayError):
                logs |= ray.get(stopped)
        _say_last_lines([slots[stopping.index(stopped)] for stopped in ended], say)
    finally:
        _kill(slots)
    return logs


def _say_last_lines(slots: Sequence[SlotActor], say: Callable[[str], None]) -> None:
    """Say what slots have for the user once their sessions have ended."""
    for lines in [slot.actor.take_lines.remote() for slot in slots]:
        with suppress(ray.exceptions.RayError):
            for line in ray.get(lines, timeout=_LAST_LINES_S):
                say(line)


def _kill(slots: Sequence[SlotActor]) -> None:
    for slot in slots:
        ray.kill(slot.actor)
