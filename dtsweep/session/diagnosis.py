"""State of each rank that does not answer: dead, on a lost node, stopped, or silent."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

import ray
from ray.exceptions import RayActorError, RayError

from dtsweep.metrics.rank_result import RankFacts, RankResult
from dtsweep.metrics.rows import explaining_failure
from dtsweep.results.statuses import WRONG
from dtsweep.session.endings import causes_of, is_preempted
from dtsweep.session.hang import Begun, attempt_stack, behind
from dtsweep.session.last_words import failed_kernel, first_to_end, place_of
from dtsweep.session.memory_kills import MemoryKills, kills_in
from dtsweep.session.nodes import (
    ENDED,
    NODE_ANSWERS_S,
    STOPPED,
    answers,
    on_node,
    read_tail,
    write_stacks,
)
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.task import Task
from dtsweep.text import listed

UNBROKEN = ("ok", "nan", *WRONG, "timeout")
"""Statuses of a rank that has run its steps to the end."""

_NAMED = 4
"""Ranks that a reason names at most."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """Outcome of an attempt or start whose ranks did not all report it."""

    status: str
    reason: str
    rank: int | None = None
    """Of the session, whose process has ended, is stopped or does not answer.

    None where Ray names none.
    """

    died_on: str | None = None
    """Id of the node on which it ended, where that may be the node's fault."""


@dataclass(frozen=True, kw_only=True)
class _RankNode:
    """Node of a rank."""

    node_id: str | None
    """None where Ray does not say."""

    name: str


_UNKNOWN = _RankNode(node_id=None, name="an unknown node")


@dataclass(frozen=True, kw_only=True)
class Ranks:
    """The ranks of a session, as far as they have come up."""

    facts: Mapping[int, RankFacts]
    members: Sequence[int]
    """Those of the present world, in the order of their ranks in it."""

    kills: Mapping[int, MemoryKills | None]
    """Kills that their containers had counted before the attempt."""

    def named(self, rank: int, node: str) -> str:
        """A rank of the session by its rank in the world of the trial, with its node."""
        if rank in self.members:
            return f"rank {list(self.members).index(rank)} on {node}"
        return f"process {rank} of the session, idle in this trial, on {node}"


async def verdict_on(error: BaseException | None, ranks: Ranks) -> Diagnosis:
    """Say how a session ended that should have gone on.

    Args:
        error: of its trainer's `fit()`.
        ranks: that it had.
    """
    causes = causes_of(error)
    rank = min(causes, default=None)
    node = _UNKNOWN
    where = "a process of the session"
    if rank is not None:
        node = await _node_of(rank, causes[rank], ranks.facts)
        where = ranks.named(rank, node.name)
    text = " ".join(str(message) for message in (error, *causes.values()) if message is not None)
    if is_preempted(error):
        return Diagnosis(
            status="preempted", reason=f"the node of {where} was taken back", rank=rank
        )
    if "low on memory" in text or "OutOfMemory" in text:
        reason = f"{where} was killed: its node was low on memory"
        return Diagnosis(status="oom_host", reason=reason, rank=rank, died_on=node.node_id)
    nodes = {_its_node(facts) for facts in ranks.facts.values()}
    if lost := await _lost_nodes({*nodes, node} - {_UNKNOWN}):
        return Diagnosis(status="node_lost", reason=f"node {', '.join(lost)} is gone", rank=rank)
    if causes:
        return await _first_of(causes, ranks)
    # Train's controller is no rank: the peers of what has ended are not to blame either.
    status = "rank_died"
    if isinstance(error, RayActorError):
        status = "collateral"
    return Diagnosis(
        status=status,
        reason=f"the trainer ended: {_beginning(text)}",
    )


def _beginning(text: str) -> str:
    r"""First line of a message, with the lines after it as long as a colon announces them.

    >>> _beginning("Training failed due to controller error:\n\nThe actor died.\nIts logs")
    'Training failed due to controller error: The actor died.'
    """
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    said = lines[:1]
    for line in lines[1:]:
        if not said[-1].endswith(":"):
            break
        said.append(line)
    return " ".join(said).rstrip(":") or "no reason given"


