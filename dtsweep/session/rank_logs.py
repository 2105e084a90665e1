"""Logs of a session's ranks, read on their nodes, without the secrets of their processes."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from dtsweep.secret import without_values
from dtsweep.session.nodes import on_node, read_tail, read_trial
from dtsweep.session.session import Session
from dtsweep.sweep.task import Task


async def tails(session: Session, *, is_last: bool = False) -> dict[str, str]:
    """Ends of the ranks' logs, by `<session>/<rank>`; final ones are deleted on the nodes."""
    last = is_last or not session.state.has_trainer
    texts = await asyncio.gather(
        *(
            on_node(str(facts.node_id), read_tail, facts.log, last)
            for facts in session.facts.values()
        )
    )
    return _by_name(session, list(session.facts), texts)


async def logs_of(session: Session, task: Task, members: Iterable[int]) -> dict[str, str]:
    """First and last output of some of its processes in a trial, by `<session>/<name>`."""
    members = sorted(set(members) & session.facts.keys())
    facts = [session.facts[member] for member in members]
    texts = await asyncio.gather(
        *(on_node(str(fact.node_id), read_trial, fact.log, task.heading) for fact in facts)
    )
    return _by_name(session, [task.log_of(member) for member in members], texts)


def _by_name(session: Session, names: Iterable[Any], texts: Iterable[str]) -> dict[str, str]:
    """Texts of logs by `<session>/<name>`."""
    return {
        f"{session.name}/{name}": without_values(text, session.secrets)
        for name, text in zip(names, texts, strict=True)
    }
