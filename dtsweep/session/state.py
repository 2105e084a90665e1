"""The states of a session, and which of them may follow which."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType


class SessionState(Enum):
    """A state of a session, and of its slot, which has one session at a time.

    Attributes:
        meaning: In words.
        has_trainer: The trainer's `fit()` runs.
        needs_new_session: The next task needs another session.
    """

    SCHEDULING = ("its nodes are waited for; no process of it runs", False, False)
    STARTING = ("its trainer runs; not all of its ranks have come up", True, False)
    RUNNING = ("all of its ranks are up and take tasks", True, False)
    STALE = ("its ranks are up, but hold memory or a thread of a trial", True, True)
    DEVICE_LOST = ("a rank can't use its device any more", True, True)
    DIED = ("its trainer has ended by itself; its logs have not been read", False, True)
    CLOSING = ("its ranks were asked to end; its trainer has not ended yet", True, True)
    KILLING = ("its ranks were killed; its trainer has not ended yet", True, True)
    ENDED = ("its trainer has ended", False, True)
    STUCK = ("its trainer did not end; only another process can start a session", True, True)

    def __init__(self, meaning: str, has_trainer: bool, needs_new_session: bool) -> None:
        """Take the columns of the table above."""
        self.meaning = meaning
        self.has_trainer = has_trainer
        self.needs_new_session = needs_new_session

    @property
    def is_final(self) -> bool:
        """True if no other state can follow.

        >>> [state.name for state in SessionState if state.is_final]
        ['ENDED', 'STUCK']
        """
        return not FOLLOWING[self]

    @property
    def is_given_up(self) -> bool:
        """True once the session was killed or has ended: its ranks get no task any more."""
        return self is SessionState.KILLING or self.is_final


_ENDS = frozenset({SessionState.DIED, SessionState.CLOSING, SessionState.KILLING})

FOLLOWING: Mapping[SessionState, frozenset[SessionState]] = MappingProxyType(
    {
        # Without a trainer there is nothing to wait for.
        SessionState.SCHEDULING: frozenset({SessionState.STARTING, SessionState.ENDED}),
        SessionState.STARTING: _ENDS | {SessionState.RUNNING},
        SessionState.RUNNING: _ENDS | {SessionState.STALE, SessionState.DEVICE_LOST},
        SessionState.STALE: _ENDS,
        SessionState.DEVICE_LOST: _ENDS,
        SessionState.DIED: frozenset({SessionState.ENDED}),
        SessionState.CLOSING: frozenset({SessionState.KILLING, SessionState.ENDED}),
        SessionState.KILLING: frozenset({SessionState.ENDED, SessionState.STUCK}),
        SessionState.ENDED: frozenset(),
        SessionState.STUCK: frozenset(),
    }
)
"""The states that may follow each state; a session never returns to an earlier one."""
