"""`parameter_server`: workers push gradients to shards, which update parameters; workers pull them.

The worker's side; `shard` has the other. How far workers may run apart is `staleness`: 0 is
bulk-synchronous (one update per clock, on the mean gradient), a number bounds the clocks, None has
no bound. With `push_period` and `pull_period` it is Downpour SGD (Dean et al. 2012, algorithm 7.1):
with n workers and the learning rate α a step is

    g ← gradient at x;  a ← a + g;  x ← x − (α / n) g
    every `push_period` steps: push a;  a ← 0
    every `pull_period` steps: x ← the servers' parameters

The servers divide a push by n, and so does a worker in its own copy x.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import ray
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from dtsweep.compression.exchange import WATCHED
from dtsweep.measure.clock import StepClock
from dtsweep.servers.pushes import Pushes, read_only
from dtsweep.servers.shard import Flat, flat_dtype, split
from dtsweep.sweep.travel import send_modules_by_name
from dtsweep.sync.buckets import real_view, trainable_parameters
from dtsweep.sync.clipping import clip, clip_factor
from dtsweep.sync.mode import Job, Loss, MakeOptimizer, SyncMode
from dtsweep.sync.passes import passes, share_weights


class ParameterServer(SyncMode):
    """The worker's side: push the gradient of a step, pull the parameters for the next."""

    def __init__(self, job: Job) -> None:
        """Take the trial as one rank sees it; `job.servers` are the shards."""
        super().__init__(job)
        self._bytes_sent = self._messages_sent = 0
        self._late: list[int] = []
        self._dropped: list[bool] = []
        self._steps = 0
        self._accrued: dict[int, Tensor] = {}
        self._is_watched = False
        self._seen = (0.0, 0.0)

    def prepare(self, model: nn.Module, make_optimizer: MakeOptimizer) -> None:
        """Spread the parameters over the shards; rank 0's values are everybody's."""
        self._model = model
        everyone = list(model.parameters())
        self._trained = trainable_parameters(model)
        self._pieces = deal(self._trained, len(self._job.servers))
        self._dtypes = [flat_dtype(piece) for piece in self._pieces]
        self._versions = [0] * len(self._pieces)
        point = replace(self._job.point, workload=None)
        self._pushes = [
            Pushes(
                point,
                [real_view(p).shape for p in piece],
                self._job.device,
                dtype=dtype,
                notes_norm=self._clips_pushes,
            )
            for piece, dtype in zip(self._pieces, self._dtypes, strict=True)
        ]
        error: Exception | None = None
        if self._job.rank == 0:
            values = [_with_places(everyone, piece) for piece in self._pieces]
            try:
                # The workload goes with its optimizer.
                send_modules_by_name()
                resets = []
                for index, server in enumerate(self._job.servers):
                    peers = [peer for peer in self._job.servers if peer is not server]
                    resets.append(
                        server.reset.remote(
                            values[index], make_optimizer, point, peers, leads=index == 0
                        )
                    )
                self.optimizer_class = ray.get(resets)[0]
            except Exception as raised:  # noqa: BLE001  # the user's optimizer may raise anything
                # Of an error on a server Ray's message is many lines.
                error = getattr(raised, "cause", None) or raised
        # Others would wait for a rank that gave up alone.
        has_failed = [error is not None]
        torch.distributed.broadcast_object_list(has_failed, src=0)
        if error is not None:
            raise error
        if has_failed[0]:
            raise torch.distributed.DistError("rank 0 could not reset the servers")
        # Also the barrier: nobody pushes before rank 0 has reset the shards.
        share_weights(model)

    def begin_period(self, done: int) -> None:
        """Count on from there: with 0 the next period is a whole one."""
        self._steps = done

    def step(self, batches: Iterator[Any], clock: StepClock, without: Collection[str] = ()) -> Loss:
        """Pass; push and pull at all shards at once, if both are due in this step."""
        if without:
            raise NotImplementedError(
                "the update happens on the server: a step without exchange trains nothing"
            )
        point = self._job.point
        loss = passes(self._job, self._model, batches, clock)
        self._steps += 1
        pushes = self._steps % point.push_period == 0
        pulls = self._steps % point.pull_period == 0
        if point.period > 1:
            clip(self._trained, point.clip_norm)
            if not pulls:
                self._update_own_copy()
            if point.push_period > 1:
                self._accrue()
            clock.mark("optimizer")
        if self._is_watched:
            if pushes:
                self._compare([self._take(place) for place in range(len(self._pieces))])
        elif pushes:
            self._push(clock, pulls=pulls)
        elif pulls:
            self._pull()
        self._model.zero_grad()
        if (pushes or pulls) and not self._is_watched:
            clock.mark("sync")
        return loss

    @torch.no_grad()
    def _update_own_copy(self) -> None:
        """Descend by this worker's gradient; the next pull replaces the result."""
        rate = self._job.point.learning_rate / self._job.point.workers
        for parameter in self._trained:
            if parameter.grad is not None:
                parameter.add_(parameter.grad, alpha=-rate)

    def _accrue(self) -> None:
        """Add the gradients to those that the next push will have."""
        for place in range(len(self._pieces)):
            gradients = self._gradients(place)
            if place in self._accrued:
                self._accrued[place].add_(gradients)
            else:
                self._accrued[place] = gradients

    def _take(self, place: int) -> Tensor:
        """Gradients to push to one shard: the accrued ones, or those of this step alone."""
        if place in self._accrued:
            return self._accrued.pop(place)
        return self._gradients(place)

    def _push(self, clock: StepClock, *, pulls: bool) -> None:
        packed: Iterable[NDArray[Any]] = (
            pushes.pack(self._take(place)) for place, pushes in enumerate(self._pushes)
        )
        if self._job.point.compression or self._clips_pushes:
            packed = list(packed)
            clock.mark("compress")
        factor = self._factor()
        calls = []
        # One shard after another: without compression each copy of gradients is freed once sent.
        for shard, pushed, version in zip(self._job.servers, packed, self._versions, strict=True):
            self._bytes_sent += pushed.nbytes
            calls.append(
                shard.exchange.remote(self._job.rank, pushed, version, factor, pulls=pulls)
            )
        self._messages_sent += len(calls)
        answers = ray.get(calls)
        late = max(late for _, _, late in answers)
        is_dropped = bool(late and self._job.point.drop_slowest)
        if self._job.point.drop_slowest:
            self._dropped.append(is_dropped)
        if not is_dropped:
            self._late.append(late)
        if pulls:
            self._take_over([(values, version) for values, version, _ in answers])
        else:
            # Its own copy has the push already.
            self._versions = [version + 1 for version in self._versions]

    def _pull(self) -> None:
        self._take_over(ray.get([shard.pull.remote() for shard in self._job.servers]))

    def _take_over(self, answers: Sequence[tuple[Any, int]]) -> None:
        """Use these parameters of all shards, by their versions."""
        answers = _fetched(answers)
        if self._job.point.drop_slowest:
            # A worker whose gradient was dropped may find one shard before an update, another
            # behind it.
            while behind := _behind(answers):
                for place, version in behind.items():
                    again = ray.get(self._job.servers[place].pull.remote(version))
                    answers[place : place + 1] = _fetched([again])
        for piece, (values, _) in zip(self._pieces, answers, strict=True):
            _assign(piece, values)
        self._versions = [version for _, version in answers]

    @property
    def _clips_pushes(self) -> bool:
        """True if each push is clipped; with `staleness=0` servers clip the mean of all."""
        return self._job.point.clip_norm is not None and self._job.point.staleness != 0

    def _factor(self) -> float:
        """Factor by which servers clip the gradients of this step's pushes."""
        limit = self._job.point.clip_norm
        if limit is None or not self._clips_pushes:
            return 1.0
        squared_norm = sum(pushes.squared_norm for pushes in self._pushes)
        return clip_factor(squared_norm, limit * self._job.point.push_period)

    def _gradients(self, place: int) -> Tensor:
        """Gradients for one shard: (elements,).

        Each is freed once it is copied. A parameter that no pass used has zeros.
        """
        parameters = self._pieces[place]
        values = _room(
            sum(real_view(parameter).numel() for parameter in parameters),
            dtype=self._dtypes[place],
            device=self._job.device,
        )
        for parameter, part in zip(parameters, split(values, parameters), strict=True):
            if parameter.grad is None:
                part.zero_()
            else:
                part.copy_(real_view(parameter.grad.to_dense().resolve_conj()))
                parameter.grad = None
        return values

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

    def pause(self) -> None:
        """Let nobody wait for a worker that was dropped less often than others."""
        if self._job.point.drop_slowest:
            ray.get([shard.pause.remote(self._job.rank) for shard in self._job.servers])

    def drain(self) -> None:
        """Leave, so that nobody waits for a worker that has ended its window."""
        ray.get([shard.leave.remote(self._job.rank) for shard in self._job.servers])

    def counters(self) -> Mapping[str, Any]:
        """Return bytes and number of pushes, each one's staleness, and which were dropped."""
        counted: dict[str, Any] = {
            "bytes_sent": self._bytes_sent,
            "messages_sent": self._messages_sent,
            "staleness": self._late,
            "dropped": self._dropped,
        }
        self._bytes_sent = self._messages_sent = 0
        self._late, self._dropped = [], []
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


