"""Connections of a process end with it, although a child that it has forked lives on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator

import pytest

CODE = """
import os, socket, sys, time
from dtsweep.session.worker_loop import close_in_children
own = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
if sys.argv[2] == "closed":
    close_in_children()
later = socket.socket()
if os.fork() == 0:
    kept = later.fileno() in map(int, os.listdir("/proc/self/fd"))
    print(os.getpid(), kept, flush=True)
    time.sleep(600)
os._exit(3)
"""


@pytest.fixture
def server() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        listening.settimeout(60)
        yield listening


@pytest.mark.parametrize("how", ["closed", "kept open"])
def test_a_peer_sees_the_end_of_a_process_only_if_no_child_keeps_its_socket(
    server: socket.socket, how: str
) -> None:
    port = server.getsockname()[1]
    parent = subprocess.Popen(
        [sys.executable, "-c", CODE, str(port), how], stdout=subprocess.PIPE, text=True
    )
    connection, _ = server.accept()
    assert parent.stdout is not None
    child, kept = parent.stdout.readline().split()
    try:
        assert parent.wait(60) == 3
        connection.settimeout(1)
        if how == "closed":
            assert connection.recv(1) == b""
        else:
            with pytest.raises(TimeoutError):
                connection.recv(1)
        # What the workload opens itself stays open in its children.
        assert kept == "True"
    finally:
        os.kill(int(child), signal.SIGKILL)
        parent.stdout.close()
        connection.close()
