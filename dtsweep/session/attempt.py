"""One attempt at a trial on one rank: has it measured, and returns its result, however it ends.

This module imports no Ray.
"""

from __future__ import annotations

import bdb
import sys
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

import numpy as np
import torch
from torch import distributed

from dtsweep.errors import error_line, in_user_code, raised_at
from dtsweep.hardware.backend_flags import backend_flags_kept
from dtsweep.hardware.device import has_compiler
from dtsweep.hardware.memory import free_bytes, oom_status, release_memory, total_bytes
from dtsweep.hardware.process_state import ProcessState
from dtsweep.loops.own_trial import measure_own
from dtsweep.measure.isolated_exchange import max_over_ranks
from dtsweep.measure.stopping import FEWEST_MEASURED
from dtsweep.measure.store_group import GaveUpError
from dtsweep.metrics.rank_result import Measured, RankResult, Steps
from dtsweep.secret import print_traceback, secret_variables, without_secrets
from dtsweep.sweep.constraints import Harness, impossible
from dtsweep.sweep.modes import AS_WRITTEN, OPEN_LOOP, OWN
from dtsweep.sweep.point import Point
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.sweep.task import Task
from dtsweep.text import listed
from dtsweep.worker.in_turn import measure_in_turn
from dtsweep.worker.mode_trial import measure_in_mode
from dtsweep.worker.rank import RankContext

_LOST_PEER = (
    "Connection closed by peer",
    "Connection reset by peer",
    "Broken pipe",
    "Application timeout caused pair closure",
    "Socket closed",
    "Socket unexpectedly closed",
    "ncclRemoteError",
    "remote process exited",
    "Connection closed by remote peer",
)
"""Messages of gloo and NCCL when a peer has ended or stalls."""


_UNKNOWN_CAPABILITY = (99, 0)
"""Compute capability that no precision is beyond, for a GPU that does not tell its own."""


def run_attempt(
    context: RankContext,
    task: Task,
    *,
    servers: Sequence[Any] = (),
    on_warm: Callable[[float], None] = lambda _: None,
) -> RankResult:
    """Run one attempt to its end, whatever happens in it; restore the state of the process.

    Args:
        context: this rank.
        task: what to run; the same on all ranks.
        servers: shards of the parameter server, if the mode needs them.
        on_warm: called with the slowest warm-up step in seconds, just before the window.
    """
    is_loop = task.point.sync == AS_WRITTEN
    with backend_flags_kept():
        state = ProcessState(is_shared=context.is_own_process)
        device_free_bytes = free_bytes(context.device)
        try:
            if is_loop and context.loop_runner is not None:
                outcome = _in_own_process(context, task, on_warm)
            else:
                outcome = outcome_of(context, task, servers=servers, on_warm=on_warm)
            began_cleanup = time.perf_counter()
            memory_left_bytes, device_bytes = _clean_up(context.device)
        finally:
            left = state.restore()
    restored = left.restored
    if is_loop:
        # The libraries of such loops set variables and handlers in each trial.
        restored = ()
    _say_what_is_left(restored, left.remaining)
    sys.stdout.flush()
    sys.stderr.flush()
    return replace(
        outcome,
        cleanup_s=time.perf_counter() - began_cleanup,
        memory_left_bytes=memory_left_bytes,
        device_bytes=device_bytes,
        device_free_bytes=device_free_bytes,
        is_spent=memory_left_bytes is None,
        left_state=(*restored, *left.remaining, *outcome.left_state),
        needs_new_process=outcome.needs_new_process or bool(left.remaining),
    )


def _in_own_process(
    context: RankContext, task: Task, on_warm: Callable[[float], None]
) -> RankResult:
    """Run a training loop in a process of its own, unless some rank's GPU can't.

    What fails here but the agreement of the ranks is no fault of the loop: it ends this rank.
    """
    assert context.loop_runner is not None, "asked before"
    try:
        reason = _impossible_here(context, task)
    except RuntimeError as error:
        return failure(error, has_peers=task.point.workers > 1)
    if reason is not None:
        return RankResult(status="infeasible", reason=reason)
    return context.loop_runner.run(context, task, on_warm)


def outcome_of(
    context: RankContext,
    task: Task,
    *,
    servers: Sequence[Any] = (),
    on_warm: Callable[[float], None] = lambda _: None,
) -> RankResult:
    """Run one attempt in this very process; what it changes there stays."""
    context.changed_files.clear()
    if context.watch is not None:
        context.watch.begin()
    try:
        outcome = _outcome(context, task, servers, on_warm)
    finally:
        if context.watch is not None:
            context.watch.end()
        # The workload may have read some from a file.
        context.secrets.update(secret_variables())
    return replace(outcome, left_state=_say_changed_files(context))


