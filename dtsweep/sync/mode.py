"""Base class of sync modes, which the common loop calls, and the trial as one rank sees it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.amp import GradScaler
from torch.distributed.device_mesh import DeviceMesh

from dtsweep.compression.exchange import Mean
from dtsweep.measure.clock import StepClock
from dtsweep.sweep.mode_info import ModeInfo
from dtsweep.sweep.modes import OWN
from dtsweep.sweep.point import Point
from dtsweep.sync.loss_scale import Updates
from dtsweep.sync.meshes import mesh_of
from dtsweep.sync.pass_time import PassTime, Untimed
from dtsweep.workloads.datasets import MakeBatch, batch_maker

MakeOptimizer = Callable[[Iterable[Any]], torch.optim.Optimizer]
"""Makes the optimizer of parameters, or of groups of them."""


Loss = torch.Tensor | float | None
"""Loss of a step: a number on a CPU, a detached scalar on a GPU; None on a rank that has no loss.

The scalar may still be under computation. In a pipeline the last stage has the loss. A rank that
is not drawn for a sync period has none in its steps.
"""


@dataclass(frozen=True, kw_only=True)
class Job:
    """One trial as one rank sees it."""

    point: Point
    """Its workload is the trial's own."""

    rank: int
    """This worker's index."""

    device: torch.device
    """Device of this worker."""

    loss: Callable[[nn.Module, Any], torch.Tensor]
    """The workload's loss in the point's precision."""

    ddp_options: Mapping[str, Any] = field(default_factory=dict)
    """Options that the workload passes to `DistributedDataParallel`."""

    servers: Sequence[Any] = ()
    """Handles of the parameter server's shards, in a Ray session."""

    scaler: GradScaler | None = None
    """Scaler of the losses and so of the exchanged gradients; None in most precisions."""

    seed: int = 0
    """Seed of the trial, the same on all ranks and another for each repeat."""

    pass_time: PassTime = field(default_factory=Untimed)
    """Slowdown of this worker's passes."""

    # Cached, because steps read it.
    @functools.cached_property
    def data_rank(self) -> int:
        """Index of this worker's data-parallel group: its samples, and the seed of its passes."""
        return self.rank // self.point.grid.model

    @property
    def reads_batches(self) -> bool:
        """True unless it has stages in the middle of a pipeline alone."""
        last = self.point.pipeline_parallel - 1
        return self.model_rank // self.point.tensor_parallel in (0, last)

    @functools.cached_property
    def make_batch(self) -> MakeBatch:
        """Maker of the workload's batches; its dataset is opened once."""
        return batch_maker(self.point.workload)

    def participants_of(self, period: int) -> Sequence[int]:
        """Data-parallel groups that train in a sync period, ascending; the same on all ranks.

        Drawn without replacement, with the trial's seed.

        Args:
            period: its number, from 0.
        """
        point = self.point
        if not point.draws_participants:
            return range(point.data_parallel)
        random = np.random.default_rng((self.seed, period))
        drawn = random.choice(point.data_parallel, size=point.participants, replace=False)
        return sorted(drawn.tolist())

    @property
    def divides_model(self) -> bool:
        """True if a worker may have only a part of each parameter, once its mode is prepared."""
        point = self.point
        return point.mode.shards or point.sync == OWN or point.grid.model > 1

    @property
    def model_rank(self) -> int:
        """Index of this worker among those that share its model."""
        return self.rank % self.point.grid.model

    def mesh(self) -> DeviceMesh:
        """All ranks as (data, model): the same mesh in each trial of a world with this grid.

        `mesh()["model"]` are the workers of this rank's model. Called on all ranks.
        """
        grid = self.point.grid
        return mesh_of(self.device, (grid.data, grid.model), ("data", "model"))


