"""Trials reach a tracker while a sweep runs, and a tracker that fails takes nothing from it."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import torch
from torch import Tensor, nn

import dtsweep
from dtsweep import Measure, Sweep, SweepError
from dtsweep.cli.log_to import TrialSender
from dtsweep.driver.tally import RunTally
from dtsweep.driver.tracker_feed import TrackerFeed
from dtsweep.results.schema import IMPORTED
from dtsweep.results.store import Results
from dtsweep.trackers.destinations import Destination
from tests.trackers.stored import START, export, store_sweep

if TYPE_CHECKING:
    from mlflow.entities import Run

QUICK = Measure(
    repeats=1, half_width=None, min_seconds=0, min_steps=5, max_steps=20, warmup_steps=1
)

WAIT_S = 60.0
"""Most time that the second trial waits for what a test asks for."""

before_build: list[Callable[[], bool]] = []
"""Condition that a trial waits for."""


@dataclass(frozen=True)
class Line:
    width: int = 2

    def build(self) -> nn.Module:
        until = time.monotonic() + WAIT_S
        while not before_build[0]():
            assert time.monotonic() < until
            time.sleep(0.2)
        return nn.Linear(2, self.width)

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(len(samples), 2, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        loss: Tensor = model(batch).square().mean()
        return loss


def run(folder: Path, log_to: str, *, once: Callable[[], bool] = lambda: True) -> list[str]:
    """Run two trials in any order, the second once a condition holds; return their statuses."""
    results = Results(folder / "r")
    before_build[:] = [lambda: not results.files("trials") or once()]
    sweep = Sweep(workload=Line(), axes={"workload.width": [2, 3]}, measure=QUICK)
    frame = dtsweep.run(sweep, folder / "r", in_process=True, log_to=log_to)
    return list(frame["status"])


def said(capsys: pytest.CaptureFixture[str]) -> list[str]:
    """Lines on the tracker."""
    lines = capsys.readouterr().err.splitlines()
    return [line for line in lines if "--log-to" in line or "not sent" in line]


def runs_in(uri: str) -> list[Run]:
    from mlflow import MlflowClient

    client = MlflowClient(uri)
    experiment = client.get_experiment_by_name("sweep")
    if experiment is None:
        return []
    return list(client.search_runs([experiment.experiment_id]))


@pytest.fixture
def mlruns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    return (tmp_path / "mlruns").as_uri()


@pytest.fixture
def silent_server() -> Iterator[tuple[int, threading.Event]]:
    """A server that takes connections and never answers: its port, and an event once it has one."""
    is_asked = threading.Event()
    connections = []
    with socket.create_server(("127.0.0.1", 0)) as server:

        def take() -> None:
            while True:
                try:
                    connections.append(server.accept()[0])
                except OSError:
                    return
                is_asked.set()

        taking = threading.Thread(target=take)
        taking.start()
        yield server.getsockname()[1], is_asked
        server.shutdown(socket.SHUT_RDWR)
        taking.join()
    for connection in connections:
        connection.close()


def test_a_trial_is_sent_while_the_next_one_runs(
    tmp_path: Path, mlruns: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_first_sent() -> bool:
        return [run.info.status for run in runs_in(mlruns)] == ["FINISHED"]

    assert run(tmp_path, f"mlflow:{mlruns}", once=is_first_sent) == ["ok", "ok"]
    assert said(capsys) == []
    assert sorted(run.info.run_name for run in runs_in(mlruns)) == ["width=2", "width=3"]
    export(tmp_path / "r", "--to", "mlflow", "--out", mlruns)
    assert "sent 0 trials" in capsys.readouterr().err


@pytest.mark.parametrize("tracker", ["mlflow:http://127.0.0.1:{port}", "tensorboard:{file}"])
def test_a_tracker_that_is_down_costs_no_trial(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], tracker: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    file = tmp_path / "file"
    file.touch()
    assert run(tmp_path, tracker.format(port=port, file=file)) == ["ok", "ok"]
    problem, unsent = said(capsys)
    assert re.match("--log-to: .* (can't be used|fails): .*; this changes no trial", problem)
    kind, _, place = tracker.format(port=port, file=file).partition(":")
    assert unsent == (
        f"2 trials of 2 not sent to {kind}; send them: dtsweep export {tmp_path / 'r'} --to {kind} "
        f"--out {place}"
    )


def test_a_tracker_that_hangs_costs_no_trial(
    tmp_path: Path,
    silent_server: tuple[int, threading.Event],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr("dtsweep.driver.tracker_feed.END_S", 1.0)
    port, is_asked = silent_server
    place = f"mlflow:http://127.0.0.1:{port}"
    assert run(tmp_path, place, once=is_asked.is_set) == ["ok", "ok"]
    problem, unsent = said(capsys)
    assert problem == f"--log-to: {place} does not answer; this changes no trial"
    assert unsent.startswith("2 trials of 2 not sent to mlflow; send them: dtsweep export ")


def test_a_sender_that_is_killed_costs_no_trial(
    tmp_path: Path, mlruns: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def is_killed() -> bool:
        for child in psutil.Process().children():
            if any("dtsweep.cli.log_to" in word for word in child.cmdline()):
                os.kill(child.pid, signal.SIGKILL)
                return True
        return False

    assert run(tmp_path, f"mlflow:{mlruns}", once=is_killed) == ["ok", "ok"]
    problem, unsent = said(capsys)
    assert problem.startswith("--log-to: the process that sends to mlflow:file:")
    assert "ended with code -9" in problem
    assert "not sent to mlflow" in unsent


def test_a_second_ctrl_c_still_says_what_may_be_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lines: list[str] = []
    feed = TrackerFeed(Destination(tracker="tensorboard", out="runs"), str(tmp_path), lines.append)
    feed.start([])
    wait = subprocess.Popen.wait

    def wait_until_interrupted(process: subprocess.Popen[str], timeout: float | None = None) -> int:
        if timeout is None:
            return wait(process)
        raise KeyboardInterrupt

    monkeypatch.setattr(subprocess.Popen, "wait", wait_until_interrupted)
    with pytest.raises(KeyboardInterrupt):
        feed.end(RunTally(statuses=Counter(ok=2), signal_number=signal.SIGINT))
    assert lines == [
        f"2 trials of 2 not sent to tensorboard; send them: dtsweep export {tmp_path} --to "
        "tensorboard --out runs"
    ]


def test_the_sender_ends_after_a_driver_that_was_killed(
    tmp_path: Path, silent_server: tuple[int, threading.Event]
) -> None:
    port, is_asked = silent_server
    task = {
        "results": str(store_sweep(tmp_path / "r")),
        "tracker": "mlflow",
        "out": f"http://127.0.0.1:{port}",
        "axes": [],
        "began_s": 0.0,
    }
    code = "from dtsweep.cli import log_to; log_to.LAST_S = 0.1; log_to.main()"
    with subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, text=True) as sender:
        assert sender.stdin is not None
        sender.stdin.write(json.dumps(task) + "\n")
        sender.stdin.flush()
        assert is_asked.wait(WAIT_S)
        sender.stdin.close()
        try:
            # A request to MLflow takes 10 s at least.
            assert sender.wait(5.0) == 1
        finally:
            sender.kill()


def test_imported_trials_are_not_sent_and_do_not_count(tmp_path: Path) -> None:
    folder = store_sweep(tmp_path / "r")
    row = {"attempt_id": "9" * 32, "trial_id": "trial9", "point_id": "point9", "repeat": 1}
    row |= {"attempt": 1, "row_number": 9, "role": "trial", "status": "ok", "sync": "ddp"}
    Results(folder).commit({**row, "workers": 2, "environment": "{}", "harness": IMPORTED})
    place = Destination(tracker="tensorboard", out=str(tmp_path / "runs"))
    counts: list[int] = []
    began = START + timedelta(minutes=2)  # that of trial2
    sender = TrialSender(str(folder), place, axes=["micro_batch"], began_s=began.timestamp())
    sender.send(is_last=True, say=counts.append)
    assert counts == [1, 2, 3]
    runs = [entry.name for entry in (tmp_path / "runs" / "study").glob("*-*")]
    assert len(runs) == 4
    assert not any("9999" in name for name in runs)


@pytest.mark.parametrize(
    ("log_to", "message"),
    [
        ("mlfow:http://localhost:5000", "did you mean 'mlflow'?"),
        ("wandb", "--log-to wandb:FOLDER"),
    ],
)
def test_a_tracker_that_is_unknown_is_refused_before_the_run(
    tmp_path: Path, log_to: str, message: str
) -> None:
    with pytest.raises(SweepError, match=re.escape(message)):
        run(tmp_path, log_to)
    assert not (tmp_path / "r").exists()
