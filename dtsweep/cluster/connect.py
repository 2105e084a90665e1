"""Connect to a running Ray, or start a private one that ends with the run."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

import ray
from ray._private import services

from dtsweep.cluster.capacity import Cluster, look_at
from dtsweep.cluster.run_folders import FOLDER_VARIABLE, RAY_PARENT, RAY_PREFIX, run_folder
from dtsweep.cluster.shipping import LEFT_OUT, modules_of_job, shipped_modules
from dtsweep.cluster.token import forget_token, make_token_private, send_token_if_asked
from dtsweep.errors import SweepError
from dtsweep.hardware.variables import variables_set
from dtsweep.secret import without_credentials

_CONNECT_S = 5.0
"""Time limit for a cluster to answer."""

_MOST_CHARACTERS = 400
"""Characters of an error of Ray that a line repeats at most."""


_HINT = "start one, give the port of its head node (6379 by default), or use --address local"


@contextmanager
def connected(
    address: str | None,
    *,
    folder: Path | None,
    modules: Sequence[Path] = (),
    environment: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[Cluster]:
    """Connect to the given Ray, `RAY_ADDRESS`, this machine's Ray or a private one, in this order.

    Args:
        address: `local`, `auto`, HOST:PORT or None.
        folder: the sweep file's; what can be imported from it goes to the nodes of a cluster.
        modules: the user's own modules and packages that go there too, wherever they lie.
        environment: of all processes of a private Ray.

    Raises:
        SweepError: the address names no running Ray.
    """
    if ray.is_initialized():
        raise SweepError("this process uses a Ray already; call ray.shutdown() first")
    wanted = _wanted(address)
    with _process_kept(), ExitStack() as stack:
        os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
        if wanted == "local":
            # Ray opens its own folder to everybody; what ranks print lies there, too.
            own_folder = stack.enter_context(run_folder(RAY_PREFIX, parent=RAY_PARENT))
            stack.callback(ray.shutdown)
            notes = _start_private(own_folder, environment)
            cluster = look_at("a private Ray on this machine", is_private=True)
            yield replace(cluster, folder=own_folder, notes=notes)
            return
        stack.callback(ray.shutdown)
        notes = _join(wanted, [*shipped_modules(folder, modules), *modules_of_job(os.environ)])
        cluster = look_at(f"Ray at {ray.get_runtime_context().gcs_address}", is_private=False)
        yield replace(cluster, notes=notes)


@contextmanager
def _process_kept() -> Iterator[None]:
    """Keep this process's environment, its handler of SIGTERM and its print settings.

    Ray and Ray Tune change all three: what stays of them are a debugger that needs the Ray that is
    gone, the token of a cluster with which no other can be joined, and a Tune without loggers.
    """
    variables = dict(os.environ)
    terminate = signal.getsignal(signal.SIGTERM)
    print_lines = ray._private.worker.print_to_stdstream
    # Ray prints a paragraph for each process that dies; the trial's row says it in a line.
    ray._private.worker.print_to_stdstream = lambda *_, **__: None
    try:
        yield
    finally:
        ray._private.worker.print_to_stdstream = print_lines
        for name in os.environ.keys() - variables.keys():
            del os.environ[name]
        os.environ.update(variables)
        forget_token()
        # None: a handler of a program that this Python lies in, which Python can't put back.
        if terminate is not None and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, terminate)


def _start_private(folder: Path, environment: Mapping[str, str]) -> list[str]:
    """Start a Ray in a folder; return lines for the user."""
    # Ray gives workers niceness 15 by default: other processes would slow down what is measured.
    own = {"RAY_worker_niceness": "0", FOLDER_VARIABLE: str(folder)}
    # RAY_ADDRESS would win over address="local".
    with variables_set({**own, **environment, "RAY_ADDRESS": None}), _in_own_sessions():
        try:
            notes = make_token_private()
            ray.init(
                address="local",
                include_dashboard=False,
                log_to_driver=False,
                logging_level=logging.ERROR,
                _temp_dir=f"{folder}/r",
            )
        except Exception as error:  # Ray raises a bare one
            reason = _line_of(error)
            raise SweepError(
                f"a private Ray did not start ({reason}); is this machine very busy? try again"
            ) from error
    return notes


@contextmanager
def _in_own_sessions() -> Iterator[None]:
    """Start Ray's processes outside of this one's group in this context.

    A signal to the group, as `timeout` and batch systems send, would end Ray before the run.
    """
    popen = services.ConsolePopen
    services.ConsolePopen = partial(popen, start_new_session=True)
    try:
        yield
    finally:
        services.ConsolePopen = popen


def _wanted(address: str | None) -> str:
    """`local`, `auto` or HOST:PORT: what was asked for, else what Ray's own programs would use."""
    services.find_gcs_addresses.cache_clear()  # as `ray.init` does: a cluster may have come or gone
    if address == "":
        raise SweepError("--address is empty; use auto, local or HOST:PORT, or leave it out")
    chosen = None
    if address != "auto":
        chosen = address
    wanted = chosen or os.environ.get("RAY_ADDRESS") or address or _this_machines() or "local"
    if "://" in wanted:
        source = "RAY_ADDRESS is "
        if chosen:
            source = ""
        hint = "use HOST:PORT of the head node, --address local, or ray job submit"
        kind = "for Ray Client"
        if wanted.startswith("http"):
            kind = "its dashboard's address"
        raise SweepError(
            f"{source}{wanted!r}: that is {kind}, and dtsweep runs on a node of the cluster; {hint}"
        )
    return wanted


