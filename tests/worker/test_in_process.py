"""A world of one rank in this very process: what it runs, and what it gives back."""

from __future__ import annotations

import bdb
import gc
import os
import subprocess
import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import torch
from torch import distributed, nn

import dtsweep
from dtsweep import Measure, Point, Resources, Sweep, SweepError, workloads
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.attempt import run_attempt
from dtsweep.worker.in_process import only_rank
from dtsweep.worker.rank import cpus_here, gets_gpu
from dtsweep.worker.timing import NO_LIMIT_S, without_deadline
from tests.stand_in_nvml import StandInNvml, install_nvml

ROOT = Path(__file__).parents[2]
OTHER_THREADS = 2 if torch.get_num_threads() == 1 else 1

WORKLOAD = workloads.Gpt(layers=1, width=16, sequence=8)
SWEEP = Sweep(
    workload=WORKLOAD,
    axes={"workers": [1]},
    measure=Measure(half_width=None, warmup_steps=1, min_steps=4, min_seconds=0, max_seconds=30),
    resources=Resources(
        gpus_per_worker=0, cpus_per_worker=OTHER_THREADS, environment={"DTSWEEP_TEST": "its own"}
    ),
)

IN_PROCESS = """
import sys, weakref
from torch import distributed
from dtsweep.worker.in_process import only_rank
from tests.worker.test_in_process import SWEEP, run_attempt, task_at

for _ in range(2):
    with only_rank(SWEEP) as context:
        group = weakref.ref(distributed.group.WORLD)
        print(*(run_attempt(context, task_at(sync=sync)).status for sync in ("ddp", "local_sgd")))
    print("ray" in sys.modules, distributed.is_initialized(), group())
"""


def task_at(**fields: str) -> Task:
    return task_of(SWEEP, Point(workload=WORKLOAD, micro_batch=2, **fields))  # type: ignore[arg-type]  # no numbers


@dataclass(frozen=True)
class Quits:
    """Its user leaves the debugger in `build`."""

    def build(self) -> nn.Module:
        raise bdb.BdbQuit

    def batch(self, samples: range, device: torch.device) -> None:
        """Never called."""

    def loss(self, model: nn.Module, batch: None) -> None:
        """Never called."""


@pytest.fixture
def _no_debugger() -> Iterator[None]:
    """Without the trace function that a debugger, or a run for coverage, has set."""
    before = sys.gettrace()
    sys.settrace(None)
    yield
    sys.settrace(before)


def test_variables_that_libraries_have_read_already_are_refused_by_name() -> None:
    variables = {"OMP_DYNAMIC": "true", "NCCL_ALGO": "Ring", "MY_DATA": "/data"}
    sweep = replace(SWEEP, resources=replace(SWEEP.resources, environment=variables))
    with pytest.raises(SweepError, match=r"^OMP_DYNAMIC of .* start it as OMP_DYNAMIC=true"):
        only_rank(sweep).__enter__()
    assert "MY_DATA" not in os.environ


