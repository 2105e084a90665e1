"""Worlds of different sizes in the same processes, one after the other."""

from __future__ import annotations

import importlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch import distributed, nn
from torch.distributed import distributed_c10d
from torch.distributed.nn import functional

from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sync.groups import mesh_of_nodes
from dtsweep.sync.meshes import all_groups
from dtsweep.worker.world import ProcessGroups, torchrun_variables
from tests.contract.loop import Loop
from tests.contract.regression import job_of
from tests.ranks import spawn

PROCESSES = 4
WORLDS: list[tuple[int, ...]] = [(0, 1, 2, 3), (1, 3), (2,), (0, 2, 3), (0, 1, 2, 3), (0, 1)]
"""The processes of each; one after the other, again and again."""
ROUNDS = 3
"""After the first one nothing grows any more."""

TRIED = ("ddp", "hsdp", "hierarchical")
"""Modes of a trial each in every world: with and without groups of their own."""
STEPS = 2


@dataclass(frozen=True)
class Filled:
    """Has a gradient of the numbers in its batch: 1, 2, … by rank."""

    workers: int

    def build(self) -> nn.Module:
        return nn.Linear(63, 1, bias=False)

    def batch(self, samples: range, device: torch.device) -> torch.Tensor:
        return torch.full((len(samples), 63), float(samples.start % self.workers + 1))

    def loss(self, model: nn.Module, batch: torch.Tensor) -> torch.Tensor:
        answer: torch.Tensor = model(batch).sum()
        return answer


