"""Replicas of a shard in a chain: updates go from the head to the tail, and around dead replicas.

Chain replication (van Renesse & Schneider, OSDI 2004,
https://www.usenix.org/legacy/events/osdi04/tech/renesse.html). The head makes updates of pushes and
passes those on, not the pushes: replication after aggregation (Li et al., OSDI 2014,
https://www.usenix.org/conference/osdi14/technical-sessions/presentation/li_mu). The order of a
chain is fixed, and a replica that Ray reports as dead stays dead. So all callers agree on the head,
which is the first living replica, and on the tail, which is the last.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import ray
from numpy.typing import NDArray
from ray.exceptions import ActorDiedError, RayActorError, RayTaskError


@dataclass(frozen=True, kw_only=True)
class Update:
    """An update that a head has made, for its successors."""

    version: int
    """Of the parameters that it makes."""

    gradient: NDArray[Any]
    """(elements,) as the head's optimizer had it."""

    pushes: Mapping[int, tuple[int, int]]
    """By worker the number of its push in this update, and how many updates it came late."""

    squared_norm: float | None
    """Of the mean gradient before it was clipped, where shards ask each other for it."""


class Chain:
    """Replicas as their callers know them: all but those that were found dead."""

    def __init__(self, replicas: Sequence[Any], *, first: int = 0) -> None:
        """Take the handles in the order of the chain; `first` is the position of the first one."""
        self._living = dict(enumerate(replicas, first))
        self.has_several = len(replicas) > 1
        """True if the chain began with several replicas; with one no call is repeated."""
        self.dead: set[int] = set()
        """Positions of dead replicas; 0 was the head at the beginning."""

        self._death = ActorDiedError()
        """The last error by which a replica was found dead."""

    def call(self, method: str, *given: Any, of_tail: bool = False, **named: Any) -> _Call:
        """Begin a call of the head or the tail; `answers_of` waits for it."""
        return _Call(chain=self, method=method, given=given, named=named, of_tail=of_tail)

    async def ask(self, method: str, *given: Any, **named: Any) -> Any:
        """Call the head, and wait for the answer of the first one that does not die."""
        while True:
            position, head = self.chosen()
            try:
                return await getattr(head, method).remote(*given, **named)
            except RayActorError as error:
                self.note_failure(position, error)

    async def pass_on(self, method: str, *given: Any) -> Any:
        """Do the same for the successors of a replica; None if no successor is left."""
        if self._living:
            with suppress(ActorDiedError):
                return await self.ask(method, *given)
        return None

    @property
    def is_empty(self) -> bool:
        """True if no replica is left."""
        return not self._living

    def chosen(self, *, of_tail: bool = False) -> tuple[int, Any]:
        """Position and handle of the head or the tail.

        Raises:
            ActorDiedError: no replica is left.
        """
        if not self._living:
            raise self._death
        position = max(self._living) if of_tail else min(self._living)
        return position, self._living[position]

    def note_failure(self, position: int, error: RayActorError) -> None:
        """Note that a call of a replica has failed, which can then be repeated.

        Raises:
            RayActorError: the replica lives, and says this of another actor.
        """
        if isinstance(error, RayTaskError):
            raise error
        # One that is unavailable may live, and has perhaps got the call: it gets the same again.
        if isinstance(error, ActorDiedError):
            self._death = error
            self.leave_out([position])

    def leave_out(self, positions: Iterable[int]) -> None:
        """Leave out replicas that somebody found dead."""
        for position in positions:
            self._living.pop(position, None)
            self.dead.add(position)


@dataclass(kw_only=True)
class _Call:
    """A call of a chain, which is repeated at another replica if its own dies."""

    chain: Chain
    method: str
    given: Sequence[Any]
    named: Mapping[str, Any]
    of_tail: bool
    answer: Any = field(init=False)
    """Ray's reference to it."""

    def __post_init__(self) -> None:
        """Begin the call; gradients that are not sent again need not stay."""
        self._send()
        if not self.chain.has_several:
            self.given = ()

    def repeat_if_failed(self) -> bool:
        """Repeat a call that failed because its replica died or was unavailable; True if so.

        Raises:
            RayActorError: the chain has no other replica.
        """
        try:
            ray.get(self.answer)
        except RayActorError as error:
            if not self.chain.has_several:
                raise
            self.chain.note_failure(self._position, error)
            self._send()
            return True
        return False

    def _send(self) -> None:
        self._position, replica = self.chain.chosen(of_tail=self.of_tail)
        self.answer = getattr(replica, self.method).remote(*self.given, **self.named)


def answers_of(calls: Sequence[_Call]) -> list[Any]:
    """Wait for all of these calls.

    Raises:
        RayActorError: the last replica of a chain has died.
    """
    with suppress(RayActorError):
        return list(ray.get([call.answer for call in calls]))
    under_way = {call.answer: call for call in calls}
    while under_way:
        # In the order in which they end: one may wait for another one that has to be repeated.
        (ended,), _ = ray.wait([*under_way], num_returns=1)
        call = under_way.pop(ended)
        if call.repeat_if_failed():
            under_way[call.answer] = call
    return list(ray.get([call.answer for call in calls]))
