"""`parameter_server`: workers push gradients to shards, which update parameters; workers pull them.

Both sides stand here: `Shard` is the server (a plain class that the session wraps as Ray actors),
and `ParameterServer` the worker. How far workers may run apart is `staleness`: 0 is
bulk-synchronous (one update per clock, on the mean gradient), a number bounds the clocks, None is
Downpour SGD (no bound).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dtsweep.compression.exchange import WATCHED
from dtsweep.measure.clock import Clock
from dtsweep.sweep.point import Point
from dtsweep.sweep.travel import send_modules_by_name
from dtsweep.sync.buckets import real_view
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import passes, share_weights
from dtsweep.sync.pushes import Pushes

Flat = NDArray[np.float32] | NDArray[np.float64]
"""The values of a shard's parameters one after another, as `flat_dtype` says."""


class Shard:
    """A part of the parameters with its optimizer; calls of all workers meet in one event loop."""

    def __init__(self) -> None:
        """Hold nothing until the first `reset`."""
        self._changed = asyncio.Condition()

    async def load(self, code: Any) -> None:
        """Make what the workload's optimizer needs importable here; `code` is the session's."""
        code.load()

    async def reset(
        self, parameters: list[Tensor], make_optimizer: MakeOptimizer, point: Point
    ) -> str:
        """Serve a new trial.

        Args:
            parameters: all of the model, in its order, so that an optimizer divides them as it
                would in one place. Those of this shard have their initial values; frozen ones and
                those of other shards are on the meta device.
            make_optimizer: from parameters to their optimizer.
            point: of the trial, without its workload.

        Returns:
            Name of the optimizer.

        Raises:
            ValueError: the optimizer can't be divided among shards.
        """
        everyone = [
            nn.Parameter(value.clone(), requires_grad=value.requires_grad or not value.is_meta)
            for value in parameters
        ]
        self._optimizer = make_optimizer(everyone)
        _keep_own(self._optimizer, everyone)
        self._parameters = [parameter for parameter in everyone if not parameter.is_meta]
        self._dtype = flat_dtype(self._parameters)
        self._workers = point.workers
        self._bound = point.staleness
        shapes = [real_view(parameter).shape for parameter in self._parameters]
        self._pushes = [Pushes(point, shapes, dtype=self._dtype) for _ in range(self._workers)]
        self._clocks = dict.fromkeys(range(self._workers), 0)
        self._waiting: dict[int, Tensor] = {}
        self._version = 0
        return type(self._optimizer).__name__

    async def exchange(self, rank: int, pushed: NDArray[Any], pulled: int) -> tuple[Flat, int, int]:
        """Push a gradient; wait as the bound demands; pull.

        Args:
            rank: the worker.
            pushed: the gradient of this shard's parameters, as `Pushes` packs it.
            pulled: the version of the parameters that it was computed on.

        Returns:
            The parameters, their version, and how many updates of others the gradient came late.
        """
        gradient = self._pushes[rank].unpack(pushed)
        if self._bound == 0:
            late = await self._update_together(rank, gradient, pulled)
        else:
            late = self._version - pulled
            self._update(gradient / self._workers)
            self._clocks[rank] += 1
            await self._notify()
            if (bound := self._bound) is not None:
                await self._wait(
                    lambda: self._clocks.get(rank, 0) - min(self._clocks.values()) <= bound
                )
        return self._flat(), self._version, late

    async def leave(self, rank: int) -> None:
        """Let nobody wait any longer for this worker."""
        self._clocks.pop(rank, None)
        if self._bound == 0:
            self._update_if_complete()
        await self._notify()

    async def _update_together(self, rank: int, gradient: Tensor, pulled: int) -> int:
        version = self._version
        self._waiting[rank] = gradient
        if self._update_if_complete():
            await self._notify()
        else:
            await self._wait(lambda: self._version > version)
        return version - pulled

    def _update_if_complete(self) -> bool:
        if not self._waiting or self._clocks.keys() - self._waiting.keys():
            return False
        # In the order of ranks: sums of floats depend on it, results should not.
        gradients = [self._waiting[rank] for rank in sorted(self._waiting)]
        self._waiting = {}
        self._update(torch.stack(gradients).sum(dim=0) / len(gradients))
        return True

    def _update(self, gradient: Tensor) -> None:
        for parameter, part in zip(
            self._parameters, _split(gradient, self._parameters), strict=True
        ):
            gradient_part = part.to(real_view(parameter).dtype)
            if parameter.is_complex():
                gradient_part = torch.view_as_complex(gradient_part)
            parameter.grad = gradient_part
        self._optimizer.step()
        self._version += 1

    def _flat(self) -> Flat:
        values = [parameter.detach() for parameter in self._parameters]
        flat: Flat = _flatten(values, self._dtype).numpy()
        return flat

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, reached: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(reached)


