"""Trials reach a tracker while a sweep runs, and a tracker that fails takes nothing from it."""

from __future__ import annotations

import os
import re
import signal
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest
import torch
from torch import Tensor, nn

import dtsweep
from dtsweep import Measure, Sweep, SweepError
from dtsweep.results.store import Results
from tests.trackers.stored import export

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
    """What was said of the tracker."""
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