def test_one_rank_is_measured_without_ray_as_often_as_one_likes() -> None:
    done = subprocess.run(
        [sys.executable, "-c", IN_PROCESS],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["ok ok", "False False None"] * 2


def test_the_rank_has_the_sweeps_threads_and_variables_and_says_where_it_runs() -> None:
    with only_rank(SWEEP) as context:
        assert (context.rank, context.device.type, context.workload) == (0, "cpu", WORKLOAD)
        assert distributed.get_world_size() == 1
        assert os.environ["DTSWEEP_TEST"] == "its own"
        assert context.facts.threads == torch.get_num_threads() == OTHER_THREADS
        assert (context.facts.pid, context.facts.node_id, context.facts.log) == (
            os.getpid(),
            None,
            None,
        )
        result = run_attempt(context, task_at())
    assert (result.status, result.reason) == ("ok", None)
    assert result.measured is not None
    assert result.measured.window_steps == 4


def test_threads_and_environment_are_given_back_even_after_an_error(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("DTSWEEP_TEST", "as it was")
    threads, environment = torch.get_num_threads(), dict(os.environ)
    with pytest.raises(KeyboardInterrupt), only_rank(SWEEP):
        os.environ["DTSWEEP_TEST_OTHER"] = "set by a workload"
        raise KeyboardInterrupt
    assert dict(os.environ) == environment
    assert torch.get_num_threads() == threads
    assert not distributed.is_initialized()


def test_a_start_that_fails_half_way_leaves_nothing_behind() -> None:
    environment = dict(os.environ)
    variables = {"DTSWEEP_TEST": "its own", "NCCL_ALGO": "Ring"}
    resources = Resources(environment=variables, gpus_per_worker=1)
    with (
        pytest.raises(SweepError, match="GPU"),
        only_rank(replace(SWEEP, resources=resources)),
    ):
        pass
    assert dict(os.environ) == environment
    assert not distributed.is_initialized()


def test_what_stood_in_memory_before_is_collected_when_it_is_garbage() -> None:
    model = nn.Linear(1, 1)
    model.itself = [model]  # type: ignore[assignment]  # a cycle that only the collector ends
    seen = weakref.ref(model)
    with only_rank(SWEEP):
        pass
    del model
    gc.collect()
    assert seen() is None


def test_a_process_that_is_in_a_group_is_refused_and_stays_in_it() -> None:
    distributed.init_process_group("gloo", store=distributed.HashStore(), rank=0, world_size=1)
    try:
        with pytest.raises(
            SweepError, match="in a process group already; call destroy_process_group"
        ):
            only_rank(SWEEP).__enter__()
        assert distributed.is_initialized()
        assert "DTSWEEP_TEST" not in os.environ
    finally:
        distributed.destroy_process_group()


def test_the_worker_has_the_gpus_that_the_sweep_says_else_one_where_there_is_one() -> None:
    assert not gets_gpu(Resources(gpus_per_worker=0))
    assert gets_gpu(Resources()) == torch.cuda.is_available()


def test_a_gpu_that_torch_can_not_use_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_nvml(StandInNvml(), monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    sweep = replace(SWEEP, resources=Resources())
    with pytest.raises(SweepError, match=r"can use none of the 1 GPU here, whose driver is 570\.1"):
        dtsweep.run(sweep, str(tmp_path / "results"), in_process=True)


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a GPU")
def test_a_gpu_that_is_not_there_is_no_cpu() -> None:
    with pytest.raises(
        SweepError, match="gpus_per_worker=1, but torch sees no GPU here; use gpus_per_worker=0"
    ):
        gets_gpu(Resources(gpus_per_worker=1))


@pytest.mark.usefixtures("_no_debugger")
def test_without_a_debugger_a_task_keeps_its_limit_of_time() -> None:
    measure = Measure()
    assert without_deadline(measure) is measure


@pytest.mark.usefixtures("_no_debugger")
def test_while_a_debugger_looks_time_ends_no_window_and_all_else_stays() -> None:
    measure = Measure()
    sys.settrace(lambda *_: None)
    assert without_deadline(measure) == replace(measure, max_seconds=NO_LIMIT_S)


@pytest.mark.skipif(sys.version_info < (3, 12), reason="sys.monitoring comes with Python 3.12")
@pytest.mark.usefixtures("_no_debugger")
def test_a_debugger_that_sets_no_trace_function_is_seen_as_well() -> None:
    measure = Measure()
    sys.monitoring.use_tool_id(sys.monitoring.DEBUGGER_ID, "a test")
    try:
        assert without_deadline(measure).max_seconds == NO_LIMIT_S
    finally:
        sys.monitoring.free_tool_id(sys.monitoring.DEBUGGER_ID)
    assert without_deadline(measure) is measure


@pytest.mark.parametrize("is_own_process", [False, True])
def test_leaving_the_debugger_ends_the_run_in_this_process_and_is_a_failure_elsewhere(
    is_own_process: bool,
) -> None:
    task = task_at()
    with only_rank(SWEEP) as context:
        broken = replace(context, workload=Quits(), is_own_process=is_own_process)
        if is_own_process:
            with pytest.raises(bdb.BdbQuit):
                run_attempt(broken, replace(task, workload={}))
        else:
            result = run_attempt(broken, replace(task, workload={}))
            line = Quits.build.__code__.co_firstlineno + 1
            reason = f"BdbQuit (test_in_process.py:{line})"
            assert (result.status, result.reason) == ("user_error", reason)


@pytest.mark.parametrize(
    ("gpus", "resources", "cpus"),
    [
        (0, {}, 1),
        (2, {}, 4),
        (2, {"gpus_per_worker": 0}, 1),
        (16, {}, 1),
        (2, {"cpus_per_worker": 3}, 3),
    ],
)
def test_a_worker_with_a_gpu_has_its_share_of_the_machines_cpus(
    gpus: int, resources: dict[str, int], cpus: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(9)))
    monkeypatch.setattr("torch.cuda.is_available", lambda: gpus > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    assert cpus_here(Resources(**resources)) == cpus
