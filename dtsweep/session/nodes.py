"""Small Ray tasks on a given node: fetch a log's tail, dump stacks, check that it is alive."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dtsweep.hardware.process_state import child_pids
from dtsweep.session.logs import trial_in

_TAIL_BYTES = 2**18
"""The end of a rank's log that is kept."""

LOOP_SERVER = "dtsweep.session.loop_server"
"""Module of a rank's server of training loops, in the command line of its process."""

STOPPED = {"T": "stopped by a signal (SIGSTOP)", "t": "stopped by a debugger"}
"""States of a process, as in proc(5), in which it does nothing until it is continued."""

ENDED = ("", "Z")
"""States of a process that has ended: it is gone, or nobody has asked how it ended."""

NO_LOG = "log unavailable"

NODE_ANSWERS_S = 30.0
"""A node that has not answered by then counts as gone."""

_RANK_ANSWERS_S = 5.0
"""A rank that has not said by then how far it is does not say it."""


def pinned_to(node_id: str) -> NodeAffinitySchedulingStrategy:
    """Place a task or an actor on this node, or nowhere."""
    return NodeAffinitySchedulingStrategy(node_id, soft=False)


async def on_node(node_id: str, function: Any, *arguments: Any) -> Any:
    """Call a function on a node: here, or by a task without CPUs; report failure and timeout."""
    if node_id == ray.get_runtime_context().get_node_id():
        # On a thread: ranks are asked side by side, and others go on meanwhile.
        answer: Any = asyncio.to_thread(function, *arguments)
    else:
        task = ray.remote(num_cpus=0)(function).options(scheduling_strategy=pinned_to(node_id))
        answer = task.remote(*arguments)
    try:
        return await asyncio.wait_for(answer, NODE_ANSWERS_S)
    except (ray.exceptions.RayError, TimeoutError) as error:
        return f"{NO_LOG} ({type(error).__name__})"


async def answer_in_time(answer: Any) -> Any:
    """The answer of a rank's actor; None if it fails, or does not come in `_RANK_ANSWERS_S`."""
    try:
        return await asyncio.wait_for(answer, _RANK_ANSWERS_S)
    except (ray.exceptions.RayError, TimeoutError):
        return None


async def answers(node_id: str) -> bool:
    """True if a node runs a task; one that is gone fails it once Ray has noticed."""
    return await on_node(node_id, _is_alive) is True


def _is_alive() -> bool:
    """Run on a node to see whether it runs anything."""
    return True


def read_tail(path: str, is_last: bool = False) -> str:
    """The end of a log on this node; the last reader removes it."""
    log = Path(path)
    try:
        with log.open("rb") as file:
            file.seek(max(0, log.stat().st_size - _TAIL_BYTES))
            if file.tell():
                # The rest of a line: of a password cut in two nothing is found.
                file.readline()
            text = file.read().decode(errors="backslashreplace")
    except FileNotFoundError:
        return NO_LOG
    if is_last:
        log.unlink(missing_ok=True)
        with contextlib.suppress(OSError):  # other ranks' logs are still there
            log.parent.rmdir()
    return text


def read_trial(path: str, heading: str) -> str:
    """First and last output of a trial in a log on this node."""
    try:
        return trial_in(Path(path), heading)
    except FileNotFoundError:
        return NO_LOG


def write_stacks(pid: int) -> str:
    """Make a rank on this node write its stacks to its log; return its state (proc(5)).

    Of a rank that runs a training loop in a process of its own, that one's stacks come last, and it
    is its state while it lives, unless the rank is stopped. A process that is stopped (T) writes
    none. Empty where the rank has just ended; its log says as much.
    """
    states = [_signalled(process) for process in (pid, *_trial_processes(pid))]
    if states[0] in STOPPED:
        return states[0]
    alive = [state for state in states if state not in ENDED]
    return (alive or states)[-1]


def _signalled(pid: int) -> str:
    """Make a process write its stacks; return its state before, empty where it has ended."""
    with contextlib.suppress(ProcessLookupError, FileNotFoundError):
        state = _state_of(pid)
        os.kill(pid, signal.SIGUSR1)
        time.sleep(0.5)
        return state
    return ""


def _trial_processes(pid: int) -> list[int]:
    """Processes that a rank's server of training loops has forked: none, or one."""
    for child in child_pids(pid=pid):
        # A child may end meanwhile.
        with contextlib.suppress(ProcessLookupError, FileNotFoundError):
            if LOOP_SERVER in Path(f"/proc/{child}/cmdline").read_text(errors="replace"):
                return list(child_pids(pid=child))
    return []


def _state_of(pid: int) -> str:
    """The state of a process on this node, a letter of proc(5)."""
    # Its name comes before, in brackets, and may be anything.
    return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()[0]
