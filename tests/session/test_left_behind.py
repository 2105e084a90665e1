"""What outlives a process or a run: its children's connections, and placement groups."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from typing import Any

import pytest
import ray
from ray.core.generated.gcs_pb2 import PlacementGroupTableData

from dtsweep.session.orphans import orphans

# Connections end with a process, although a child that it has forked lives on

CODE = """
import os, socket, sys, time
from dtsweep.session.worker_loop import _close_in_children
own = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
_close_in_children()
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


# Placement groups; no Ray runs here

State = PlacementGroupTableData.PlacementGroupState


def group(**different: Any) -> PlacementGroupTableData:
    known = {"placement_group_id": b"g", "creator_job_id": b"\x01\x00", "state": State.CREATED}
    creator = {"creator_actor_id": bytes(ray.ActorID.size()), "creator_actor_dead": True}
    return PlacementGroupTableData(**{**known, **creator, **different})


@pytest.mark.parametrize("state", [State.CREATED, State.PENDING, State.RESCHEDULING])
def test_a_group_whose_maker_has_ended_is_left_behind_even_if_it_still_waits_for_nodes(
    state: int,
) -> None:
    assert orphans([group(state=state)], job_id="0100") == [b"g"]


@pytest.mark.parametrize(
    "different",
    [
        {"creator_actor_dead": False},
        {"creator_job_id": b"\x02\x00"},
        {"is_detached": True},
        {"state": State.REMOVED},
        {"creator_actor_id": ray.ActorID.nil().binary()},
    ],
)
def test_a_group_that_is_in_use_or_anothers_or_gone_or_the_drivers_is_let_alone(
    different: Any,
) -> None:
    assert orphans([group(**different)], job_id="0100") == []