def _say_what_is_left(restored: Sequence[str], remaining: Sequence[str]) -> None:
    """Say in the log what the workload has changed in its process."""
    ends = {
        "it is as before": restored,
        "that can't be undone, so the next trial needs another process": remaining,
    }
    for end, changes in ends.items():
        if changes:
            words = f"the workload changed its process: {'; '.join(changes)}; {end}"
            print(f"dtsweep: {words}", file=sys.stderr)  # noqa: T201


def _say_changed_files(context: RankContext) -> Sequence[str]:
    """Say which files of the user's have changed while a script ran; none or one text."""
    if not context.changed_files:
        return ()
    words = f"files of yours changed while it ran: {listed(context.changed_files, most=3)}"
    hint = "give the script other places for its outputs"
    if context.watch is not None:
        context.watch.say(f"{words}; {hint}")
    print(f"dtsweep: {words}; {hint}", file=sys.stderr)  # noqa: T201
    return (words,)


def _outcome(
    context: RankContext, task: Task, servers: Sequence[Any], on_warm: Callable[[float], None]
) -> RankResult:
    """Measure the task; an exception of any kind becomes a status and a reason."""
    # A loop makes a group of its own.
    joined = distributed.is_initialized() and task.point.sync != AS_WRITTEN
    try:
        if reason := _impossible_here(context, task):
            return RankResult(status="infeasible", reason=reason)
        if task.in_turn:
            measured = measure_in_turn(context, task, on_warm)
        elif task.point.sync == AS_WRITTEN:
            measured = [measure_own(context, task, on_warm)]
        elif task.point.sync == OPEN_LOOP:
            # Ray Serve is an extra.
            from dtsweep.serving.open_loop import measure_open_loop

            measured = [measure_open_loop(context, task, on_warm)]
        else:
            measured = [measure_in_mode(context, task, servers, on_warm)]
    except BaseException as error:  # the user's own code may raise anything
        if _ends_the_run(error, context):
            raise
        result = failure(error, has_peers=task.point.workers > 1)
        if joined and not distributed.is_initialized():
            # The end of a session removes its group, and what is still under way then fails.
            result = replace(result, status="collateral", needs_new_process=True)
        return result
    tasks = (task, *task.in_turn)
    first, *others = [
        None if one is None else _result_of(one, of_task, context)
        for one, of_task in zip(measured, tasks, strict=True)
    ]
    assert first is not None, "this rank is in the task's world"
    has_left = joined and not distributed.is_initialized()
    return replace(first, in_turn=others, needs_new_process=has_left)


def _result_of(measured: Measured, task: Task, context: RankContext) -> RankResult:
    """Result of an attempt whose window came to its end."""
    measured = _without_secrets(measured)
    status, reason = status_of_measured(measured, task, task.point_of(context.workload))
    return RankResult(status=status, reason=reason and without_secrets(reason), measured=measured)


def failure(error: BaseException, *, has_peers: bool) -> RankResult:
    """Result of an attempt that an exception has ended; the log gets its traceback."""
    # A workload may have closed the stream.
    with suppress(ValueError, OSError):
        _print(error)
    status = status_of(error, has_peers=has_peers)
    reason = error_line(error)
    if status == "user_error" and (place := raised_at(error)) is not None:
        reason += f" ({place})"
    return RankResult(status=status, reason=without_secrets(reason))


def _impossible_here(context: RankContext, task: Task) -> str | None:
    """Reason why some rank's device can't measure the point, the same on all ranks, or None.

    A driver does not know the devices and compilers of its nodes before a session has started.
    """
    point = task.point
    if not (PRECISIONS[point.precision].needs_gpu or point.compile):
        return None
    lacks_compiler = float(point.compile and not has_compiler(context.device))
    lowest = context.facts.compute_capability or _UNKNOWN_CAPABILITY
    # The process of a training loop has no group, or has destroyed it.
    if distributed.is_initialized():
        major, minor = lowest
        negative, lacks_compiler = max_over_ranks(
            context.device, -(100 * major + minor), lacks_compiler
        )
        lowest = divmod(round(-negative), 100)
    harness = Harness(compute_capability=lowest, has_compiler=not lacks_compiler)
    return impossible(task.point_of(context.workload), harness)


def _ends_the_run(error: BaseException, context: RankContext) -> bool:
    """True for the end of a debugger, and for Ctrl-C in the user's own process.

    A rank of Ray Train runs the workload outside of its main thread, or in a process that Ctrl-C
    never reaches: there the workload itself has raised the exception.
    """
    if isinstance(error, KeyboardInterrupt) and not context.ends_with_trial:
        return threading.current_thread() is threading.main_thread()
    return context.is_own_process and isinstance(error, bdb.BdbQuit)


def _without_secrets(measured: Measured) -> Measured:
    """Measurements with their reasons as they may leave this process."""
    reasons: dict[str, Any] = {
        field.name: without_secrets(text)
        for field in fields(measured)
        if field.name.endswith("reason") and (text := getattr(measured, field.name))
    }
    return replace(measured, **reasons)


