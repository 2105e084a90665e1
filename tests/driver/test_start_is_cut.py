"""A run that ends while a session starts: its nodes go after the idle time-out, not later."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from ray._private.state import GlobalState
from ray._raylet import GcsClientOptions

from tests.conftest import without_ray
from tests.growing import LIVES, SWEEP, growing_head, told_by

NODES_COME_S = 120.0

REQUESTED_S = 1.0
"""Time after which Ray Train's controller has asked for nodes; its ranks take longer to start."""

REQUEST_S = 180.0
"""Time for which Ray Train's own request stays if nobody cancels it."""


@pytest.mark.ray
def test_nodes_of_a_session_that_was_starting_go_after_the_idle_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    (tmp_path / "sweep.py").write_text(SWEEP)
    with growing_head(tmp_path / "cluster.yaml", v2=True) as address:
        run = subprocess.Popen(
            [
                *(sys.executable, "-m", "dtsweep", "run", "sweep.py", "--address", address),
                *("--results", "r", "--set", "workers=3"),
            ],
            cwd=tmp_path,
            env=without_ray(RAY_AUTH_MODE="disabled"),
        )
        try:
            until = time.monotonic() + NODES_COME_S
            while not _starts(address):
                assert run.poll() is None
                assert time.monotonic() < until
                time.sleep(0.5)
            time.sleep(REQUESTED_S)
            run.send_signal(signal.SIGINT)
            assert run.wait(120) == 130
        finally:
            run.kill()
            run.wait()
        ended = time.time()
        lives = json.loads(told_by(LIVES, address))
    print(ended, lives)
    assert lives
    assert all(0 < gone < ended + REQUEST_S / 2 for _, gone, _ in lives)


def _starts(address: str) -> bool:
    """True if a session starts: Ray Train's controller is there."""
    state = GlobalState()
    options = GcsClientOptions.create(address, None, True, False)  # noqa: FBT003  # Ray's own
    state._initialize_global_state(options)
    actors = state.actor_table(None).values()
    return any(
        actor["ActorClassName"] == "TrainController" and actor["State"] == "ALIVE"
        for actor in actors
    )
