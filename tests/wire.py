"""Bytes that modes send between processes of this machine, counted by dtsweep and by the kernel.

A network namespace has a loopback of its own, on which nothing else is sent: `in_a_namespace`
starts this file in one.
"""

from __future__ import annotations

import fcntl
import functools
import json
import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Shard, distribute_tensor

from dtsweep.measure.clock import CpuClock
from dtsweep.measure.traffic import Counting
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job, SyncMode, load_mode
from dtsweep.sync.passes import batches_of_steps, loss_in_precision, make_optimizer
from tests.pages import ROOT
from tests.ranks import spawn

CPU = torch.device("cpu")
WORLDS = (2, 4)
WIDTH, SIDE, BLOCKS = 512, 64, 4
PERIOD = STEPS = 2
"""Steps that are counted: of modes with a sync period one of it."""

TRIES = 12
"""Largest number of measurements, for the smallest count of the kernel."""

NEAR_KERNEL = 0.05
"""Largest difference of dtsweep's count to the kernel's, as a share: headers, acknowledgements."""

RATIO, RANK = 0.05, 16
LARGER: Mapping[str, Mapping[str, Any]] = {
    "randomk": {"compression_ratio": RATIO},
    "powersgd": {"compression_rank": RANK},
}
"""So that what is sent is large beside the headers, which the kernel counts too."""

VARIANTS: Mapping[str, Mapping[str, Any]] = {
    "ddp": {},
    "ddp overlap=False": {"overlap": False},
    "ddp bucket_bytes=1000000": {"bucket_bytes": 1_000_000},
    "zero1": {},
    "fsdp_grad": {},
    "fsdp": {},
    "hsdp node_size=2": {"node_size": 2},
    "hierarchical node_size=2": {"node_size": 2},
    "ring": {},
    "tree": {},
    f"local_sgd sync_period={PERIOD}": {"sync_period": PERIOD},
    "gossip": {},
    "gossip topology=exponential": {"topology": "exponential"},
    f"federated sync_period={PERIOD}": {"sync_period": PERIOD, "participation": 0.5},
    f"local_sgd sync_period={PERIOD} after synchronous_steps": {
        **{"sync_period": PERIOD, "synchronous_steps": PERIOD, "local_momentum": "average"}
    },
    f"diloco sync_period={PERIOD}": {"sync_period": PERIOD},
    **{
        f"ddp {name}": {"overlap": False, "compression": name, **LARGER.get(name, {})}
        for name in COMPRESSIONS
    },
    **{f"ring {name}": {"compression": name} for name in ("bf16", "int8", "topk")},
    "zero1 bf16": {"compression": "bf16"},
    "tree bf16": {"compression": "bf16"},
    "hierarchical int8": {"node_size": 2, "compression": "int8"},
    "local_sgd int8": {"sync_period": PERIOD, "compression": "int8"},
    "diloco int8": {"sync_period": PERIOD, "compression": "int8"},
}
"""Points by mode and what is set; every mode without Ray, and every compression, is in it."""

OF_FOUR = [
    name
    for name, fields in VARIANTS.items()
    if not {"compression", "bucket_bytes", "overlap"} & {*fields}
] + ["ddp bf16", "ddp int8", "ddp topk", "ring bf16", "ring int8", "ring topk", "hierarchical int8"]
"""Those that four workers count as well: every mode, and each way that payloads take.

Formulas of modes differ by the number of workers; what a payload has is known from two.
"""


def variants_of(workers: int) -> list[str]:
    """Name the variants that so many workers count."""
    return OF_FOUR if workers == 4 else [*VARIANTS]


@dataclass(frozen=True)
class Blocks:
    """A stack of equal blocks between two small layers: 4 MB, sharded without padding."""

    def build(self) -> nn.Module:
        blocks = (nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(BLOCKS))
        return nn.Sequential(nn.Linear(SIDE, WIDTH), *blocks, nn.Linear(WIDTH, SIDE))

    def batch(self, samples: range, device: torch.device) -> Tensor:
        numbers = torch.arange(samples.start, samples.stop, device=device)
        return torch.sin(numbers[:, None] * torch.arange(1, SIDE + 1, device=device))

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        answer: Tensor = model(batch)
        return answer.square().mean()