async def _first_of(causes: Mapping[int, BaseException], ranks: Ranks) -> Diagnosis:
    """Diagnosis of the rank that ended first, on nodes that are there."""
    logs = await _logs_of(causes, ranks)
    rank = first_to_end(logs)
    if rank is None:
        return _ended(ranks, None, logs)
    node = await _node_of(rank, causes[rank], ranks.facts)
    where = ranks.named(rank, node.name)
    if await _was_killed_for_memory(ranks, rank):
        killed = "ended when the kernel killed a process of its container: no memory was left"
        reason = f"{where} {killed}"
        return Diagnosis(status="oom_host", reason=reason, rank=rank, died_on=node.node_id)
    return _ended(ranks, rank, logs, words=f"{where} ended", node_id=node.node_id)


async def _logs_of(asked: Iterable[int], ranks: Ranks) -> dict[int, str]:
    """Ends of the logs of some ranks of the session; empty of one that has not come up."""
    logs = dict.fromkeys(asked, "")
    facts = {rank: ranks.facts[rank] for rank in logs if rank in ranks.facts}
    texts = await asyncio.gather(
        *(on_node(str(fact.node_id), read_tail, fact.log) for fact in facts.values())
    )
    return logs | dict(zip(facts, texts, strict=True))


def _ended(
    ranks: Ranks,
    rank: int | None,
    logs: Mapping[int, str],
    *,
    words: str = "",
    node_id: str | None = None,
) -> Diagnosis:
    """Diagnosis of ranks whose processes have ended: after a peer, by a kernel, or by themselves.

    Args:
        ranks: of the session.
        rank: that ended first; None where each of them lost a peer.
        logs: the ends of the logs of those that have ended.
        words: that say so of the first.
        node_id: of its node, if known.
    """
    if rank is None:
        reason = f"{_named(ranks, sorted(logs))} ended, by their logs because a peer was gone"
        return Diagnosis(status="rank_died", reason=reason)
    kernel = failed_kernel(logs[rank])
    if kernel is not None and rank in ranks.members:
        # It would fail on any node.
        return Diagnosis(status="user_error", reason=f"{words}: {kernel}", rank=rank)
    return Diagnosis(status="rank_died", reason=words, rank=rank, died_on=node_id)


def _named(ranks: Ranks, numbers: Sequence[int]) -> str:
    """Ranks of the session by their ranks in the world of the trial, with their nodes."""
    return listed([ranks.named(rank, ranks.facts[rank].node) for rank in numbers], most=_NAMED)


def _its_node(facts: RankFacts) -> _RankNode:
    return _RankNode(node_id=str(facts.node_id), name=facts.node)


async def _node_of(rank: int, cause: BaseException, facts: Mapping[int, RankFacts]) -> _RankNode:
    """Node of a rank that has ended, started or not."""
    if rank in facts:
        return _its_node(facts[rank])
    if not isinstance(cause, RayActorError) or cause.actor_id is None:
        return _UNKNOWN
    try:
        return await asyncio.wait_for(
            asyncio.to_thread(_node_of_actor, cause.actor_id), NODE_ANSWERS_S
        )
    except (RayError, TimeoutError):
        return _UNKNOWN


def _node_of_actor(actor_id: str) -> _RankNode:
    """The node of an actor, living or dead, as Ray's head knows it."""
    from ray._private.state import state

    node_id = state.actor_table(actor_id).get("Address", {}).get("NodeID")
    names = {node["NodeID"]: node["NodeManagerHostname"] for node in ray.nodes()}
    if node_id not in names:
        return _UNKNOWN
    return _RankNode(node_id=node_id, name=names[node_id])


async def _was_killed_for_memory(ranks: Ranks, rank: int) -> bool:
    """True if a dead rank's container lost a process to lack of memory in this attempt."""
    before = ranks.kills.get(rank)
    if before is None:
        return False
    now = await on_node(str(ranks.facts[rank].node_id), kills_in, before.path)
    return isinstance(now, int) and now > before.count


async def _lost_nodes(nodes: Collection[_RankNode]) -> list[str]:
    """Names of lost nodes; Ray reports them seconds after the end of their processes."""
    if not nodes:
        return []
    own_node_id = ray.get_runtime_context().get_node_id()
    other_nodes = [node for node in nodes if node.node_id != own_node_id]
    lives = await asyncio.gather(*(answers(str(node.node_id)) for node in other_nodes))
    return sorted(
        {node.name for node, answered in zip(other_nodes, lives, strict=True) if not answered}
    )


