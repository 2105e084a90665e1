"""A process for each trial of a training loop of the user, as the rank sees it."""

from __future__ import annotations

import faulthandler
import os
import pickle
import signal
import socket
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection, wait
from multiprocessing.reduction import send_handle
from pathlib import Path
from typing import Any, NoReturn

import torch
from ray import cloudpickle
from torch import distributed
from torch.distributed import distributed_c10d

from dtsweep.metrics.rank_result import RankFacts, RankResult
from dtsweep.session.nodes import LOOP_SERVER
from dtsweep.session.session_settings import Code
from dtsweep.sweep.task import Task
from dtsweep.worker.rank import RankContext

_SERVER_VARIABLES: Mapping[str, str] = {
    # Without it, to ask for a GPU makes CUDA unusable in forked processes.
    "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
    # Ray starts ranks in the user's folder.
    "PYTHONSAFEPATH": "1",
}


@dataclass(frozen=True, kw_only=True)
class _Meeting:
    """Store of a session's first rank, through which the processes of a trial agree."""

    host: str
    port: int
    timeout: timedelta

    def store(self, attempt_id: str) -> distributed_c10d.Store:
        """The store, with keys of this attempt alone."""
        store = distributed.TCPStore(  # type: ignore[attr-defined]  # missing in torch's stub
            self.host, self.port, is_master=False, wait_for_workers=False, timeout=self.timeout
        )
        return distributed_c10d.PrefixStore(attempt_id, store)


@dataclass(frozen=True, kw_only=True)
class LoopRequest:
    """Request for a process that is this rank for one trial."""

    task: bytes
    """Pickled: it may have values of the user's types."""

    code: Code
    rank: int
    device: torch.device
    facts: RankFacts
    meeting: _Meeting | None
    """None with one worker."""

    threads: int
    folder: str
    search_path: Sequence[str]
    environment: Mapping[str, str] = field(repr=False)


class LoopProcesses:
    """Runs each trial of a training loop in a process that a server has forked for it.

    The server has imported torch, and never uses CUDA. It ends with this process.
    """

    def __init__(self, code: Code, search_path: Sequence[str]) -> None:
        """Start the server; `search_path` is `sys.path` before the workload was imported."""
        self._code = code
        ours, theirs = socket.socketpair()
        self._connection = Connection(ours.detach())
        # First: the user's folder may have modules that are named like Python's own.
        library = sysconfig.get_path("stdlib")
        path = os.pathsep.join([library, f"{library}/lib-dynload", *search_path])
        with theirs:
            number = theirs.fileno()
            self._server = subprocess.Popen(
                [sys.executable, "-m", LOOP_SERVER, f"{number}", f"{os.getpid()}"],
                pass_fds=[number],
                env={**os.environ, **_SERVER_VARIABLES, "PYTHONPATH": path},
            )

    def wait_until_ready(self) -> None:
        """Wait for the server's imports; raise ChildProcessError where they fail."""
        try:
            self._connection.recv()
        except (EOFError, ConnectionResetError):
            code = self._server.wait()
            if code < 0:
                _end_by(-code)
            raise ChildProcessError(
                f"the server of training loops ended with exit code {code}; see this rank's log"
            ) from None

    def run(self, context: RankContext, task: Task, on_warm: Callable[[float], None]) -> RankResult:
        """Run one attempt; if a signal ends its process, end this one in the same way."""
        request = LoopRequest(
            task=cloudpickle.dumps(task),
            code=self._code,
            rank=context.rank,
            device=context.device,
            facts=context.facts,
            meeting=_meeting(task.point.workers),
            threads=torch.get_num_threads(),
            folder=str(Path.cwd()),
            search_path=sys.path,
            environment=dict(os.environ),
        )
        messages: dict[str, Any] = {}
        reader, writer = Pipe(duplex=False)
        # A server that has been killed reads nothing.
        with reader, suppress(BrokenPipeError, ConnectionResetError):
            with writer:
                send_handle(self._connection, writer.fileno(), self._server.pid)
                self._connection.send_bytes(pickle.dumps(request))
            messages = self._messages(reader, context, on_warm)
        code = self._exit_code()
        if "result" in messages:
            result: RankResult = messages["result"]
            return result
        if code < 0:
            _end_by(-code)
        reason = f"the training loop's process ended with exit code {code}, by os._exit perhaps"
        return RankResult(status="user_error", reason=reason)

    def _messages(
        self, reader: Connection, context: RankContext, on_warm: Callable[[float], None]
    ) -> dict[str, Any]:
        """Messages of the trial's process by kind, until it has ended; some are passed on."""
        messages: dict[str, Any] = {}
        # A process that the trial has left behind may keep the pipe open; a signal may end the
        # trial's process within a message.
        with suppress(EOFError, OSError):
            while reader in wait([reader, self._connection]):
                kind, messages[kind] = reader.recv()
                match kind:
                    case "warm":
                        on_warm(messages["warm"])
                    case "line" if context.watch is not None:
                        context.watch.say(messages["line"])
                    case "secrets":
                        context.secrets.update(messages["secrets"])
        return messages

    def _exit_code(self) -> int:
        """Exit code of the trial's process; a negative number is a signal."""
        try:
            return int(self._connection.recv())
        except (EOFError, ConnectionResetError):
            # The server has ended, as where it can't fork, and would fail all later trials.
            _end_by(signal.SIGKILL)


def _meeting(workers: int) -> _Meeting | None:
    """The store of this process's group; None with one worker."""
    if workers == 1:
        return None
    store: Any = distributed_c10d._get_default_store()
    timeout = store.timeout
    while isinstance(store, distributed_c10d.PrefixStore):
        store = store.underlying_store
    return _Meeting(host=store.host, port=store.port, timeout=timeout)


def _end_by(number: int) -> NoReturn:
    """End this process by a signal: Ray and the session then see how its trial has ended."""
    # The trial's process has written its stack.
    faulthandler.disable()
    os.kill(os.getpid(), number)
    os._exit(128 + number)
