"""The ranks' side of a session: a loop that takes tasks, and what it is started with."""

from __future__ import annotations

import contextlib
import faulthandler
import gc
import os
import signal
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ray import cloudpickle

LOG_BYTES = 4 * 2**20
"""A rank's log that has grown beyond this is cut before the next trial."""


@dataclass(frozen=True, kw_only=True)
class Code:
    """The workload as it travels, once per session."""

    pickled: bytes
    """The object; a class from the sweep file goes by value."""

    folder: str | None
    """The sweep file's folder, for what lies beside it."""

    def load(self) -> Any:
        """Unpickle the workload in this process."""
        if self.folder is not None and Path(self.folder).is_dir() and self.folder not in sys.path:
            sys.path.insert(0, self.folder)
        return cloudpickle.loads(self.pickled)


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What every session of a run shares."""

    code: Code
    cpus_per_worker: int
    gpus_per_worker: int
    environment: Mapping[str, str]
    node_timeout_s: float
    storage: str
    """A folder on the driver's node for what Ray Train leaves."""

    is_private: bool
    """Whether Ray was started for this run, on this machine."""

    nsight: bool = False
    """Whether ranks run under NVIDIA's `nsys`."""

    nodes: tuple[str, ...] | None = None
    """The nodes of this lane; None is all."""

    def workload(self) -> Any:
        """The sweep's workload."""
        return self.code.load()


def serve(config: Mapping[str, Any]) -> None:
    """Run in each rank of a TorchTrainer: take tasks until there are none."""
    import ray.train
    import ray.train.torch
    import torch
    from torch import distributed

    from dtsweep.hardware.fingerprint import fingerprint
    from dtsweep.hardware.memory import release_memory
    from dtsweep.hardware.telemetry import Telemetry
    from dtsweep.worker.attempt import RankContext, attempt

    lane, session, settings = config["lane"], config["session"], config["settings"]
    rank = ray.train.get_context().get_world_rank()
    log = _redirect_output(session, rank)
    torch.set_num_threads(settings.cpus_per_worker)
    device = ray.train.torch.get_device()
    known = fingerprint(device, own_variables=config["variables"])
    context = RankContext(
        rank=rank,
        device=device,
        workload=settings.workload(),
        telemetry=Telemetry(device),
        device_name=known["device"],
    )
    known |= {"node_id": ray.get_runtime_context().get_node_id(), "log": str(log)}
    release_memory(context.device)
    gc.freeze()
    is_first = True
    ray.get(lane.register.remote(session, rank, known, ray.get_runtime_context().current_actor))
    while (given := ray.get(lane.next_task.remote(session, rank))) is not None:
        task, shards = given
        _cut(log)
        outcome = attempt(
            context, task, servers=shards, on_warm=lambda slowest: lane.warmed_up.remote(session, rank, slowest)
        )
        if is_first:
            # The first trial imports half of torch: going through that again would cost each trial 0.1 s. Not after
            # every trial: what is frozen stays, should something still hold its model.
            gc.freeze()
            is_first = False
        group = distributed.distributed_c10d._get_default_group()
        position = group._get_sequence_number_for_group()  # type: ignore[attr-defined]  # missing in torch's stub
        ray.get(lane.finished.remote(session, rank, {**outcome, "position": position}))


def _redirect_output(session: str, rank: int) -> Path:
    """Send all output of this process to a file on its node, where a signal also writes its stacks."""
    folder = Path(tempfile.gettempdir()) / f"dtsweep-logs-{os.getuid()}" / session
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{rank}.log"
    file = path.open("ab", buffering=0)
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(ValueError):
            stream.flush()
    os.dup2(file.fileno(), 1)
    os.dup2(file.fileno(), 2)
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1)
    sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    faulthandler.enable(file=sys.stderr)
    faulthandler.register(signal.SIGUSR1, file=sys.stderr, all_threads=True)
    return path


def _cut(log: Path) -> None:
    if log.stat().st_size > LOG_BYTES:
        os.truncate(log, 0)
