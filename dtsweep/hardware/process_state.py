"""State of a worker process that a workload may change; restored after each attempt.

A session measures trial after trial in the same processes. A variable, a working directory or a
thread that one trial leaves behind would be part of all later trials.
"""

from __future__ import annotations

import ctypes
import functools
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]  # its types are a package of their own

_END_S = 1.0
"""Seconds that new threads and child processes have to end by themselves after an attempt."""

_LIBRARIES = frozenset({"dtsweep", "ray", "torch", "tqdm"})
"""Packages whose threads may stay: they start one per process, which waits for its next use."""

_SET_BY_TORCH = ("TORCHINDUCTOR_", "_TORCHINDUCTOR_", "TRITON_CACHE_DIR")
"""Beginnings of variables that torch sets when a part of it is used first."""

_HELPERS = ("multiprocessing.resource_tracker", "multiprocessing.forkserver", "compile_worker")
"""Parts of the command lines of child processes that Python and torch keep for their next use."""

_PR_SET_PDEATHSIG = 1
"""Number of Linux: send this process a signal when its parent ends."""


@dataclass(frozen=True, kw_only=True)
class LeftState:
    """State that an attempt left behind in its process, in words."""

    restored: tuple[str, ...] = ()
    """State that had changed and is as before, and child processes that were ended."""

    remaining: tuple[str, ...] = ()
    """State that can't be undone: the next trial needs another process."""


@dataclass(frozen=True)
class _Setting:
    """A value of this process that can be read, compared and set."""

    name: str
    read: Callable[[], Any]
    put: Callable[[Any], Any]


class ProcessState:
    """State of this process when the object is made; `restore` returns to it, once."""

    def __init__(self, *, is_shared: bool = False) -> None:
        """Read the state.

        Args:
            is_shared: other code runs in this process, too, as in a notebook: only child processes
                that this thread starts are those of the attempt.
        """
        self._settings = [(setting, setting.read()) for setting in _settings()]
        self._environment = dict(os.environ)
        self._threads = set(threading.enumerate())
        self._tasks = "*"
        if is_shared:
            self._tasks = str(threading.get_native_id())
        self._children = set(child_pids(self._tasks))

    def restore(self) -> LeftState:
        """Restore what has changed, and end new child processes."""
        changed = [*self._restored_environment()]
        settings, remaining = _put_back(self._settings)
        changed += settings
        until = time.monotonic() + _END_S
        pids = set(child_pids(self._tasks)) - self._children
        ended, alive = _end_children(pids, until=until)
        changed += ended
        remaining += alive
        remaining += _still_running(self._threads, until=until)
        return LeftState(restored=tuple(changed), remaining=tuple(remaining))

    def _restored_environment(self) -> Iterator[str]:
        before = self._environment
        changed = sorted(
            name
            for name in before.keys() | os.environ.keys()
            if before.get(name) != os.environ.get(name)
            and not (name.startswith(_SET_BY_TORCH) and name not in before)
        )
        for name in changed:
            if name in before:
                os.environ[name] = before[name]
            else:
                del os.environ[name]
        if changed:
            yield f"environment variables ({', '.join(changed)})"


def _put_back(settings: Sequence[tuple[_Setting, Any]]) -> tuple[list[str], list[str]]:
    """Set what differs from its earlier value.

    Args:
        settings: each with that value.

    Returns:
        Names of those that were set, and of those that can't be set.
    """
    changed, remaining = [], []
    for setting, before in settings:
        if setting.read() == before:
            continue
        try:
            setting.put(before)
        except (OSError, ValueError) as error:
            remaining.append(f"{setting.name} ({error})")
        else:
            changed.append(setting.name)
    return changed, remaining


def _settings() -> Iterator[_Setting]:
    """Yield the settings of this process that can be read and set; `backend_flags` has torch's."""
    yield _Setting("working directory", _folder, os.chdir)
    yield _Setting("sys.path", _path, _put_path)
    yield _Setting(
        "CPU affinity",
        functools.partial(os.sched_getaffinity, 0),
        functools.partial(os.sched_setaffinity, 0),
    )
    for name in ("stdout", "stderr"):
        read, put = functools.partial(getattr, sys, name), functools.partial(setattr, sys, name)
        yield _Setting(f"sys.{name}", read, put)


def _folder() -> str:
    try:
        return str(Path.cwd())
    except FileNotFoundError:  # it was removed
        return ""


def _path() -> list[str]:
    """The import path, without what setuptools adds to it: torch's compiler imports that."""
    return [folder for folder in sys.path if not folder.endswith("setuptools/_vendor")]


def _put_path(before: list[str]) -> None:
    sys.path[:] = before


def child_pids(tasks: str = "*", *, pid: int | str = "self") -> Iterator[int]:
    """Yield the direct child processes of some threads of a process, as the kernel lists them.

    Args:
        tasks: id of a thread, or `*` for all.
        pid: of the process; by default this one.
    """
    for task in Path(f"/proc/{pid}/task").glob(tasks):
        with suppress(OSError):  # the thread has ended, or the kernel has no such list
            yield from map(int, (task / "children").read_text().split())


def end_with(parent: int) -> None:
    """Have this process killed when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit(1)  # it has ended already


def _end_children(pids: Collection[int], *, until: float) -> tuple[list[str], list[str]]:
    """End child processes that an attempt has started.

    Returns:
        Those that were ended, and those that can't be ended or take longer.
    """
    children = [child for pid in pids if (child := _own_child(pid)) is not None]
    _, alive = psutil.wait_procs(children, timeout=max(0.0, until - time.monotonic()))
    ended, remaining = [], []
    for child in alive:
        label = f"child process {child.pid}"
        try:
            label += f" ({child.name()})"
            for process in (*child.children(recursive=True), child):
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            child.wait(_END_S)
        except psutil.NoSuchProcess:
            continue
        except psutil.Error:  # of another user, or it takes long to end
            remaining.append(label)
        else:
            ended.append(label)
    return ended, remaining


def _own_child(pid: int) -> psutil.Process | None:
    """Child process with this id; None if it has ended or is a helper of Python or torch."""
    try:
        child = psutil.Process(pid)
        command = " ".join(child.cmdline())
    except psutil.Error:
        return None
    if any(helper in command for helper in _HELPERS):
        return None
    return child


def _still_running(before: Collection[threading.Thread], *, until: float) -> Iterator[str]:
    """Wait for new threads of Python; yield those that still run."""
    for thread in threading.enumerate():
        if thread in before or _package_of(thread) in _LIBRARIES or thread in _of_compiler():
            continue
        _join(thread, until=until)
        if thread.is_alive():
            yield f"thread {thread.name}"


def _of_compiler() -> Collection[threading.Thread]:
    """Threads of the pool with which torch compiles, one per process; none before it has."""
    compiler: Any = sys.modules.get("torch._inductor.async_compile")
    if compiler is None or not compiler.AsyncCompile.pool.cache_info().currsize:
        return ()
    threads: Collection[threading.Thread] = compiler.AsyncCompile.pool()._threads
    return threads


def _join(thread: threading.Thread, *, until: float) -> None:
    """Wait for a thread's end, also where another thread is just starting it."""
    while time.monotonic() < until:
        try:
            thread.join(until - time.monotonic())
        except RuntimeError:
            time.sleep(0.001)
        else:
            return


def _package_of(thread: threading.Thread) -> str:
    """Package whose code a thread runs, as far as it can be seen."""
    target = getattr(thread, "_target", None) or getattr(thread, "function", None)
    module = getattr(target, "__module__", None) or type(thread).__module__
    return str(module).partition(".")[0]
