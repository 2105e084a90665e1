"""When sessions begin, and when their nodes are free for others; no Ray runs here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from dtsweep import Measure, Resources, Sweep
from dtsweep.driver.placement import Placement, StayingNodes
from dtsweep.driver.progress import Progress
from dtsweep.driver.queue import Queue
from dtsweep.driver.recorder import Recorder
from dtsweep.driver.scheduler import Scheduler
from dtsweep.driver.slots import SlotActor
from dtsweep.plan.allotment import NodePool
from dtsweep.plan.plan import make_plan
from dtsweep.plan.trial import groups_of
from dtsweep.results.store import Results
from dtsweep.session.node_choice import FailureCounts
from dtsweep.session.session_settings import Settings
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.point import World
from tests.driver.test_scheduler import under_way
from tests.outboxes import silent_outbox
from tests.outcomes import Tokens
from tests.session.test_slot import settings


@dataclass
class Call:
    """Method of an actor that notes how often it was called."""

    calls: int = 0

    def remote(self) -> str:
        self.calls += 1
        return "not answered"


@dataclass
class Actor:
    """Actor of a slot, without a process."""

    end_session: Call = field(default_factory=Call)


class Staying(StayingNodes):
    """Nodes that stay, which a test changes."""

    def __init__(self, rooms: Mapping[str, int]) -> None:
        super().__init__({"CPU": 1}, shares_nodes=False)
        self.rooms = rooms

    def pool(self, waiting: Sequence[World], failures: FailureCounts) -> NodePool:
        return NodePool(rooms=self.rooms)


@dataclass
class Made:
    queue: Queue
    slots: list[SlotActor]
    placement: Placement

    @property
    def with_nodes(self) -> list[int]:
        return [slot.index for slot in self.slots if slot.has_nodes]


def made(folder: Path, nodes: StayingNodes, *, workers: list[int], of_slots: Settings) -> Made:
    """Placement of one session for each of these worlds, on two slots."""
    sweep = Sweep(
        workload=Tokens(),
        axes={"workers": workers},
        measure=Measure(repeats=1),
        resources=Resources(concurrent=2),
    )
    groups = groups_of(make_plan(sweep, candidates(sweep), []).to_run, fresh=False)
    queue = Queue(sweep, slots=2)
    queue.extend(groups, {})
    recorder = Recorder(sweep, silent_outbox(Results(folder / "r")), Progress(axes=[]))
    slots = [
        SlotActor(index=index, actor=Actor(), name=f"slot {index}", settings=of_slots)
        for index in range(2)
    ]
    placement = Placement(queue, slots, recorder, nodes)
    return Made(queue=queue, slots=slots, placement=placement)


@pytest.fixture
def of_slots(tmp_path: Path) -> Settings:
    return settings(tmp_path)


def test_nodes_of_a_session_that_must_leave_are_free_for_others_only_once_it_has_ended(
    tmp_path: Path, of_slots: Settings
) -> None:
    nodes = Staying({"a": 1, "b": 1})
    run = made(tmp_path, nodes, workers=[2, 1], of_slots=of_slots)
    run.placement.begin_sessions()
    assert run.slots[0].places == {"a": 1, "b": 1}
    nodes.rooms = {"a": 1, "c": 1}
    run.placement.begin_sessions()
    # The rest of the session gets others after that, and before any other session.
    assert run.with_nodes == []
    assert [slot.actor.end_session.calls for slot in run.slots] == [1, 0]


def test_the_largest_world_begins_first_and_a_smaller_one_takes_what_it_leaves(
    tmp_path: Path, of_slots: Settings
) -> None:
    run = made(tmp_path, Staying({"a": 1, "b": 1, "c": 1}), workers=[3, 2, 1], of_slots=of_slots)
    run.placement.begin_sessions()
    assert (run.with_nodes, run.slots[0].places) == ([0], {"a": 1, "b": 1, "c": 1})
    # As if it had begun with two workers.
    run.slots[0].places = {"a": 1, "b": 1}
    run.placement.begin_sessions()
    assert (run.with_nodes, run.slots[1].places) == ([0, 1], {"c": 1})
    assert [world.workers for world in run.queue.waiting_worlds()] == [2]


def test_no_session_is_refused_before_the_head_has_said_which_nodes_there_are(
    tmp_path: Path, of_slots: Settings
) -> None:
    # No Ray runs here, so that every question fails.
    nodes = StayingNodes({"CPU": 1}, shares_nodes=False)
    run = made(tmp_path, nodes, workers=[1], of_slots=of_slots)
    run.placement.begin_sessions()
    assert (run.with_nodes, run.queue.waiting) == ([], 1)


def test_a_session_ends_while_the_last_attempt_of_another_one_runs(
    tmp_path: Path, of_slots: Settings
) -> None:
    run = made(tmp_path, Staying({"a": 1, "b": 1}), workers=[1], of_slots=of_slots)
    scheduler = Scheduler(run.queue, [], run.placement._recorder)
    scheduler._placement = run.placement
    run.placement.begin_sessions()
    run.queue.next(0, now=0.0)
    # Slot 0 is done; an attempt of slot 1 is the last one.
    scheduler.running["tune's name"] = under_way()
    assert scheduler.suggest("next") is None
    assert run.slots[0].actor.end_session.calls == 1