class ParameterServer(SyncMode):
    """The worker's side: push the gradient of a step, pull the parameters for the next."""

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it; `job.servers` are the shards."""
        super().__init__(job)
        self._bytes_sent = self._messages_sent = 0
        self._late: list[int] = []
        self._is_watched = False
        self._seen = (0.0, 0.0)

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Spread the parameters over the shards; rank 0's values are everybody's."""
        self._model = model
        everyone = list(model.parameters())
        trained = [p for p in everyone if p.requires_grad]
        self._pieces = deal(trained, len(self._job.servers))
        self._dtypes = [flat_dtype(piece) for piece in self._pieces]
        self._versions = [0] * len(self._pieces)
        point = replace(self._job.point, workload=None)
        self._pushes = [
            Pushes(point, [real_view(p).shape for p in piece], self._job.device, dtype=dtype)
            for piece, dtype in zip(self._pieces, self._dtypes, strict=True)
        ]
        error: Exception | None = None
        if self._job.rank == 0:
            values = [_with_places(everyone, piece) for piece in self._pieces]
            try:
                # The workload goes with its optimizer.
                send_modules_by_name()
                resets = [
                    shard.reset.remote(value, make_optimizer, point)
                    for shard, value in zip(self._job.servers, values, strict=True)
                ]
                self.optimizer_class = ray.get(resets)[0]
            except Exception as raised:  # noqa: BLE001  # the user's optimizer may raise anything
                error = raised
        # Others would wait for a rank that gave up alone.
        has_failed = [error is not None]
        torch.distributed.broadcast_object_list(has_failed, src=0)
        if error is not None:
            raise error
        if has_failed[0]:
            raise torch.distributed.DistError("rank 0 could not reset the servers")
        # Also the barrier: nobody pushes before rank 0 has reset the shards.
        share_weights(model)

    def step(self, batches: Iterator[Any], clock: Clock, exchange: bool = True) -> Loss:
        """Pass; push and pull at all shards at once."""
        if not exchange:
            raise NotImplementedError(
                "the update happens on the server: a step without exchange trains nothing"
            )
        loss = passes(self._job, self._model, batches, clock)
        if self._is_watched:
            self._compare([self._gradients(place) for place in range(len(self._pieces))])
            return loss
        packed: Iterable[NDArray[Any]] = (
            pushes.pack(self._gradients(place)) for place, pushes in enumerate(self._pushes)
        )
        if self._job.point.compression:
            packed = list(packed)
            clock.mark("compress")
        calls = []
        # One shard after another: without compression each copy of gradients is freed once sent.
        for shard, pushed, version in zip(self._job.servers, packed, self._versions, strict=True):
            self._bytes_sent += pushed.nbytes
            calls.append(shard.exchange.remote(self._job.rank, pushed, version))
        answers = ray.get(calls)
        for piece, (values, _, _) in zip(self._pieces, answers, strict=True):
            _assign(piece, values)
        self._versions = [version for _, version, _ in answers]
        self._late.append(max(late for _, _, late in answers))
        self._messages_sent += len(calls)
        self._model.zero_grad()
        clock.mark("sync")
        return loss

    def _gradients(self, place: int) -> Tensor:
        """Gradients for one shard: (elements,)."""
        return _flatten([_gradient(p) for p in self._pieces[place]], self._dtypes[place])

    def watch(self) -> None:
        """Let the next step compare its push with the exact values instead of sending it.

        The servers may have ended by then.
        """
        self._is_watched = True

    def seen(self) -> tuple[float, float]:
        """Squared norms, as `SyncMode` says."""
        return self._seen

    def _compare(self, gradients: Sequence[Tensor]) -> None:
        squared_error = squared_norm = 0.0
        for pushes, gradient in zip(self._pushes, gradients, strict=True):
            for parts in zip(
                gradient.split(WATCHED), pushes.changed(gradient).split(WATCHED), strict=True
            ):
                pair = torch.stack(parts).double()
                torch.distributed.all_reduce(pair)
                exact, mean = pair / self._job.point.workers
                squared_error += float((mean - exact).square().sum())
                squared_norm += float(exact.square().sum())
        self._is_watched = False
        self._seen = (squared_error, squared_norm)
        self._model.zero_grad()

    def drain(self) -> None:
        """Leave, so that nobody waits for a worker that has ended its window."""
        ray.get([shard.leave.remote(self._job.rank) for shard in self._job.servers])

    def counters(self) -> Mapping[str, Any]:
        """Return bytes and number of pushes, and each step's staleness in updates of others."""
        counted = {
            "bytes_sent": self._bytes_sent,
            "messages_sent": self._messages_sent,
            "staleness": self._late,
        }
        self._bytes_sent = 0
        self._messages_sent = 0
        self._late = []
        return counted