def block_bytes() -> int:
    """Of the parameters of all blocks."""
    return 4 * BLOCKS * (WIDTH * WIDTH + WIDTH)


def model_bytes() -> int:
    """Of all parameters."""
    return block_bytes() + 4 * (2 * SIDE * WIDTH + WIDTH + SIDE)


def sent_on_loopback() -> int:
    """Bytes that the kernel has sent through this network namespace's loopback, with headers."""
    (numbers,) = re.findall(r"^ *lo:(.*)$", Path("/proc/net/dev").read_text("utf-8"), re.MULTILINE)
    return int(numbers.split()[8])


def kernel_bytes(work: Callable[[], object]) -> int:
    """What the kernel sends while all ranks do some work, two barriers included."""
    distributed.barrier()
    before = sent_on_loopback()
    distributed.barrier()
    work()
    distributed.barrier()
    after = sent_on_loopback()
    distributed.barrier()
    return after - before


class Trained:
    """A mode on one rank, warm."""

    def __init__(
        self, name: str, *, workers: int, rank: int, compiled: Callable[..., Any] | None = None
    ) -> None:
        mode = name.partition(" ")[0]
        self.info, self.clock = MODES[mode], CpuClock()
        fields = {"sync": mode, "optimizer": "adam", **VARIANTS[name]}
        self.point = Point(workers=workers, micro_batch=2, workload=Blocks(), **fields)
        job = Job(point=self.point, rank=rank, device=CPU, loss=loss_in_precision(self.point, CPU))
        self.mode: SyncMode = load_mode(self.info)(job)
        self._batches: Iterator[Iterator[Any]] = batches_of_steps(job, lambda: self.mode.slot)
        plain = Blocks().build()
        model: Any = torch.compile(plain, backend=compiled) if compiled else plain
        self.mode.prepare(model, functools.partial(make_optimizer, point=self.point))
        self.clock.start()
        self.run(self.point.first_steps + PERIOD)

    def run(self, steps: int = STEPS, *, without: Sequence[str] = ()) -> None:
        for _ in range(steps):
            self.mode.step(next(self._batches), self.clock, without=without)
            self.clock.end_step()

    def without_exchange(self) -> int:
        """Bytes that the kernel sends in as many steps without the exchange.

        If a step can't leave it out, they are of no step.
        """
        without = self.info.can_leave_out
        if not without:
            return kernel_bytes(lambda: None)
        # The first of them may still gather what later ones have.
        self.run(1, without=without)
        return kernel_bytes(functools.partial(self.run, without=without))


def counted(work: Callable[[], object]) -> dict[str, Any]:
    """Bytes that a rank sends per step of some work, as counted; of all ranks, by the kernel."""
    counting = Counting()

    def under_count() -> None:
        with counting:
            work()

    kernel = kernel_bytes(under_count)
    if counting.bytes_sent is None or counting.messages_sent is None:
        return {"unknown": counting.unknown}
    return {
        "bytes": float(counting.bytes_sent / STEPS),
        "messages": counting.messages_sent / STEPS,
        "kernel": kernel / STEPS,
    }


def all_ranks_agree_with_kernel(found: Mapping[str, Any]) -> bool:
    """True if all ranks' bytes are what the kernel counted on rank 0; the same on all ranks."""
    values = torch.tensor([found["bytes"], found["kernel"] - found["idle"]], dtype=torch.float64)
    kernel = values[1:].clone()
    distributed.broadcast(kernel, src=0)
    distributed.all_reduce(values)
    return bool((values[0] - kernel[0]).abs() <= NEAR_KERNEL * kernel[0])


