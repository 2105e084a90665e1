"""Calls of ranks and of the driver on a real Ray: a slot has more ranks than Ray serves at once."""

from __future__ import annotations

import asyncio
import os
import signal
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ray

from dtsweep.cluster.connect import connected
from dtsweep.driver.slots import slot_options
from dtsweep.errors import SweepError
from dtsweep.metrics.rank_result import RankResult
from dtsweep.session.nodes import on_node
from dtsweep.session.session import Session
from dtsweep.session.session_settings import Settings
from dtsweep.session.slot import Slot
from dtsweep.sweep.point import World
from tests.session.test_slot import settings as slot_settings

pytestmark = pytest.mark.ray

RANKS, ATTEMPT = 1100, "attempt"


class Opened(Slot):
    """A slot with a session whose ranks are whoever calls."""

    async def open(self, settings: Settings) -> str:
        """Begin the session; its name."""
        world = World(workers=RANKS, placement="pack", environment=())
        self._session = Session("1", world, settings, None)
        self._session.begin(ATTEMPT)
        return self._session.name

    async def counted(self) -> tuple[int, int]:
        """Ranks that wait for their task, and ranks that have answered."""
        assert self._session is not None
        return sum(len(queue._getters) for queue in self._session.inbox), len(self._session.results)  # type: ignore[attr-defined]

    async def hand_out_nothing(self) -> None:
        """Have all ranks end."""
        assert self._session is not None
        for queue in self._session.inbox:
            queue.put_nowait(None)


@pytest.fixture
def settings(tmp_path: Path, ray_address: str) -> Iterator[Settings]:
    with connected(ray_address, folder=None):
        yield slot_settings(tmp_path)


def test_a_slot_hears_every_rank_while_all_of_them_wait_for_their_next_task(
    settings: Settings,
) -> None:
    slot = ray.remote(Opened).options(**slot_options(settings)).remote(settings)
    session = ray.get(slot.open.remote(settings))
    waiting = [slot.next_task.remote(session, rank) for rank in range(RANKS)]
    answers = [
        slot.finished.remote(session, ATTEMPT, rank, RankResult(status="ok"))
        for rank in range(RANKS)
    ]
    ray.get(answers, timeout=120)
    assert ray.get(slot.counted.remote(), timeout=60) == (RANKS, RANKS)
    ray.get(slot.hand_out_nothing.remote())
    assert ray.get(waiting, timeout=120) == [None] * RANKS


def test_ranks_on_the_drivers_node_are_asked_side_by_side(settings: Settings) -> None:
    together = threading.Barrier(4, timeout=60)

    async def ask() -> list[Any]:
        here = ray.get_runtime_context().get_node_id()
        return await asyncio.gather(*(on_node(here, together.wait) for _ in range(4)))

    assert sorted(asyncio.run(ask())) == [0, 1, 2, 3]


def test_a_ray_that_has_ended_leaves_the_process_as_it_was(monkeypatch: pytest.MonkeyPatch) -> None:
    # The fixture's Ray may have left it.
    monkeypatch.delenv("PYTHONBREAKPOINT", raising=False)
    monkeypatch.setenv("RAY_ADDRESS", "nowhere:1")
    before, terminate = dict(os.environ), signal.getsignal(signal.SIGTERM)
    variables = {"RAY_TRAIN_METRICS_ENABLED": "0", "OTHER": "1"}
    with connected("local", folder=None, environment=variables):
        assert "OTHER" not in os.environ
        os.environ["TUNE_MAX_PENDING_TRIALS_PG"] = "4"
    assert dict(os.environ) == before
    assert signal.getsignal(signal.SIGTERM) is terminate
    with pytest.raises(SweepError, match="Ray Client"), connected("ray://somewhere:1", folder=None):
        pass
    assert dict(os.environ) == before