def _join(address: str, modules: list[str]) -> list[str]:
    """Join a Ray that runs; return lines for the user."""
    # A job that was submitted has a runtime environment of its own, which ours is added to.
    os.environ.setdefault("RAY_OVERRIDE_JOB_RUNTIME_ENV", "1")
    try:
        if address == "auto":
            address = _running()
        _need_answer(address)
        asks_for_token = send_token_if_asked(address)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise SweepError(f"no Ray at {address!r} ({_line_of(error)}); {_HINT}") from error
    try:
        ray.init(
            address=address,
            log_to_driver=False,
            logging_level=logging.ERROR,
            runtime_env={"py_modules": modules, "excludes": [*LEFT_OUT]},
        )
    except Exception as error:  # Ray raises bare ones
        hint = "run dtsweep on one of its nodes, with its versions of Ray and Python"
        raise SweepError(
            f"the Ray at {address!r} can't be joined ({_line_of(error)}); {hint}"
        ) from error
    if asks_for_token:
        return []
    return [f"the Ray at {address} asks for no token: anybody who reaches it can run code there"]


def _line_of(error: Exception) -> str:
    r"""Join the lines of an error of Ray's: versions and the like stand below its first.

    >>> _line_of(RuntimeError("Version mismatch: The cluster was started with:\n    Ray: 2.59.0\n"))
    'Version mismatch: The cluster was started with: Ray: 2.59.0'
    >>> _line_of(ConnectionError())
    'ConnectionError'
    """
    # Cut last: of a password cut in two nothing is found.
    text = without_credentials(" ".join(str(error).split()))
    return text[:_MOST_CHARACTERS] or type(error).__name__


def _need_answer(address: str) -> None:
    """Refuse an address at which nothing listens: Ray itself tries for minutes.

    Raises:
        SweepError: nothing does, or it is not an address.
    """
    host, _, port = address.rpartition(":")
    is_plain = ":" not in host or (host[0], host[-1]) == ("[", "]")
    if not (host and is_plain and port.isdigit()):
        raise SweepError(
            f"address {address!r} is not HOST:PORT; use that ([::1]:6379 in IPv6), auto or local"
        )
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_CONNECT_S).close()
    except OSError as error:
        reason = error.strerror or "no answer"
        raise SweepError(f"no Ray at {address!r} ({reason}); {_HINT}") from error


def _running() -> str:
    """The address of a Ray that runs on this machine, no matter who started it.

    Raises:
        SweepError: there is none.
    """
    try:
        address: str = services.canonicalize_bootstrap_address("auto")
    except ConnectionError as error:
        raise SweepError(
            "no Ray runs on this machine; start one, give HOST:PORT, or use --address local"
        ) from error
    return address


def _this_machines() -> str | None:
    """Address of this machine's cluster: of the last `ray start`, if it still runs."""
    address: str | None = services.find_bootstrap_address(None)
    if address not in services.find_gcs_addresses():
        return None
    return address
