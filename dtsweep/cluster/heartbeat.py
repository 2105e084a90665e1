"""Heartbeat of the Ray of a run.

Ray itself waits a minute and then ends the driver at once.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import ray

HEAD_SILENT_S = 40.0
"""Longest silence of the head. A restart takes less, and Ray ends the driver after 60 s."""

LOOK_EVERY_S, ANSWER_S = 2.0, 1.0
"""Interval of the checks, and time limit for an answer."""

_HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + b"\x04" + bytes(5)
"""Opening bytes of a gRPC client (HTTP/2, empty settings); a server answers without a token."""

_PATIENCE_S = 10.0
"""Time for the run to end by itself once its cluster is gone, before Ray ends the driver."""


class ClusterGoneError(BaseException):
    """The cluster has stopped; not an Exception, so that Tune passes it on."""


class Heartbeat:
    """The head of a cluster and this machine's node: whether they are there."""

    def __init__(self, *, head: str, node: str) -> None:
        """Take the addresses of both, HOST:PORT; they answer now."""
        self._head = head
        self._node = node
        self._answered = time.monotonic()

    def is_gone(self, *, now: float) -> bool:
        """True if this machine's node has ended, or the head is silent for too long.

        `now` is by the monotonic clock.
        """
        if self.answers():
            self._answered = now
        # A busy node that does not answer in time has not ended; one that refuses has.
        return now - self._answered >= HEAD_SILENT_S or isinstance(
            _error_of(self._node), ConnectionRefusedError
        )

    def answers(self) -> bool:
        """True if the head answers now."""
        return _error_of(self._head) is None

    def is_gone_for_good(self) -> bool:
        """Wait until a silent head answers or counts as gone; True if the cluster is gone."""
        while not (is_gone := self.is_gone(now=time.monotonic())) and not self.answers():
            time.sleep(LOOK_EVERY_S)
        return is_gone


def heartbeat_of_ray() -> Heartbeat:
    """The heartbeat of the Ray that this driver is connected to."""
    context = ray.get_runtime_context()
    own_node = next(node for node in ray.nodes() if node["NodeID"] == context.get_node_id())
    return Heartbeat(
        head=context.gcs_address,
        node=f"{own_node['NodeManagerAddress']}:{own_node['NodeManagerPort']}",
    )


@contextmanager
def watched(
    heartbeat: Heartbeat, *, last_words: Callable[[], None], exit_code: int
) -> Iterator[threading.Event]:
    """Watch a cluster while something runs on it; give an event that is set once it is gone.

    Many calls of Ray then never return. Where they keep the run from ending, the process ends.
    """
    cluster_gone = threading.Event()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.wait(LOOK_EVERY_S):
            if heartbeat.is_gone(now=time.monotonic()):
                cluster_gone.set()
                if not is_over.wait(_PATIENCE_S):
                    last_words()
                    os._exit(exit_code)
                return

    threading.Thread(target=watch, name="dtsweep-heartbeat", daemon=True).start()
    try:
        yield cluster_gone
    finally:
        is_over.set()


def _error_of(address: str) -> OSError | None:
    """Error of a connection to an address; None if it is answered."""
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_S) as link:
            # The kernel takes connections for a process that is stopped, too.
            link.sendall(_HELLO)
            link.recv(1)
    except ConnectionResetError:  # by one that wants TLS: it answers
        return None
    except OSError as error:
        return error
    return None
