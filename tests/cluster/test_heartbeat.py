"""True if the Ray of a run is still there; with real sockets, and the clock given."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from dtsweep.cluster import heartbeat as heartbeat_module
from dtsweep.cluster.heartbeat import HEAD_SILENT_S, Heartbeat

ENDS = """
import threading, time
from dtsweep.cluster import heartbeat
heartbeat.LOOK_EVERY_S, heartbeat._PATIENCE_S = 0.01, 0.05
nobody = heartbeat.Heartbeat(head="127.0.0.1:1", node="127.0.0.1:1")
with heartbeat.watched(nobody, last_words=lambda: print("gone", flush=True), exit_code=4) as gone:
    gone.wait()
    threading.Event().wait(WAIT)
print("ended by itself")
"""


@pytest.fixture
def frozen() -> Iterator[socket.socket]:
    """A process that is stopped: the kernel goes on taking its connections."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """Somebody who answers."""

    def answer() -> None:
        while True:
            try:
                link, _ = server.accept()
            except OSError:  # closed
                return
            with link:
                link.sendall(b"settings")

    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=answer)
        answering.start()
        yield server
        server.shutdown(socket.SHUT_RDWR)
    answering.join()


def address_of(server: socket.socket) -> str:
    host, port = server.getsockname()
    return f"{host}:{port}"


def test_a_cluster_that_answers_is_there(listening: socket.socket) -> None:
    assert not Heartbeat(head=address_of(listening), node=address_of(listening)).is_gone(
        now=time.monotonic() + 1e6
    )


def test_a_cluster_whose_node_on_this_machine_has_ended_is_gone_at_once(
    listening: socket.socket,
) -> None:
    assert Heartbeat(head=address_of(listening), node="127.0.0.1:1").is_gone(now=time.monotonic())


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_head_may_be_silent_for_as_long_as_a_restart_takes(
    listening: socket.socket, frozen: socket.socket, *, is_frozen: bool
) -> None:
    # It is gone, or takes connections and says nothing.
    head = address_of(frozen) if is_frozen else "127.0.0.1:1"
    heartbeat, now = Heartbeat(head=head, node=address_of(listening)), time.monotonic()
    assert not heartbeat.is_gone(now=now + HEAD_SILENT_S - 1)
    assert heartbeat.is_gone(now=now + HEAD_SILENT_S + 1)


def test_a_node_that_says_nothing_is_busy(listening: socket.socket, frozen: socket.socket) -> None:
    heartbeat = Heartbeat(head=address_of(listening), node=address_of(frozen))
    assert not heartbeat.is_gone(now=time.monotonic() + 1e6)


def test_a_failure_waits_while_the_head_is_silent_and_not_while_it_answers(
    listening: socket.socket, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat_module, "LOOK_EVERY_S", 0.01)
    here = address_of(listening)
    assert not Heartbeat(head=here, node=here).is_gone_for_good()
    monkeypatch.setattr(heartbeat_module, "HEAD_SILENT_S", 0.1)
    assert Heartbeat(head="127.0.0.1:1", node=here).is_gone_for_good()


@pytest.mark.parametrize(
    ("wait", "code", "said"), [("600", 4, "gone\n"), ("0", 0, "ended by itself\n")]
)
def test_a_run_that_does_not_end_with_its_cluster_is_ended(wait: str, code: int, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", ENDS.replace("WAIT", wait)],
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert (done.returncode, done.stdout) == (code, said), done.stderr
