"""A server that forks a process for each trial of a training loop of the user.

A rank starts it by `python -m`, with the number of a socket and its own process id.
"""

from __future__ import annotations

import faulthandler
import functools
import gc
import os
import pickle
import signal
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.reduction import recv_handle
from typing import Any, NoReturn

import torch

# Training loops import them, the first one with the first optimizer.
import torch._dynamo
import torch.distributed.fsdp
import torch.utils.data

from dtsweep.hardware.process_state import end_with
from dtsweep.hardware.telemetry import Telemetry
from dtsweep.metrics.rank_result import RankResult
from dtsweep.secret import print_traceback
from dtsweep.session.attempt import failure, outcome_of
from dtsweep.session.loop_process import LoopRequest
from dtsweep.worker.rank import RankContext
from dtsweep.worker.step_watch import StepWatch

_Send = Callable[[str, Any], None]
"""Sends the rank a message of a kind."""


def _serve(descriptor: int, rank_pid: int) -> None:
    """Fork a process for each request, until the rank closes the socket."""
    end_with(rank_pid)
    # A trial may close its own streams.
    log = os.dup(2)
    faulthandler.enable(file=log)
    faulthandler.register(signal.SIGUSR1, file=log, all_threads=True)
    connection = Connection(descriptor)
    server_pid = os.getpid()
    gc.freeze()
    connection.send("ready")
    with suppress(EOFError, ConnectionError):
        while True:
            pipe = recv_handle(connection)
            os.set_inheritable(pipe, False)  # noqa: FBT003
            request = connection.recv_bytes()
            pid = os.fork()
            if not pid:
                connection.close()
                _run_trial(Connection(pipe, readable=False), request, server_pid)
            os.close(pipe)
            connection.send(_exit_code(pid))


def _exit_code(pid: int) -> int:
    """Wait for the end of a trial's process, and end the processes that it has left."""
    # While it is not reaped, no other process has its number.
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def _run_trial(pipe: Connection, request: bytes, server_pid: int) -> NoReturn:
    """Be a rank for one trial, and end this process."""
    code = 1
    try:
        os.setpgid(0, 0)
        end_with(server_pid)
        os.register_at_fork(after_in_child=pipe.close)
        lock = threading.Lock()

        def send(kind: str, value: Any) -> None:
            with lock:
                pipe.send((kind, value))

        given = pickle.loads(request)  # noqa: S301  # the rank's
        try:
            result = _measure(given, send)
        except BaseException as error:  # noqa: BLE001  # the user's modules may raise anything
            result = failure(error, has_peers=given.meeting is not None)
        send("result", result)
        code = 0
    except BaseException as error:  # noqa: BLE001  # the process ends below
        print_traceback(error)
    finally:
        for stream in (sys.stdout, sys.stderr):
            # The loop may have closed it.
            with suppress(ValueError, OSError, AttributeError):
                stream.flush()
        os._exit(code)


def _measure(request: LoopRequest, send: _Send) -> RankResult:
    """Measure the training loop of a request, as the rank that has sent it."""
    os.environ.clear()
    os.environ.update(request.environment)
    sys.path[:] = request.search_path
    os.chdir(request.folder)
    for stream in (sys.stdout, sys.stderr):
        # Half a surrogate can't be encoded; no trial fails by what it prints.
        stream.reconfigure(line_buffering=True, errors="backslashreplace")  # type: ignore[union-attr]  # of files
    torch.set_num_threads(request.threads)
    if request.device.type == "cuda":
        torch.cuda.set_device(request.device)
    task = pickle.loads(request.task)  # noqa: S301  # the rank's
    store = None
    if request.meeting is not None:
        store = request.meeting.store(task.attempt_id)
    context = RankContext(
        rank=request.rank,
        device=request.device,
        workload=request.code.load(),
        # The rank itself is on the device, too.
        telemetry=Telemetry(request.device, own_pids={os.getpid(), request.facts.pid}),
        facts=request.facts,
        store=store,
        start_folder=request.code.start_folder,
        watch=StepWatch(functools.partial(send, "line")),
        ends_with_trial=True,
    )
    result = outcome_of(context, task, on_warm=functools.partial(send, "warm"))
    send("secrets", context.secrets)
    return result


if __name__ == "__main__":
    _serve(int(sys.argv[1]), int(sys.argv[2]))
