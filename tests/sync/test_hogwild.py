"""Two processes that share parameters: by hand, with updates in parallel, and with one killed.

One pair of processes does all of it. Nothing of them is inherited from a common parent.
"""

from __future__ import annotations

import multiprocessing
import os
import resource
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn

from dtsweep.measure.clock import CpuClock
from dtsweep.sweep.constraints import Harness, impossible
from dtsweep.sweep.point import Point
from dtsweep.sync.hogwild import Hogwild
from dtsweep.sync.passes import batches_of_steps
from dtsweep.sync.shared_memory import allocate_shared, map_shared
from tests.contract.loop import Loop
from tests.contract.regression import (
    LEARNING_RATE,
    MOMENTUM,
    STEPS,
    Regression,
    job_of,
    model_of,
    point_of,
    weights,
)
from tests.ranks import PRELOADED, free_ports, join, leave
from tests.sync.test_local_steps import Weighted
from tests.sync.test_parameter_server import Moving

LATE_STEPS = 3
"""Steps of one worker between the pass and the update of the other."""
SHARED = Path("/dev/shm")


def prepared(rank: int) -> Loop:
    return Loop(job_of(point_of("hogwild", workers=2), rank), model_of(rank))


def by_turns(rank: int) -> dict[str, Any]:
    """Rank 0 has its gradients, rank 1 makes some steps, rank 0 updates; twice."""
    loop = prepared(rank)

    def let_the_other_go() -> None:
        for _ in range(2):
            distributed.barrier()

    for _ in range(2):
        if rank == 0:
            loop.mode.before_update = let_the_other_go
            loop.run(1)
        else:
            distributed.barrier()
            loop.run(LATE_STEPS)
            distributed.barrier()
    distributed.barrier()
    loop.mode.drain()
    return {"weights": weights(loop.model), "staleness": loop.mode.counters()["staleness"]}


