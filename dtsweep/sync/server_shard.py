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

from dtsweep.sweep.point import Point
from dtsweep.sync.buckets import real_view
from dtsweep.sync.clipping import clip_factor
from dtsweep.sync.mode import MakeOptimizer
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
        self,
        parameters: list[Tensor],
        make_optimizer: MakeOptimizer,
        point: Point,
        peers: Sequence[Any] = (),
    ) -> str:
        """Serve a new trial.

        Args:
            parameters: all of the model, in its order, so that an optimizer divides them as it
                would in one place. Those of this shard have their initial values; frozen ones and
                those of other shards are on the meta device.
            make_optimizer: from parameters to their optimizer.
            point: of the trial, without its workload.
            peers: handles of the other shards.

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
        self._clip_norm = point.clip_norm
        self._peers = peers
        self._squared_norms: dict[int, float] = {}
        return type(self._optimizer).__name__

    async def exchange(
        self, rank: int, pushed: NDArray[Any], pulled: int, factor: float = 1.0
    ) -> tuple[Flat, int, int]:
        """Push a gradient; wait as the bound demands; pull.

        Args:
            rank: the worker.
            pushed: the gradient of this shard's parameters, as `Pushes` packs it.
            pulled: the version of the parameters that it was computed on.
            factor: of the gradient, where each push is clipped.

        Returns:
            The parameters, their version, and how many updates of others the gradient came late.
        """
        gradient = self._pushes[rank].unpack(pushed)
        if self._bound == 0:
            late = await self._update_together(rank, gradient, pulled)
        else:
            late = self._version - pulled
            self._update(gradient * (factor / self._workers))
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
            await self._update_if_complete()
        await self._notify()

    async def squared_norm(self, version: int) -> float:
        """Squared norm of the mean gradient here that makes this version, once it is there."""
        await self._wait(lambda: version in self._squared_norms)
        return self._squared_norms[version]

    async def _update_together(self, rank: int, gradient: Tensor, pulled: int) -> int:
        version = self._version
        self._waiting[rank] = gradient
        if await self._update_if_complete():
            await self._notify()
        else:
            await self._wait(lambda: self._version > version)
        return version - pulled

    async def _update_if_complete(self) -> bool:
        if not self._waiting or self._clocks.keys() - self._waiting.keys():
            return False
        # In the order of ranks: sums of floats depend on it, results should not.
        gradients = [self._waiting[rank] for rank in sorted(self._waiting)]
        self._waiting = {}
        mean = torch.stack(gradients).sum(dim=0) / len(gradients)
        if self._clip_norm is not None:
            mean = mean * await self._clip_factor(mean, self._clip_norm)
        self._update(mean)
        return True

    async def _clip_factor(self, mean: Tensor, limit: float) -> float:
        """Factor that clips the mean gradient by its norm over all shards."""
        version = self._version + 1
        own = float(nn.utils.get_total_norm([mean])) ** 2
        # A peer may still ask for that of the update before, never for an older one.
        self._squared_norms.pop(version - 2, None)
        self._squared_norms[version] = own
        await self._notify()
        others = await asyncio.gather(*(peer.squared_norm.remote(version) for peer in self._peers))
        return clip_factor(own + sum(others), limit)

    def _update(self, gradient: Tensor) -> None:
        for parameter, part in zip(
            self._parameters, split(gradient, self._parameters), strict=True
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


def flat_dtype(parameters: Sequence[Tensor]) -> torch.dtype:
    """Type of the values of a shard: double where a parameter is, else float."""
    doubles = (torch.float64, torch.complex128)
    if any(parameter.dtype in doubles for parameter in parameters):
        return torch.float64
    return torch.float32


def _flatten(tensors: Sequence[Tensor], dtype: torch.dtype) -> Tensor:
    """The values of tensors one after another, complex ones as pairs: (elements,)."""
    return torch.cat([real_view(tensor).reshape(-1).to(dtype) for tensor in tensors])


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
