"""Server side of `parameter_server`: a shard holds some of the parameters and updates them.

A plain class, which the session makes an actor of Ray.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dtsweep.servers.pushes import Pushes
from dtsweep.sweep.point import Point
from dtsweep.sync.buckets import real_view
from dtsweep.sync.clipping import clip_factor
from dtsweep.sync.mode import MakeOptimizer
from dtsweep.sync.passes import optimizer_name, refuse_sparse_adam

Flat = NDArray[np.float32] | NDArray[np.float64]
"""The values of a shard's parameters one after another, as `flat_dtype` says."""


class Shard:
    """A part of the parameters with its optimizer; calls of all workers meet in one event loop."""

    def __init__(self, keep: Callable[[Flat], Any] = np.array) -> None:
        """Hold nothing until the first `reset`.

        Args:
            keep: from values that change later to a reply that doesn't: a copy, or its place in
                Ray's object store.
        """
        self._keep = keep
        self._changed = asyncio.Condition()

    async def load(self, code: Any) -> None:
        """Make what the workload's optimizer needs importable here; `code` is the session's."""
        code.load()

    async def reset(
        self,
        parameters: list[Tensor],
        make_optimizer: MakeOptimizer,
        point: Point,
        peers: Sequence[Any] = (),
        *,
        leads: bool = True,
    ) -> str:
        """Serve a new trial.

        Args:
            parameters: all of the model, in its order, so that an optimizer divides them as it
                would in one place. Those of this shard have their initial values; frozen ones and
                those of other shards are on the meta device.
            make_optimizer: from parameters to their optimizer.
            point: of the trial, without its workload.
            peers: handles of the other shards.
            leads: False on all shards but one, which chooses the gradients of a step for all of
                them if some are dropped.

        Returns:
            Name of the optimizer.

        Raises:
            ValueError: the optimizer can't be divided among shards, or it takes sparse gradients
                alone.
        """
        device = _device_of(point)
        self._optimizer, self._parameters = _make_optimizer(
            parameters, make_optimizer=make_optimizer, point=point, device=device
        )
        self._make_room(device)
        self._point = point
        shapes = [real_view(parameter).shape for parameter in self._parameters]
        self._pushes = [
            Pushes(point, shapes, device, dtype=self._values.dtype) for _ in range(point.workers)
        ]
        self._clocks = dict.fromkeys(range(point.workers), 0)
        self._waiting: dict[int, tuple[Tensor, asyncio.Future[bool]]] = {}
        self._chosen: dict[int, frozenset[int]] = {}
        self._paused: set[int] = set()
        self._version = self._begun = 0
        self._kept: tuple[int, Any] = (-1, None)
        self._peers = peers
        self._leads = leads
        self._squared_norms: dict[int, float] = {}
        return optimizer_name(self._optimizer)

    async def exchange(
        self,
        rank: int,
        pushed: NDArray[Any],
        pulled: int,
        factor: float = 1.0,
        *,
        pulls: bool = True,
    ) -> tuple[Any, int, int]:
        """Push a gradient; wait as the bound demands; pull.

        Args:
            rank: the worker.
            pushed: the gradient of this shard's parameters, as `Pushes` packs it.
            pulled: the version of the parameters that it was computed on, and the worker's own
                pushes since then.
            factor: of the gradient, where each push is clipped.
            pulls: False leaves the pull out.

        Returns:
            The parameters as `keep` gives them, None without a pull; their version; how many
            updates of others the gradient came late. With `staleness=0` a late one was dropped.
        """
        gradient = self._pushes[rank].unpack(pushed)
        if self._point.staleness == 0:
            late = await self._update_together(rank, gradient, pulled)
        else:
            late = self._version - pulled
            torch.mul(gradient, factor / self._point.workers, out=self._gradient)
            self._update()
            self._clocks[rank] += self._point.push_period
            await self._notify()
            if (bound := self._point.staleness) is not None:
                await self._wait(
                    lambda: self._clocks.get(rank, 0) - min(self._clocks.values()) <= bound
                )
        return self._reply() if pulls else None, self._version, late

    async def pull(self, at_least: int = 0) -> tuple[Any, int]:
        """Return the parameters as `exchange` does and their version, once it is this or later."""
        await self._wait(lambda: self._version >= at_least)
        return self._reply(), self._version

    async def leave(self, rank: int) -> None:
        """Let nobody wait any longer for this worker."""
        self._clocks.pop(rank, None)
        if self._point.staleness == 0:
            await self._update_if_complete()
        await self._notify()

    async def pause(self, rank: int) -> None:
        """Wait for no gradient of this worker until all have paused."""
        self._paused.add(rank)
        if self._paused >= self._clocks.keys():
            self._paused.clear()
        await self._update_if_complete()

    async def choose(self, version: int, ranks: frozenset[int]) -> None:
        """Make this version of the gradients of these ranks, as the leading shard does."""
        self._chosen[version] = ranks
        await self._update_if_complete()

    async def squared_norm(self, version: int) -> float:
        """Squared norm of the mean gradient here that makes this version, once it is there."""
        await self._wait(lambda: version in self._squared_norms)
        return self._squared_norms[version]

    async def _update_together(self, rank: int, gradient: Tensor, pulled: int) -> int:
        """Wait for the step's update; return how late the gradient came."""
        begun = self._begun
        is_late = self._point.drop_slowest > 0 and pulled < begun
        if is_late:
            await self._wait(lambda: self._version >= begun)
        else:
            used = asyncio.get_running_loop().create_future()
            self._waiting[rank] = (gradient, used)
            await self._update_if_complete()
            is_late = not await used
        return (self._version if is_late else begun) - pulled

    def _ranks_of_next(self) -> frozenset[int]:
        """Ranks whose gradients make the next update; none while one of them is missing."""
        if self._leads or not self._point.drop_slowest:
            # Nobody waits for workers that have left or paused.
            present = len(self._clocks.keys() - self._paused)
            needed = min(self._point.workers - self._point.drop_slowest, present)
            return frozenset(self._waiting if len(self._waiting) >= needed else ())
        chosen = self._chosen.get(self._begun + 1, frozenset())
        return frozenset(chosen if chosen <= self._waiting.keys() else ())

    async def _update_if_complete(self) -> None:
        if not (ranks := self._ranks_of_next()):
            return
        waiting, self._waiting = self._waiting, {}
        self._begun += 1
        self._chosen.pop(self._begun, None)
        followers = self._peers if self._leads and self._point.drop_slowest else ()
        choices = [peer.choose.remote(self._begun, ranks) for peer in followers]
        self._gradient.zero_()
        # In the order of ranks: sums of floats depend on it, results should not.
        for rank in sorted(ranks):
            self._gradient.add_(waiting[rank][0])
        self._gradient.div_(len(ranks))
        if self._point.clip_norm is not None:
            self._gradient.mul_(await self._clip_factor(self._point.clip_norm))
        self._update()
        for rank, (_, used) in waiting.items():
            used.set_result(rank in ranks)
        await self._notify()
        await asyncio.gather(*choices)

    async def _clip_factor(self, limit: float) -> float:
        """Factor that clips the mean gradient by its norm over all shards."""
        version = self._begun
        own = float(nn.utils.get_total_norm([self._gradient])) ** 2
        # A peer may still ask for that of the update before, never for an older one.
        self._squared_norms.pop(version - 2, None)
        self._squared_norms[version] = own
        await self._notify()
        others = await asyncio.gather(*(peer.squared_norm.remote(version) for peer in self._peers))
        return clip_factor(own + sum(others), limit)

    def _update(self) -> None:
        """Let the optimizer take a step by `_gradient`."""
        for parameter, part in zip(
            self._parameters, split(self._gradient, self._parameters), strict=True
        ):
            gradient_part = part.to(real_view(parameter).dtype)
            if parameter.is_complex():
                gradient_part = torch.view_as_complex(gradient_part)
            parameter.grad = gradient_part
        self._optimizer.step()
        self._gather()
        self._version += 1

    def _make_room(self, device: torch.device) -> None:
        """Allocate the values and gradients of all parameters, each in one tensor.

        Parameters of its type live there, so that a reply is one copy.
        """
        dtype = flat_dtype(self._parameters)
        numel = sum(real_view(parameter).numel() for parameter in self._parameters)
        self._gradient, self._values = torch.empty((2, numel), dtype=dtype, device=device)
        self._gather()
        for parameter, view in zip(
            self._parameters, split(self._values, self._parameters), strict=True
        ):
            if parameter.dtype == dtype:
                parameter.data = view

    def _gather(self) -> None:
        """Copy the parameters that live elsewhere: of other types, or moved by an optimizer."""
        for parameter, view in zip(
            self._parameters, split(self._values, self._parameters), strict=True
        ):
            if parameter.data_ptr() != view.data_ptr():
                view.copy_(real_view(parameter))

    def _reply(self) -> Any:
        """The parameters as `keep` gives them, once for all workers that pull this version."""
        if self._kept[0] != self._version:
            self._kept = (self._version, self._keep(self._values.cpu().numpy()))
        return self._kept[1]

    async def _notify(self) -> None:
        async with self._changed:
            self._changed.notify_all()

    async def _wait(self, reached: Callable[[], bool]) -> None:
        async with self._changed:
            await self._changed.wait_for(reached)


