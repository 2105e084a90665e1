"""Connections of a process end with it, although a child that it has forked lives on."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

CODE = """
import os, socket, sys, time
from dtsweep.session.worker_loop import close_in_children
own = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
close_in_children()
later = socket.socket()
if os.fork() == 0:
    kept = later.fileno() in map(int, os.listdir("/proc/self/fd"))
    print(os.getpid(), kept, flush=True)
    time.sleep(600)
os._exit(3)
"""


def test_a_peer_sees_the_end_of_a_process_although_its_child_lives_on() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60)
        port = str(server.getsockname()[1])
        parent = subprocess.Popen(
            [sys.executable, "-c", CODE, port], stdout=subprocess.PIPE, text=True
        )
        connection, _ = server.accept()
    assert parent.stdout is not None
    child, kept = parent.stdout.readline().split()
    try:
        assert parent.wait(60) == 3
        connection.settimeout(60)
        assert connection.recv(1) == b""
        # What the workload opens itself stays open in its children.
        assert kept == "True"
    finally:
        os.kill(int(child), signal.SIGKILL)
        parent.stdout.close()
        connection.close()