async def why_silent(
    ranks: Ranks,
    *,
    answered: Collection[int],
    collectives: Mapping[int, Begun | None],
    task: Task,
    is_warm: bool,
) -> Diagnosis:
    """Have all ranks write their stacks to their logs; name those for which the others wait.

    Args:
        ranks: of the session.
        answered: ranks of the world that have.
        collectives: begun by each rank of the world, by group; None of a rank that does not say.
        task: which they have, and how much time for it.
        is_warm: whether all had ended a warm-up.
    """
    calls = (on_node(str(facts.node_id), write_stacks, facts.pid) for facts in ranks.facts.values())
    states = dict(zip(ranks.facts, await asyncio.gather(*calls), strict=True))
    phase = phase_of(task, is_warm=is_warm)
    dead = [rank for rank in ranks.members if states[rank] in ENDED]
    if dead:
        logs = await _logs_of(dead, ranks)
        first = first_to_end(logs)
        ended = dead[0] if first is None else first
        words = f"{_named(ranks, [ended])} ended, and a child process kept its connections open"
        return _ended(ranks, first, logs, words=words, node_id=ranks.facts[ended].node_id)
    if stopped := [rank for rank in ranks.members if states[rank] in STOPPED]:
        names = ", ".join(
            f"{ranks.named(rank, ranks.facts[rank].node)} is {STOPPED[states[rank]]}"
            for rank in stopped
        )
        where = "the stacks and last exchanges of the others are in the logs"
        reason = f"{names}; no answer after {phase}; {where}"
        return Diagnosis(status="hang", reason=reason, rank=stopped[0])
    silent = [rank for rank, _ in enumerate(ranks.members) if rank not in answered]
    stacks = await _stacks_of(silent, ranks)
    begun = {rank: collectives.get(rank) for rank in silent}
    waited_for = behind(begun, stacks) or silent
    nodes = [ranks.facts[ranks.members[rank]].node for rank in waited_for]
    names = listed(
        [f"{rank} on {node}" for rank, node in zip(waited_for, nodes, strict=True)], most=_NAMED
    )
    progress = _progress_of(waited_for, silent, collectives)
    where = "all stacks and last exchanges are in the logs"
    places = [place_of(stacks[rank]) for rank in waited_for[:1]]
    if task.point.sync == AS_WRITTEN and places and places[0] is not None:
        progress += f"; it is at {places[0]}"
    reason = f"no answer from rank {names} after {phase}{progress}; {where}"
    rank = None
    if waited_for:
        rank = ranks.members[waited_for[0]]
    return Diagnosis(status="hang", reason=reason, rank=rank)


def phase_of(task: Task, *, is_warm: bool) -> str:
    """The time after which ranks count as silent, in words."""
    measure = task.measure
    if is_warm:
        return f"a window of max_seconds={measure.max_seconds:g}, what follows it, and a minute"
    if task.point.sync == AS_WRITTEN:
        return (
            f"max_warmup_seconds={measure.max_warmup_seconds:g}, in which the training loop ended "
            f"fewer than {max(2, measure.warmup_steps)} optimizer steps"
        )
    if first := task.point.first_steps:
        return (
            f"max_warmup_seconds={measure.max_warmup_seconds:g} (raise it, or take fewer than the "
            f"{first} steps before the warm-up)"
        )
    return f"{measure.max_warmup_seconds:g} s of warm-up"


async def _stacks_of(silent: Sequence[int], ranks: Ranks) -> dict[int, list[str]]:
    """Frames of ranks of the world, as they have written them to their logs."""
    logs = await _logs_of([ranks.members[rank] for rank in silent], ranks)
    return {rank: attempt_stack(logs[ranks.members[rank]]) for rank in silent}


def _progress_of(
    waited_for: Sequence[int], silent: Sequence[int], collectives: Mapping[int, Begun | None]
) -> str:
    """Say how many exchanges the ranks have begun that are waited for, and the others."""
    others = [collectives[rank] for rank in silent if rank not in waited_for]
    counts = [sum(begun.values()) for begun in others if begun is not None]
    if not counts:
        return ""
    first = collectives[waited_for[0]]
    if first is None:
        return ", for which the others wait"
    count = sum(first.values())
    return f", for which the others wait ({count} exchanges begun, the others {max(counts)})"


def ended_as(
    verdict: Diagnosis | None, results: Mapping[int, RankResult], *, workers: int
) -> tuple[str, str | None]:
    """The status and reason of an attempt.

    Args:
        verdict: on ranks that did not answer; None where all did, or some said why.
        results: of those that have answered by now.
        workers: how many ranks there are.
    """
    is_whole = len(results) == workers and all(
        result.status in UNBROKEN for result in results.values()
    )
    # Ranks that came to their end while others were asked about them have measured all the same.
    if verdict is None or is_whole:
        return explaining_failure(results)
    return (verdict.status, verdict.reason)