def _device_of(point: Point) -> torch.device:
    """Device of a server's parameters: its process sees one GPU at most."""
    return torch.device("cuda" if point.server_device == "gpu" else "cpu")


def _make_optimizer(
    parameters: Sequence[Tensor],
    *,
    make_optimizer: MakeOptimizer,
    point: Point,
    device: torch.device,
) -> tuple[Any, list[nn.Parameter]]:
    """Make the optimizer of a shard; return it with the shard's parameters.

    Args:
        parameters: as `Shard.reset` has them.
        make_optimizer: from all parameters of the model.
        point: of the trial.
        device: of the shard.

    Raises:
        ValueError: as `Shard.reset` says.
    """
    everyone = [
        nn.Parameter(
            value if value.is_meta else value.to(device, copy=True),
            requires_grad=value.requires_grad or not value.is_meta,
        )
        for value in parameters
    ]
    optimizer = make_optimizer(everyone)
    refuse_sparse_adam(optimizer, point.sync)
    _keep_own(optimizer, everyone)
    return optimizer, [parameter for parameter in everyone if not parameter.is_meta]


def flat_dtype(parameters: Sequence[Tensor]) -> torch.dtype:
    """Type of the values of a shard: double where a parameter is, else float."""
    doubles = (torch.float64, torch.complex128)
    if any(parameter.dtype in doubles for parameter in parameters):
        return torch.float64
    return torch.float32


def split(values: Tensor, parameters: Sequence[nn.Parameter]) -> list[Tensor]:
    """Divide the values of a shard among its parameters, in the shapes of their real views."""
    shapes = [real_view(parameter).shape for parameter in parameters]
    parts = values.split([shape.numel() for shape in shapes])
    return [part.view(shape) for part, shape in zip(parts, shapes, strict=True)]


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