def _room(numel: int, *, dtype: torch.dtype, device: torch.device) -> Tensor:
    """An empty tensor."""
    if device.type != "cpu":
        return torch.empty(numel, dtype=dtype, device=device)
    # NumPy asks for huge pages: large memory that is new in each step comes in a third of the time.
    return torch.from_numpy(np.empty(numel * dtype.itemsize, np.uint8)).view(dtype)


def _fetched(answers: Sequence[tuple[Any, int]]) -> list[tuple[Flat, int]]:
    """Replies with values in the place of references to Ray's object store."""
    stored = [place for place, (values, _) in enumerate(answers) if type(values) is ray.ObjectRef]
    fetched = list(answers)
    arrived = ray.get([answers[place][0] for place in stored])
    for place, values in zip(stored, arrived, strict=True):
        fetched[place] = (values, answers[place][1])
    return fetched


def _behind(answers: Sequence[tuple[Flat, int]]) -> dict[int, int]:
    """Places of the shards whose parameters are older than another's, and its version."""
    latest = max(version for _, version in answers)
    return {place: latest for place, (_, version) in enumerate(answers) if version < latest}


def _with_places(everyone: Sequence[nn.Parameter], own: Sequence[nn.Parameter]) -> list[Tensor]:
    """Values of a shard's parameters, and places without memory for all others."""
    of_shard = {id(parameter) for parameter in own}
    return [
        p.detach().cpu()
        if id(p) in of_shard
        else torch.empty_like(p, device="meta", requires_grad=p.requires_grad)
        for p in everyone
    ]


def _assign(parameters: Sequence[nn.Parameter], values: Flat) -> None:
    begin = 0
    for parameter in parameters:
        view = real_view(parameter)
        view.copy_(read_only(values[begin : begin + view.numel()]).view(view.shape))
        begin += view.numel()
