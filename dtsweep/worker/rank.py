"""Setup of a worker process as a rank, and its description, before the first trial."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Collection, Hashable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch

# Before a group exists: its functions take the group as a default and would keep it from being
# destroyed, and a thread of gloo that still holds a tensor when Python ends aborts the process.
import torch.distributed.nn.functional
from torch.distributed.distributed_c10d import Store

from dtsweep.errors import SweepError
from dtsweep.hardware.fingerprint import fingerprint
from dtsweep.hardware.memory import release_memory
from dtsweep.hardware.nvml import device_count, driver
from dtsweep.hardware.telemetry import Telemetry
from dtsweep.metrics.rank_result import RankFacts, RankResult
from dtsweep.secret import secret_variables
from dtsweep.sweep.settings import Resources
from dtsweep.sweep.task import Task
from dtsweep.text import count_of
from dtsweep.worker.step_watch import StepWatch


class _LoopRunner(Protocol):
    """Runs training loops of the user in other processes than the rank's."""

    def run(self, context: RankContext, task: Task, on_warm: Callable[[float], None]) -> RankResult:
        """Run one attempt; its arguments are those of `run_attempt`."""


@dataclass(frozen=True, kw_only=True)
class RankContext:
    """One rank's place in its world."""

    rank: int
    device: torch.device
    workload: Any
    """The sweep's workload; a trial replaces fields of it."""

    telemetry: Telemetry
    """Of this rank's device and host."""

    facts: RankFacts

    exchanges: dict[Hashable, dict[str, Any]] = field(default_factory=dict)
    """Times of isolated exchanges that this world has measured, by what they depend on."""

    start_folder: str | None = None
    """Folder in which the user started the run; None is this process's."""

    store: Store | None = None
    """Store in which the ranks of a training loop of the user meet; None with one worker."""

    loop_runner: _LoopRunner | None = None
    """Runs training loops of the user in processes of their own; None runs them in this one."""

    secrets: dict[str, str] = field(default_factory=dict)
    """Secret variables of its process by name, to be left out of its log."""

    changed_files: list[str] = field(default_factory=list)
    """Files of the user that have changed while the last script ran in this process."""

    ends_with_trial: bool = False
    """True if this process was made for one trial of a training loop."""

    watch: StepWatch | None = None
    """Says where the workload is if no step ends for long."""

    is_own_process: bool = False
    """True if this is the user's own process, in which a debugger may be attached.

    A debugger suspends limits of time.
    """


def gets_gpu(resources: Resources) -> bool:
    """True if a worker here gets a GPU: as the sweep says, else where there is one.

    Raises:
        SweepError: torch sees no GPU where the sweep asks for one or this machine has one.
    """
    if resources.gpus_per_worker == 0:
        return False
    if torch.cuda.is_available():
        return True
    if count := device_count():
        raise SweepError(_why_unusable(count), word="gpus_per_worker")
    if resources.gpus_per_worker:
        asked = f"gpus_per_worker={resources.gpus_per_worker}"
        raise SweepError(
            f"{asked}, but torch sees no GPU here; use gpus_per_worker=0", word="gpus_per_worker"
        )
    return False


def torch_build() -> str:
    """Version of torch and the CUDA that it was built for, in words."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__}, built without CUDA"
    return f"torch {torch.__version__}, built for CUDA {torch.version.cuda}"


def _why_unusable(count: int) -> str:
    """Say which versions torch and the driver have, where torch can use no GPU of this machine."""
    next_step = (
        "install a torch for a CUDA version that the driver supports (nvidia-smi shows it), "
        "or set Resources(gpus_per_worker=0) to measure on the CPU"
    )
    mask = os.environ.get("CUDA_VISIBLE_DEVICES")
    if mask is not None:
        next_step = f"if CUDA_VISIBLE_DEVICES={mask!r} hides them, unset it; else {next_step}"
    return (
        f"{torch_build()}, can use none of the {count_of(count, 'GPU')} here, "
        f"whose driver is {driver()}; {next_step}"
    )


def cpus_here(resources: Resources) -> int:
    """CPUs of a worker where Ray does not give them: as the sweep says, else as `Resources` does.

    Raises:
        SweepError: the sweep asks for GPUs, and torch sees none.
    """
    if resources.cpus_per_worker is not None:
        return resources.cpus_per_worker
    if not gets_gpu(resources):
        return 1
    cpus = len(os.sched_getaffinity(0))
    return max(1, cpus // torch.cuda.device_count())


def take_device(resources: Resources, *, index: int) -> torch.device:
    """Choose a device where Ray does not: the GPU with this index, if workers use GPUs.

    Args:
        resources: what each worker gets; its threads are set, too.
        index: of this rank among those of its machine.

    Raises:
        SweepError: torch sees no GPU where one is meant, or none with this index.
    """
    torch.set_num_threads(cpus_here(resources))
    if not gets_gpu(resources):
        return torch.device("cpu")
    count = torch.cuda.device_count()
    if index >= count:
        gpus, ranks = (count_of(count, noun) for noun in ("GPU", "rank"))
        raise SweepError(
            f"torch sees {gpus} here, so there is none for the local rank {index}; start at most "
            f"{ranks} here (torchrun --nproc-per-node {count}), or set Resources(gpus_per_worker=0)"
        )
    device = torch.device("cuda", index)
    torch.cuda.set_device(device)
    return device


def become_rank(
    rank: int,
    device: torch.device,
    *,
    workload: Any,
    own_variables: Collection[str],
    packages: Collection[str] = (),
    is_own_process: bool = False,
    **where: Any,
) -> RankContext:
    """Describe this process and its device, and start from clean memory.

    Args:
        rank: its index.
        device: where it computes.
        workload: the sweep's.
        own_variables: environment variables that the sweep sets; they are no part of the machine.
        packages: installed packages that the workload imports; their versions are.
        is_own_process: whether this is the user's own process.
        where: in a Ray session `node_id` and `log`.
    """
    # A context: NVML shows the server of MPS on a GPU only once it serves a program there. Where
    # that fails, so does the first trial, which says why.
    with suppress(RuntimeError):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
    telemetry = Telemetry(device)
    context = RankContext(
        rank=rank,
        device=device,
        workload=workload,
        telemetry=telemetry,
        facts=RankFacts(
            **fingerprint(device, own_variables=own_variables, packages=packages), **where
        ),
        secrets=secret_variables(),
        is_own_process=is_own_process,
    )
    release_memory(device)
    gc.freeze()
    return context