def count_variant(name: str, *, workers: int, rank: int) -> dict[str, Any]:
    """What a rank of a mode sends."""
    trained = Trained(name, workers=workers, rank=rank)
    # Segments that are sent again on a busy machine only add to the kernel's count.
    tries, idle = [], []
    for _ in range(TRIES):
        tries.append(counted(trained.run))
        idle.append(trained.without_exchange() / STEPS)
        found = min(tries, key=lambda each: float(each["kernel"])) | {"idle": min(idle)}
        if all_ranks_agree_with_kernel(found):
            break
    trained.mode.close()
    return found


def count_compiled(*, workers: int, rank: int) -> dict[str, Any]:
    """Counts of a compiled model, with the number of its runs and of its compilations."""
    graphs, runs = [0], [0]

    def backend(graph: torch.fx.GraphModule, _: Any) -> Callable[..., Any]:
        graphs[0] += 1

        def run(*inputs: Any) -> Any:
            runs[0] += 1
            return graph(*inputs)

        return run

    trained = Trained("ddp", workers=workers, rank=rank, compiled=backend)
    graphs_before, runs_before = graphs[0], runs[0]
    found = counted(trained.run)
    found |= {"compiled": graphs[0] - graphs_before, "runs": runs[0] - runs_before}
    trained.run(1)
    return {**found, "runs_after": runs[0] - runs_before - found["runs"], "graphs": graphs_before}


def count_odd(*, workers: int) -> dict[str, Any]:
    """What tensors of a class of their own send, what can't be counted, and what sends nothing."""
    mesh = init_device_mesh("cpu", (workers,))
    sharded = distribute_tensor(torch.ones(8 * workers, 8), mesh, [Shard(0)])
    alone = distributed.new_group([distributed.get_rank()], use_local_synchronization=True)
    sparse = torch.eye(4).to_sparse()
    return {
        "a DTensor made whole": counted(sharded.full_tensor),
        "sparse": counted(lambda: distributed.all_reduce(sparse)),
        "alone": counted(lambda: distributed.all_reduce(torch.ones(4), group=alone)),
        "barrier": counted(distributed.barrier),
    }


def count_all(rank: int, workers: int, folder: Path) -> None:
    torch.set_num_threads(1)
    store = f"file://{folder}/store{workers}"
    distributed.init_process_group("gloo", init_method=store, rank=rank, world_size=workers)
    found = {name: count_variant(name, workers=workers, rank=rank) for name in variants_of(workers)}
    if workers == 2:
        found |= count_odd(workers=workers)
        found["ddp compiled"] = count_compiled(workers=workers, rank=rank)
    (folder / f"{workers}.{rank}.json").write_text(json.dumps(found), "utf-8")
    distributed.barrier()
    distributed.destroy_process_group()


def in_a_namespace() -> list[str] | None:
    """The words before a command that give it a network namespace of its own.

    None without the rights.
    """
    for words in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        try:
            if subprocess.run([*words, "true"], capture_output=True, check=False).returncode == 0:
                return words
        except OSError:
            return None
    return None


def what_ranks_send(folder: Path) -> dict[int, list[dict[str, dict[str, Any]]]]:
    """What each rank sends, by the number of workers and variant.

    In a namespace of their own where there are the rights.
    """
    words = in_a_namespace() or []
    command = [sys.executable, "-m", "tests.wire", str(folder), *(["alone"] if words else [])]
    subprocess.run(
        [*words, *command],
        cwd=ROOT,
        env=os.environ | {"PYTHONPATH": str(ROOT), "GLOO_SOCKET_IFNAME": "lo"},
        check=True,
        timeout=300,
    )
    return {
        workers: [
            json.loads((folder / f"{workers}.{rank}.json").read_text("utf-8"))
            for rank in range(workers)
        ]
        for workers in WORLDS
    }


def loopback_up() -> None:
    """Switch on the loopback of a new namespace (`ip link set lo up`)."""
    set_flags, up_and_running = 0x8914, 0x49
    with socket.socket() as any_socket:
        fcntl.ioctl(any_socket, set_flags, struct.pack("16sH14s", b"lo", up_and_running, b""))


if __name__ == "__main__":
    if "alone" in sys.argv[2:]:
        loopback_up()
    for number in WORLDS:
        spawn(count_all, args=(number, Path(sys.argv[1])), nprocs=number)
