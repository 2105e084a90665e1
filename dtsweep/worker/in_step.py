"""Work after a window that all ranks do, in which a failure leaves them in step."""

from __future__ import annotations

import bdb
from collections.abc import Callable

from torch.distributed.distributed_c10d import PrefixStore, Store, _get_default_store, get_rank

from dtsweep.errors import error_line
from dtsweep.hardware.memory import oom_status
from dtsweep.measure.isolated_exchange import failure_anywhere
from dtsweep.secret import print_traceback
from dtsweep.sweep.task import Task
from dtsweep.sync.block_order import OrderError
from dtsweep.sync.groups import position

FIRST_PATIENCE_S = 60.0
"""Time for other ranks to end a first step that failed here: they may be compiling it."""

NO_MEMORY = "a step after the window does not fit into memory"


class StepError(Exception):
    """A step after the window failed on some rank; all ranks know it and are in step."""


def store_of(task: Task, part: str) -> Store:
    """The key-value store of all ranks, with keys for one part of this attempt."""
    return PrefixStore(f"{task.attempt_id}/{part}", _get_default_store())


def store_of_others(task: Task, part: str) -> Store | None:
    """`store_of` if there are other ranks, else None."""
    if task.point.workers > 1:
        return store_of(task, part)
    return None


def together(
    work: Callable[[], object], *, store: Store | None, patience_s: float = FIRST_PATIENCE_S
) -> None:
    """Do work that all ranks do, with or without an exchange in it.

    Args:
        work: is done.
        store: with keys for this work; None if there are no other ranks.
        patience_s: how long a rank whose work failed waits for the others to end theirs, in
            seconds.

    Raises:
        StepError: the work failed on a rank; all ranks raise it and are in step.
        OrderError: on a rank that found ranks in different orders; the trial is wrong then.
    """
    error, message = None, ""
    try:
        work()
    except bdb.BdbQuit:
        raise  # leaving the debugger ends the run
    except Exception as raised:  # noqa: BLE001  # the user's own code may raise anything
        error = raised
        rank = 0
        if store:
            rank = get_rank()
        named = f"a step after the window failed on rank {rank}: {error_line(error)}"
        if oom_status(error):
            message = NO_MEMORY
        else:
            message = named
    if store is None and error is not None:
        print_traceback(error)
        raise StepError(message)
    if store is not None and (
        failure := failure_anywhere(
            error, message, position=position(), store=store, patience_s=patience_s
        )
    ):
        if isinstance(error, OrderError):
            raise error
        raise StepError(failure)