def _print(error: BaseException) -> None:
    """Print an exception with its traceback from the user's code on; all of it where it has none.

    How the user's loop has ended is said in a line.
    """
    part = error.__traceback__
    while part is not None and not in_user_code(part.tb_frame.f_code.co_filename):
        part = part.tb_next
    if part is None and getattr(error, "is_whole_reason", False):
        print(without_secrets(error_line(error)), file=sys.stderr)  # noqa: T201
    else:
        print_traceback(error.with_traceback(part or error.__traceback__))


def _clean_up(device: torch.device) -> tuple[int | None, int | None]:
    """Release memory; return the bytes still in use and the bytes of the device.

    Both are None if the device fails at any call. After a CUDA kernel has failed, for example by an
    index out of range, its process can't use the device any more.
    """
    try:
        # A backward that was broken off leaves parts of its graph to the next one in this thread.
        torch.zeros(1, device=device, requires_grad=True).sum().backward()
        return release_memory(device), total_bytes(device)
    except RuntimeError as error:
        print_traceback(error)
        return None, None


def status_of(error: BaseException, *, has_peers: bool = True) -> str:
    """Name what an exception on a rank means for the trial."""
    if full := oom_status(error):
        return full
    gone_server = any(kind.__name__ == "RayActorError" for kind in type(error).__mro__)
    if (
        gone_server
        or isinstance(error, (distributed.DistError, GaveUpError))
        or (has_peers and _tells_of_a_lost_peer(error))
    ):
        return "collateral"
    return "user_error"


def _tells_of_a_lost_peer(error: BaseException) -> bool:
    """True if the error is one of the exchange, such as a lost peer causes.

    The fault is then not this rank's.
    """
    # Python's own connections, of a data set on another host, raise OSErrors with the same words.
    if not isinstance(error, RuntimeError):
        return False
    text = str(error)
    # Whatever gloo's connections say: but for what it checks itself, such as tensors of other
    # sizes.
    is_gloo = "gloo/transport/" in text and "enforce fail" not in text
    return is_gloo or any(words in text for words in _LOST_PEER)


_OWN_EXCHANGES_NOTHING = (
    " (with sync=own dtsweep exchanges nothing: do prepare and train_step exchange all gradients?)"
)
"""Added to a reason for other training where the workload makes its model parallel by itself."""


def _unanswered(measured: Measured, count: int) -> tuple[str, str] | None:
    """Status and reason of an open loop most of whose requests were not answered, or None."""
    late, lost = measured.requests_late, measured.requests_lost
    if late is None or lost is None or late + lost <= measured.window_steps:
        return None
    if lost > late:
        reason = f"{lost} of {count} requests had an error; the log of rank 0 has the first one"
        return "user_error", reason
    return "timeout", (
        f"of {count} requests {late} had no answer in time and {lost} had an error: a median is "
        "unknown; take a lower rate"
    )


def status_of_measured(measured: Measured, task: Task, point: Point) -> tuple[str, str | None]:
    """Status and reason of an attempt at a point whose window came to its end."""
    steps = measured.steps
    count = int((steps["part"] == "window").sum())
    if measured.stop_reason == "max_seconds" and count < FEWEST_MEASURED:
        return "timeout", (
            f"{count} steps in a window of {measured.window_s:.0f} s, which is the limit; take a "
            "smaller batch, or raise max_seconds above it"
        )
    if fault := _unanswered(measured, count) or measured.batch_fault:
        return fault
    if task.point.sync == AS_WRITTEN:
        # It trains what it says.
        return "ok", None
    if wrong := _other_training(measured, point):
        return wrong
    return _on_losses(steps)


def _on_losses(steps: Steps) -> tuple[str, str | None]:
    """`nan` with its reason if a loss of warm-up or window is not finite, else `ok`."""
    if "loss" not in steps:
        # Another rank of its model has it.
        return "ok", None
    finite = np.isfinite(steps["loss"]) | ~np.isin(steps["part"], ("warmup", "window"))
    # A worker that was not drawn has no loss.
    finite |= ~steps.get("trains", np.ones_like(finite))
    if finite.all():
        return "ok", None
    step = int(np.argmin(finite))
    if step == 0:
        return "nan", "the loss is not finite in the first step, before any update"
    return "nan", f"the loss is not finite from step {step} on; lower learning_rate"


def _other_training(measured: Measured, point: Point) -> tuple[str, str | None] | None:
    """Status and reason of a trial that trained something else than its mode says."""
    hint = _OWN_EXCHANGES_NOTHING if point.sync == OWN and point.workers > 1 else ""
    if measured.gradients_agree is False:
        return "wrong_gradient", f"{measured.gradients_reason}{hint}"
    if measured.parameters_agree is False:
        return "wrong_parameters", f"{measured.gradients_reason}{hint}"
    if measured.traffic_reason is not None:
        return "wrong_traffic", measured.traffic_reason
    return None