def refused(rank: int) -> str:
    """Message where rank 1 can open no file, so that it can't map the memory."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    if rank == 1:
        resource.setrlimit(resource.RLIMIT_NOFILE, (3, limits[1]))
    try:
        prepared(rank)
    except ValueError as error:
        return str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    return ""


def killed(rank: int) -> tuple[str, list[str]]:
    """Train until rank 1 is killed: the error of the other, and what it still has mapped."""
    loop = prepared(rank)
    loop.run(STEPS)
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    error = ""
    try:
        distributed.barrier()
    except RuntimeError as raised:
        error = str(raised)
    loop.mode.close()
    del loop
    mapped = Path("/proc/self/maps").read_text().splitlines()
    return error, [line for line in mapped if "dtsweep-parameters" in line]


def work(rank: int, folder: Path, ports: tuple[int, int]) -> None:
    join(rank, workers=2, port=ports[0])
    outcome = {"by_turns": by_turns(rank), "refused": refused(rank)}
    leave()
    # A world of its own, as a killed rank's ends.
    join(rank, workers=2, port=ports[1])
    torch.save({**outcome, "killed": killed(rank) if rank == 0 else None}, folder / f"{rank}.pt")
    if rank == 1:
        killed(rank)


Outcomes = list[dict[str, Any]]


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    folder, before = tmp_path_factory.mktemp("hogwild"), set(SHARED.iterdir())
    multiprocessing.set_forkserver_preload(PRELOADED)
    context = multiprocessing.get_context("forkserver")
    ports = tuple(free_ports(2))
    processes = [context.Process(target=work, args=(rank, folder, ports)) for rank in range(2)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, -signal.SIGKILL]
    left = [path.name for path in set(SHARED.iterdir()) - before if "dtsweep" in path.name]
    assert left == []
    return [torch.load(folder / f"{rank}.pt", weights_only=False) for rank in range(2)]


def test_updates_in_a_known_order_are_sgd_with_gradients_of_earlier_weights(
    outcomes: Outcomes,
) -> None:
    point, model = point_of("hogwild", workers=2), model_of(0)
    # The state of an optimizer is a worker's own.
    optimizers = [
        torch.optim.SGD(model.parameters(), lr=LEARNING_RATE, momentum=MOMENTUM) for _ in range(2)
    ]
    batches = [batches_of_steps(job_of(point, rank)) for rank in range(2)]

    def gradients(rank: int) -> list[Tensor]:
        loss = point.workload.loss(model, next(next(batches[rank])))
        return [g / 2 for g in torch.autograd.grad(loss, list(model.parameters()))]

    def update(rank: int, found: list[Tensor]) -> None:
        for parameter, gradient in zip(model.parameters(), found, strict=True):
            parameter.grad = gradient
        optimizers[rank].step()

    for _ in range(2):
        late = gradients(0)
        for _ in range(LATE_STEPS):
            update(1, gradients(1))
        update(0, late)
    way = torch.from_numpy(weights(model) - weights(model_of(0))).norm()
    for of_rank in outcomes:
        apart = torch.from_numpy(of_rank["by_turns"]["weights"] - weights(model)).norm()
        assert apart <= 1e-12 * way


def test_staleness_counts_the_updates_of_others_between_pass_and_update(outcomes: Outcomes) -> None:
    assert outcomes[0]["by_turns"]["staleness"] == [LATE_STEPS] * 2
    # Rank 0's update comes before the first pass of rank 1's next turn.
    assert outcomes[1]["by_turns"]["staleness"] == [0] * (2 * LATE_STEPS)


def test_a_worker_that_cannot_map_the_memory_is_refused_on_all_ranks(outcomes: Outcomes) -> None:
    for of_rank in outcomes:
        assert of_rank["refused"].startswith("hogwild needs all workers on one Linux host")
        assert "placement=strict_pack" in of_rank["refused"]
        assert "\n" not in of_rank["refused"]


def test_a_killed_worker_leaves_nothing_behind(outcomes: Outcomes) -> None:
    error, mapped = outcomes[0]["killed"]
    assert error
    assert mapped == []


@pytest.mark.usefixtures("world_of_one")
@pytest.mark.parametrize(("workload", "late"), [(Regression(), 1 + 3), (Weighted(), 3)])
def test_updates_before_a_step_first_reads_the_parameters_are_not_late(
    workload: Regression, late: int
) -> None:
    point = replace(point_of("hogwild", workers=2), accumulation=2, workload=workload)
    loop = Loop(job_of(point, 0), model_of(0))
    sync: Any = loop.mode

    def other_updates(count: int) -> None:
        sync._updates[1] += count

    def batches() -> Iterator[Tensor]:
        """Two batches, each loaded while the other worker makes an update."""
        for begin in (0, 2):
            other_updates(1)
            yield workload.batch(range(begin, begin + 2), loop.job.device)

    # Weights need both batches before the first pass, else the second comes behind it.
    sync.before_update = lambda: other_updates(3)
    for _ in range(2):
        sync.step(batches(), loop.clock)
    assert sync.counters() == {"staleness": [late] * 2}


@pytest.mark.usefixtures("world_of_one")
def test_an_optimizer_that_replaces_parameters_is_refused() -> None:
    sync = Hogwild(job_of(point_of("hogwild", workers=1), 0))
    sync.prepare(model_of(0), Moving)
    sync.drain()
    clock = CpuClock()
    clock.start()
    sync.step(next(batches_of_steps(sync._job)), clock)
    with pytest.raises(ValueError, match="Moving replaces the memory of parameters"):
        sync.drain()


@pytest.mark.usefixtures("world_of_one")
def test_shared_parameters_keep_type_and_strides() -> None:
    kernels = nn.Conv2d(3, 4, 3)
    kernels.weight.data = kernels.weight.data.contiguous(memory_format=torch.channels_last)
    model = nn.Sequential(kernels, nn.Linear(3, 5).to(torch.bfloat16))
    model.register_parameter("complex", nn.Parameter(torch.ones(3, dtype=torch.complex64)))
    model.register_parameter("empty", nn.Parameter(torch.empty(0, 3)))
    before = {name: (p.clone(), p.stride()) for name, p in model.named_parameters()}
    loop = Loop(job_of(point_of("hogwild", workers=1), 0), model)
    for name, parameter in model.named_parameters():
        values, stride = before[name]
        assert torch.equal(parameter, values)
        assert (parameter.dtype, parameter.stride()) == (values.dtype, stride)
    loop.mode.close()


def test_memory_of_another_process_is_recognized_by_its_mark() -> None:
    memory = allocate_shared(64)
    path, _, _ = memory.place.partition(":")
    assert map_shared(f"{path}:{'0' * 64}") is None
    assert map_shared(f"/proc/0/fd/0:{'0' * 64}") is None
    assert map_shared(memory.place) is not None


def test_workers_of_one_node_are_possible_and_the_only_worker_anywhere() -> None:
    point = Point(sync="hogwild", workers=2)
    assert impossible(replace(point, placement="strict_pack"), Harness()) is None
    assert impossible(point, Harness(name="torchrun")) is None
    assert impossible(replace(point, workers=1), Harness()) is None
    assert "needs placement=strict_pack" in str(impossible(point, Harness()))
    packed = replace(point, placement="strict_pack")
    assert "use CPUs alone" in str(impossible(packed, Harness(has_gpus=True)))