def train(mode: str, *, rank: int, workers: int) -> float:
    """A few steps on all ranks of this world; what they have learnt of each other."""
    size = (workers // 2 or 1) if workers % 2 == 0 else 1
    own: dict[str, Any] = {"node_size": size} if "node_size" in MODES[mode].reads else {}
    fields: dict[str, Any] = {"workers": workers, "micro_batch": 1, "learning_rate": 0.1, **own}
    point = Point(sync=mode, workload=Filled(workers), **fields)
    torch.manual_seed(0)
    model: Any = point.workload.build()
    start = float(model.weight[0, 62].detach())
    loop = Loop(job_of(point, rank), model)
    loop.run(STEPS)
    weight = model.weight.detach()
    if MODES[mode].shards:
        # torch remembers how it computes with shards, and of which ranks.
        norm = torch.linalg.vector_norm(weight).full_tensor()
        weight = weight.full_tensor()
        assert torch.isclose(norm, torch.linalg.vector_norm(weight))
    loop.mode.close()
    return (start - float(weight[0, 62])) / 0.1 / STEPS


def resources() -> tuple[int, int, int]:
    process = psutil.Process()
    return process.num_threads(), process.num_fds(), threading.active_count()


def start(process: int, folder: Path, *, size: int = 2, **options: Any) -> ProcessGroups:
    """Make the first world of this process."""
    torch.set_num_threads(1)
    init_method = f"file://{folder}/store"
    distributed.init_process_group(
        "gloo", init_method=init_method, rank=process, world_size=size, **options
    )
    return ProcessGroups()


def enter(groups: ProcessGroups, world: int, *, rank: int | None, workers: int) -> None:
    """Be a rank of this world, all on one node, or none."""
    local = {"local_rank": rank or 0, "local_workers": workers, "node_rank": 0}
    groups.enter(world, rank=rank, workers=workers, **local)


def meet(folder: Path, process: int, *, size: int = 2, where: str = "done") -> None:
    """Wait for the other processes: at the end the one that serves the store has to."""
    (folder / f"{process}.{where}").touch()
    while len(list(folder.glob(f"*.{where}"))) < size:
        time.sleep(0.001)


def change_again_and_again(process: int, folder: Path) -> None:
    groups, learnt, seen = start(process, folder, size=PROCESSES), [], []
    groups.wait_up_to(60)
    for number in range(ROUNDS * len(WORLDS)):
        members = WORLDS[number % len(WORLDS)]
        is_in = process in members
        rank = members.index(process) if is_in else None
        enter(groups, number, rank=rank, workers=len(members))
        if rank is not None:
            found = [train(mode, rank=rank, workers=len(members)) for mode in TRIED]
            named = (os.environ.get("WORLD_SIZE"), os.environ.get("RANK"))
            learnt.append((number, found, *named, len(all_groups())))
        if number % len(WORLDS) == len(WORLDS) - 1:
            seen.append(resources())
    torch.save((learnt, seen), folder / f"{process}.pt")
    meet(folder, process, size=PROCESSES)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> list[Any]:
    folder = tmp_path_factory.mktemp("worlds")
    spawn(change_again_and_again, args=(folder,), nprocs=PROCESSES)
    places = [folder / f"{process}.pt" for process in range(PROCESSES)]
    return [torch.load(place, weights_only=False) for place in places]


def test_each_world_exchanges_between_its_own_ranks(told: list[Any]) -> None:
    for process, (learnt, _) in enumerate(told):
        mine = [number for number, members in enumerate(WORLDS * ROUNDS) if process in members]
        assert [number for number, *_ in learnt] == mine
        for number, gradients, size, rank, _ in learnt:
            members = WORLDS[number % len(WORLDS)]
            # The mean of what its ranks were given: 1, 2, …
            assert gradients == pytest.approx([(len(members) + 1) / 2] * len(TRIED), rel=1e-5)
            if number:
                assert (size, rank) == (str(len(members)), str(members.index(process)))


def test_a_world_has_the_groups_of_its_own_meshes_alone(told: list[Any]) -> None:
    for _, (learnt, _) in enumerate(told):
        counts = {WORLDS[number % len(WORLDS)]: set[int]() for number, *_ in learnt}
        for number, *_, count in learnt:
            counts[WORLDS[number % len(WORLDS)]].add(count)
        # The world, and the two that this process is in of the mesh of nodes.
        assert all(count <= {1, 2, 3} and len(count) == 1 for count in counts.values()), counts


def test_no_thread_or_descriptor_is_left_of_a_world(told: list[Any]) -> None:
    for _, seen in told:
        assert max(seen[1:]) <= seen[1], seen
        assert all(later <= seen[1] for later in seen[1:]), seen


def make_groups_late(process: int, folder: Path) -> None:
    """Groups of a part of the ranks wait and count as their world does, and end with it."""
    groups = start(process, folder)
    groups.wait_up_to(60)
    job = job_of(Point(sync="hsdp", workers=2, node_size=1, workload=Filled(2)), process)
    # That of all ranks would be the world itself.
    inside = mesh_of_nodes(job).get_group("in_node")
    assert inside.size() == 1
    made_with = timeout_of(inside)
    groups.wait_up_to(90)
    before = groups.position
    distributed.all_reduce(torch.ones(1), group=inside)
    assert (made_with, timeout_of(inside), groups.position) == (60, 90, before + 1)
    enter(groups, 1, rank=process, workers=2)
    assert (len(all_groups()), groups.position) == (1, 0)
    meet(folder, process)


def timeout_of(group: Any) -> float:
    seconds: float = group._get_backend(torch.device("cpu")).options._timeout.total_seconds()
    return seconds


SHORT_S, LATE_S = 3.0, 4.0
"""What a world was made with, and by how much one of its ranks is late."""


def wait_for_a_late_rank(process: int, folder: Path) -> None:
    """Ranks wait as long as a task says, not as their world was made with."""
    timeout = timedelta(seconds=SHORT_S)
    meet(folder, process, where="begins")
    groups = start(process, folder, timeout=timeout)
    groups.wait_up_to(60)
    for world in range(2):
        enter(groups, world, rank=process, workers=2)
        whole = distributed_c10d._get_default_store()
        store = distributed_c10d.PrefixStore(f"looks {world}", whole)
        if process == 1:
            time.sleep(LATE_S)
        both = torch.ones(1)
        distributed.all_reduce(both)
        distributed.barrier()
        if process == 1:
            time.sleep(LATE_S)
            store.set("look", "seen")
        assert (float(both), store.get("look")) == (2.0, b"seen")
    meet(folder, process)


def exchange_with_gradients(process: int, folder: Path) -> None:
    """Differentiable collectives are those of the world."""
    groups = start(process, folder)
    # In a session it is imported when there is a group, which its functions then take for their
    # default.
    importlib.reload(functional)
    from torch.distributed.fsdp.sharded_grad_scaler import ShardedGradScaler

    first = distributed_c10d._get_default_group()
    assert functional.all_reduce.__defaults__[-1] is first
    assert ShardedGradScaler.__init__.__defaults__[-1] is first
    groups.wait_up_to(20)
    enter(groups, 1, rank=0 if process == 0 else None, workers=1)
    if process == 0:
        assert float(functional.all_reduce(torch.full((1,), 3.0))) == 3.0
        assert ShardedGradScaler.__init__.__defaults__[-1] is None
    meet(folder, process)


@pytest.mark.parametrize(
    ("claim", "processes"),
    [
        (make_groups_late, 2),
        (exchange_with_gradients, 2),
        pytest.param(wait_for_a_late_rank, 2, marks=pytest.mark.slow),
    ],
)
def test_a_world_of_a_session(
    claim: Callable[[int, Path], None], processes: int, tmp_path: Path
) -> None:
    spawn(claim, args=(tmp_path,), nprocs=processes)


# What a script reads in its environment, as `torchrun` sets it

SHOW = """
import json, os
names = {*os.environ} - {"TORCHELASTIC_ERROR_FILE", "TORCHELASTIC_SIGNALS_TO_HANDLE"}
print(json.dumps(sorted(n for n in names if n.startswith(("TORCH", "ROLE", "GROUP", "MASTER")))))
"""


@pytest.mark.slow
def test_torchrun_sets_no_variable_that_is_missing(tmp_path: Path) -> None:
    (tmp_path / "show.py").write_text(SHOW)
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", "show.py"]
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, check=True, timeout=300
    )
    of_torchrun = json.loads(done.stdout.splitlines()[-1])
    assert "MASTER_PORT" in of_torchrun
    assert not {*of_torchrun} - {*os.environ} - {*torchrun_variables(None, rank=0, workers=1)}


def test_local_ranks_are_those_of_the_process_and_no_outer_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    outer = {"RANK": 1, "WORLD_SIZE": 4, "LOCAL_RANK": 1, "NODE_RANK": 0, "LOCAL_WORLD_SIZE": 2}
    for name, value in outer.items():
        monkeypatch.setenv(name, str(value))
    monkeypatch.delenv("GROUP_RANK", raising=False)
    # The same rank of the same world.
    store = distributed.HashStore()  # type: ignore[attr-defined]  # missing in torch's stub
    store.set("place", '["10.0.0.1", 29500, 2]')
    seen = torchrun_variables(store, rank=1, workers=4)
    assert (seen["LOCAL_RANK"], seen["LOCAL_WORLD_SIZE"]) == ("1", "2")
    assert (seen["MASTER_ADDR"], seen["MASTER_PORT"]) == ("10.0.0.1", "29500")
    assert (seen["GROUP_RANK"], seen["GROUP_WORLD_SIZE"]) == ("0", "2")
    # Another one.
    assert torchrun_variables(None, rank=0, workers=1)["LOCAL_WORLD_SIZE"] == "1"