class SyncMode:
    """Interface of a mode; `tests/sync/test_modes.py` holds every mode to it.

    A mode has `prepare` and `step`; the others have defaults.
    """

    optimizer_class: str | None = None
    """Name of the optimizer that updates the parameters; `prepare` sets it, on rank 0 at least."""

    blocks: str | None = None
    """Units into which it divides the model, in words; `prepare` sets it, if the mode does so."""

    trained: nn.Module | None = None
    """Module whose parameters it trains, if that is not the one it was given; set by `prepare`."""

    counts_periods: bool = False
    """True if it counts the steps of a period itself, from its first: `begin_period` does nothing.

    Nothing then ends or begins inside a period.
    """

    slot: int | None = None
    """Place of this rank's group among those that train in a step: which samples it takes.

    Read when a step's batches are. None where all groups train, in their order.
    """

    updates: Updates = Updates()
    """Its updates; `prepare` sets them in a mode that `scales_loss`."""

    means: Sequence[Mean] = ()
    """Averager of its compressed tensors."""

    before_update: Callable[[], None] = staticmethod(lambda: None)
    """Called in each step when gradients are exchanged, before they are clipped."""

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it."""
        self._job = job

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Take over the freshly built model, the same on all ranks, on its device."""
        raise NotImplementedError

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Do one optimizer step: a pass for each batch, then the exchange and the update.

        Args:
            batches: `accumulation` batches of this rank, on its device.
            clock: called when each phase ends.
            without: parts of the exchange to leave out, of `ModeInfo.can_leave_out`; the model is
                lost then.

        Returns:
            This rank's part of the mean loss, as `passes` gives it; None in a step in which it does
            not train.
        """
        raise NotImplementedError

    def bytes_without_exchange(self) -> int:
        """Bytes that a step without any exchange needs beyond those of other steps, on each rank.

        Such a step is `step(without=can_leave_out)`.
        """
        return 0

    def begin_period(self, done: int) -> None:
        """Set the position of the next step in the sync period; by default there are no periods."""

    def drain(self) -> None:
        """End what is still under way between steps. By default nothing is.

        Called after the last step of a run of steps, inside the window. Steps may follow where the
        mode `can_restart`.
        """

    def pause(self) -> None:
        """Let no worker wait for this one until all have paused. By default none would.

        Called after the warm-up: workers that step apart end it at different times.
        """

    def exchange_alone(self) -> int:
        """Run the exchange of a step by itself, without overlap, where `can_exchange_alone`.

        Returns:
            How many steps share one such exchange.

        Raises:
            MemoryError: a rank has no memory for it; on all ranks, and before anything is
                exchanged.
        """
        raise NotImplementedError(
            f"{type(self).__name__} has no exchange that can be done by itself"
        )

    def expected_bytes(self) -> float | None:
        """Bytes that a worker sends per step, on average over workers, without a compression.

        None if that depends on more than the parameters.
        """
        return None

    def watch(self) -> None:
        """With compression, compare the next exchange with an exchange of uncompressed values."""
        for mean in self.means:
            mean.is_watched = True

    def seen(self) -> tuple[float, float]:
        """Return this rank's squared norms for the watched exchange: error, and exact mean."""
        squared_error = sum(mean.squared_error for mean in self.means)
        return squared_error, sum(mean.squared_norm for mean in self.means)

    def counters(self) -> Mapping[str, Any]:
        """Counters since the last call, fields of `Measured` by name.

        `bytes_sent`, `messages_sent`, `staleness` of each push, `dropped` of each step. A mode
        counts what it sends if torch's process groups don't see it, or if sync periods differ in
        it. In fp16 also `skipped_updates`.
        """
        return self.updates.counters()

    def checkpoint_parts(self) -> tuple[nn.Module, torch.optim.Optimizer] | None:
        """Model and optimizer whose states are all that a training goes on from.

        None where there is more, such as the errors of a compression: such a training begins again.
        """
        return None

    def close(self) -> None:
        """Let go of the model and of everything shared; also called after a failure."""
        self.__dict__.clear()


def load_mode(info: ModeInfo) -> type[SyncMode]:
    """Import the class of a mode."""
    module, _, attribute = info.implementation.partition(":")
    mode: type[SyncMode] = getattr(import_module(module), attribute)
    return mode
