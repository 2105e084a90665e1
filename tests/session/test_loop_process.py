"""Training loops in processes of their own: messages, stacks, and how they end."""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import pickle
import signal
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path

import psutil
import pytest
import torch
from ray import cloudpickle

from dtsweep import Measure, Point, Sweep, workloads
from dtsweep.metrics.rank_result import RankResult
from dtsweep.session.attempt import run_attempt
from dtsweep.session.hang import attempt_stack
from dtsweep.session.last_words import place_of
from dtsweep.session.loop_process import LoopProcesses
from dtsweep.session.nodes import write_stacks
from dtsweep.session.session_settings import Code
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.task import task_of
from dtsweep.worker.rank import become_rank
from tests.ranks import PRELOADED

pytestmark = pytest.mark.slow

MEASURE = Measure(half_width=None, warmup_steps=1, min_steps=5, min_seconds=0, max_seconds=30)

TRAIN = """
import os, signal, sys, time
from pathlib import Path
import torch

case = sys.argv[1]
print("case", case, os.getppid())
os.environ["SOME_TOKEN"] = "hushed" + "hushed"
if case == "killed":
    os.kill(os.getpid(), signal.SIGSEGV)
if case == "exits":
    os._exit(7)
while case == "waits":
    Path(FOLDER, "waits").touch()
    time.sleep(0.1)
model = torch.nn.Linear(2, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
while True:
    model(torch.ones(8, 2)).sum().backward()
    optimizer.step()
"""


def be_rank(folder: Path, cases: list[str]) -> None:
    """Run trials; leave each result, the secrets and the output in the folder."""
    log = os.open(folder / "log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for descriptor in (1, 2):
        os.dup2(log, descriptor)
    faulthandler.enable(file=log)
    faulthandler.register(signal.SIGUSR1, file=log)
    torch.set_num_threads(1)
    os.environ["HF_TOKEN"] = "secret of the rank"
    workload = workloads.Script(str(folder / "train.py"), args={"0": ""})
    pickled = cloudpickle.dumps(workload)
    if cases == ["not there"]:
        pickled = b"cnowhere\nWorkload\n."
    code = Code(pickled=pickled, folder=None, start_folder=str(folder))
    runner = LoopProcesses(code, [str(folder), *sys.path])
    runner.wait_until_ready()
    context = become_rank(0, torch.device("cpu"), workload=workload, own_variables=())
    facts = replace(context.facts, machine={"compute_capability": "8.0"})
    context = replace(context, facts=facts, loop_runner=runner)
    for case in cases:
        sweep = Sweep(workload=workload, axes={"workers": [1], "args.0": cases}, measure=MEASURE)
        given = replace(sweep.workload, args={"0": case})
        task = task_of(sweep, Point(workload=given, sync=AS_WRITTEN, precision="tf32"))
        warm: list[float] = []
        result = run_attempt(context, task, on_warm=warm.append)
        sent = (result, len(warm), dict(context.secrets))
        (folder / f"{case}.result").write_bytes(pickle.dumps(sent))


@contextmanager
def started(folder: Path, *cases: str) -> Iterator[BaseProcess]:
    """A rank that runs trials in this folder, while this context lasts."""
    (folder / "train.py").write_text(TRAIN.replace("FOLDER", repr(str(folder))))
    (folder / "random.py").write_text("raise ImportError('not the one of Python')")
    multiprocessing.set_forkserver_preload(PRELOADED)
    rank = multiprocessing.get_context("forkserver").Process(
        target=be_rank, args=(folder, list(cases))
    )
    rank.start()
    try:
        yield rank
    finally:
        rank.kill()
        rank.join()


def wait_until(is_true: Callable[[], bool]) -> None:
    until = time.monotonic() + 60
    while not is_true():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_each_trial_has_a_process_and_an_exit_code_is_a_result(tmp_path: Path) -> None:
    with started(tmp_path, "exits", "first", "second") as rank:
        rank.join(60)
        assert rank.exitcode == 0, (tmp_path / "log").read_text()
    sent = {path.stem: pickle.loads(path.read_bytes()) for path in tmp_path.glob("*.result")}
    results: dict[str, RankResult] = {case: result for case, (result, *_) in sent.items()}
    assert [results[case].status for case in ("exits", "first", "second")] == [
        "user_error",
        "ok",
        "ok",
    ]
    assert "exit code 7" in str(results["exits"].reason)
    assert [results[case].left_state for case in results] == [()] * 3
    assert [sent[case][1] for case in ("exits", "first", "second")] == [0, 1, 1]
    assert [*sent["exits"][2].items()] == [("HF_TOKEN", "secret of the rank")]
    assert sent["first"][2]["SOME_TOKEN"] == "hushed" * 2
    lines = (tmp_path / "log").read_text().splitlines()
    servers = {line.split()[2] for line in lines if line.startswith("case ")}
    assert len(servers) == 1


def test_the_trial_of_a_workload_that_can_not_be_imported_has_a_reason(tmp_path: Path) -> None:
    with started(tmp_path, "not there") as rank:
        rank.join(60)
    result, *_ = pickle.loads((tmp_path / "not there.result").read_bytes())
    assert (result.status, result.reason) == (
        "user_error",
        "ModuleNotFoundError: No module named 'nowhere'",
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_rank_ends_with_its_server(tmp_path: Path, number: int) -> None:
    with started(tmp_path, "waits") as rank:
        wait_until((tmp_path / "waits").exists)
        assert rank.pid is not None
        (server,) = psutil.Process(rank.pid).children()
        server.send_signal(number)
        rank.join(60)
        assert rank.exitcode == -signal.SIGKILL


def test_a_server_that_can_not_import_torch_says_so(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise ImportError")
    code = Code(pickled=b"", folder=None)
    with pytest.raises(ChildProcessError, match="ended with exit code 1"):
        LoopProcesses(code, [str(tmp_path), *sys.path]).wait_until_ready()


def test_a_rank_ends_by_the_signal_that_has_ended_its_trial(tmp_path: Path) -> None:
    with started(tmp_path, "killed") as rank:
        rank.join(60)
        assert rank.exitcode == -11
    log = (tmp_path / "log").read_text()
    assert log.count("Fatal Python error: Segmentation fault") == 1
    assert place_of(attempt_stack(log)) == "train.py:10"


def test_a_trial_shows_its_stack_and_ends_with_its_rank(tmp_path: Path) -> None:
    with started(tmp_path, "waits") as rank:
        wait_until((tmp_path / "waits").exists)
        assert rank.pid is not None
        children = psutil.Process(rank.pid).children(recursive=True)
        assert len(children) == 2
        assert write_stacks(rank.pid) in ("S", "R")
        stack = attempt_stack((tmp_path / "log").read_text())
        assert place_of(stack) in ("train.py:14", "train.py:15")
        rank.kill()
        psutil.wait_procs(children, timeout=60)
        rank.join()
        assert write_stacks(rank.pid) == ""
    assert not any(child.is_running() for child in children)