def deal(parameters: Sequence[nn.Parameter], shards: int) -> list[list[nn.Parameter]]:
    """Share parameters out, the largest first, each to the shard that has least.

    Whole parameters, so that any optimizer works on a shard as it does on the model. Each shard has
    its own in the order of the model.

    Raises:
        ValueError: more shards than parameters.
    """
    if shards > len(parameters):
        raise ValueError(
            f"shards={shards}, but the model has {len(parameters)} parameters; use fewer shards"
        )
    parts: list[list[int]] = [[] for _ in range(shards)]
    sizes = [0] * shards
    for place in sorted(range(len(parameters)), key=lambda place: -parameters[place].numel()):
        least = sizes.index(min(sizes))
        parts[least].append(place)
        sizes[least] += parameters[place].numel()
    return [[parameters[place] for place in sorted(part)] for part in parts]


def flat_dtype(parameters: Sequence[Tensor]) -> torch.dtype:
    """Type of the values of a shard: double where a parameter is, else float."""
    doubles = (torch.float64, torch.complex128)
    if any(parameter.dtype in doubles for parameter in parameters):
        return torch.float64
    return torch.float32


def _keep_own(optimizer: Any, everyone: Sequence[nn.Parameter]) -> None:
    """Leave in the groups of an optimizer the parameters that have values here.

    Raises:
        ValueError: it has no groups, and there are parameters of other shards.
    """
    groups = getattr(optimizer, "param_groups", None)
    if groups is not None:
        for group in groups:
            group["params"] = [p for p in group["params"] if not p.is_meta]
    elif any(parameter.is_meta and parameter.requires_grad for parameter in everyone):
        raise ValueError(
            f"{type(optimizer).__name__} has no param_groups, so that shards can't divide it; use "
            "shards=1"
        )


def _with_places(everyone: Sequence[nn.Parameter], own: Sequence[nn.Parameter]) -> list[Tensor]:
    """Values of a shard's parameters, and places without memory for all others."""
    of_shard = {id(parameter) for parameter in own}
    return [
        p.detach().cpu()
        if id(p) in of_shard
        else torch.empty_like(p, device="meta", requires_grad=p.requires_grad)
        for p in everyone
    ]


def _gradient(parameter: nn.Parameter) -> Tensor:
    # A parameter that a pass did not use has no gradient; its place on the shard stays.
    if parameter.grad is None:
        return torch.zeros_like(parameter)
    if parameter.grad.is_sparse:
        return parameter.grad.to_dense()
    return parameter.grad


def _flatten(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    return torch.cat([real_view(tensor).reshape(-1).to(dtype) for tensor in tensors])


def _split(values: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Divide the values of a shard among its parameters, in the shapes of their real views."""
    shapes = [real_view(parameter).shape for parameter in parameters]
    parts = values.split([shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


def _assign(parameters: Sequence[nn.Parameter], values: Flat) -> None:
    begin = 0
    for parameter in parameters:
        view = real_view(parameter)
        # A copy of one parameter at a time: what Ray hands out is read-only, which torch warns of.
        part = torch.from_numpy(np.array(values[begin : begin + view.numel()]))
        view.copy_(part.view(view.shape))
        begin += view.numel()
