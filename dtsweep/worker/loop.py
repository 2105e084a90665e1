"""The timed loop of one rank: runs a mode's steps, segment after segment, and keeps their times."""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from dtsweep.measure.clock import StepClock, Times, clock_for
from dtsweep.sync.batches import BatchSource
from dtsweep.sync.compiled import compiled_so_far
from dtsweep.sync.mode import Job, Loss, SyncMode
from dtsweep.sync.passes import batches_of_steps


@dataclass(frozen=True, kw_only=True)
class Segment:
    """Steps that were run in one go."""

    name: str
    """`warmup`, `window`, `exchange` or `no_exchange`."""

    blocks: tuple[int, ...]
    """Block numbers among which the steps after the window are divided; only -1 without blocks."""

    began: float
    times: Times
    most_idle: Times
    """Upper limits of the device's idle time, by phase and step; empty on a CPU."""

    losses: list[Loss] = field(default_factory=list)
    """Of each step."""

    turn: int = -1
    """Number of a window's turn; -1 where points are not measured in turn."""


class ModeLoop:
    """Runs a mode's steps and keeps their times, segment by segment."""

    def __init__(self, job: Job, mode: SyncMode) -> None:
        """Begin with the first samples."""
        self.job, self.mode = job, mode
        self.clock = clock_for(job.device)
        self._source = BatchSource(job)
        self._batches = batches_of_steps(job, lambda: mode.slot, self._source)
        self._steps_taken = 0
        self.segments: list[Segment] = []
        self.drained_s = 0.0
        self.steps_begun = 0
        self.compiled_before = compiled_so_far()

    def run(
        self,
        name: str,
        window: Iterable[int],
        *,
        blocks: tuple[int, ...] = (-1,),
        lead: int = 0,
        drain: bool = False,
    ) -> float:
        """Timed loop: as many steps as the window has, and nothing else between start and end.

        Args:
            name: of the segment.
            window: has an element for each step.
            blocks: of the segment.
            lead: steps that go before, so that the first of the window follows one like it; they
                are not kept.
            drain: whether what is still under way then ends inside the measured time.

        Returns:
            Seconds from start to end, the lead included.
        """
        losses = []
        without: Collection[str] = ()
        if name == "no_exchange":
            without = self.job.point.mode.can_leave_out
        # Once, before the first step.
        self._source.start(self._steps_taken * self.job.point.accumulation)
        self.clock.start()
        for _ in itertools.chain(range(lead), window):
            losses.append(self.step(without=without))
            self.clock.end_step()
        began_drain = time.perf_counter()
        if drain:
            self.mode.drain()
        self.drained_s = time.perf_counter() - began_drain
        seconds = self.clock.stop()
        if not drain:
            self.mode.pause()
            self.end_run()
        self.segments.append(
            Segment(
                name=name,
                blocks=blocks,
                began=self.clock.began,
                times=without_lead(lead, self.clock.times()),
                losses=losses[lead:],
                most_idle=without_lead(lead, self.clock.most_idle()),
            )
        )
        return seconds

    def next_batches(self) -> Iterator[Any]:
        """This rank's batches of the next step."""
        self._steps_taken += 1
        return next(self._batches)

    def close(self) -> None:
        """End the processes that load batches; also called after a failure."""
        self._source.close()

    def step(
        self,
        *,
        without: Collection[str] = (),
        through: Callable[[Iterator[Any]], Iterator[Any]] = lambda batches: batches,
        clock: StepClock | None = None,
    ) -> Loss:
        """Do one step, whose batches go through a function, by the loop's clock or another."""
        self.steps_begun += 1
        batches = through(self.next_batches())
        return self.mode.step(batches, clock or self.clock, without=without)

    def end_run(self) -> None:
        """End what is still under way after some steps, where others may follow."""
        if self.job.point.mode.can_restart:
            self.mode.drain()

    def take_losses(self) -> NDArray[np.float64]:
        """Losses of the last run, (steps,), which is not kept among a trial's steps.

        Nan where a step had none.
        """
        return numbers_of(self.segments.pop().losses)

    def columns(self) -> dict[str, NDArray[Any]]:
        """The columns of `steps`, segment after segment; starts count from the window's."""
        columns = columns_of_segments(self.segments, unknown=np.nan)
        if self._has_loss():
            columns["loss"] = _joined(
                numbers_of(segment.losses)
                if segment.name in ("warmup", "window")
                else np.full(len(segment.losses), np.nan)
                for segment in self.segments
                if len(segment.losses)
            )
        if self.job.point.draws_participants:
            columns["trains"] = _joined(_trains(segment.losses) for segment in self.segments)
        return columns

    def _has_loss(self) -> bool:
        """True if this rank's steps have a loss; where workers are drawn, if some have.

        Raises:
            ValueError: only some of them have, although all groups train in each step.
        """
        losses = [loss for segment in self.segments for loss in segment.losses]
        without = sum(loss is None for loss in losses)
        if self.job.point.draws_participants:
            return without < len(losses)
        if without and without < len(losses):
            raise ValueError(
                f"{without} of {len(losses)} steps returned no loss on rank {self.job.rank}; "
                "return one in each step, or None in each"
            )
        return not without

    def trained_steps(self) -> int | None:
        """Number of steps of the last segment in which this rank trained.

        None where all data-parallel groups train in each step.
        """
        if not self.job.point.draws_participants:
            return None
        return int(_trains(self.segments[-1].losses).sum())

    def demote(self) -> None:
        """Count the last window as warm-up."""
        self.segments[-1] = replace(self.segments[-1], name="warmup")

    def join_turn(self, turn: int, *, after_s: float) -> None:
        """Let the last window be a turn, as if it had begun so long after the first one."""
        began = window_of(self.segments).began + after_s
        self.segments[-1] = replace(self.segments[-1], turn=turn, began=began)


@contextlib.contextmanager
def without_collector(*, keep: bool) -> Iterator[None]:
    """Collect garbage now, and disable the collector in this context unless it is to stay on."""
    was_on = gc.isenabled()
    gc.collect()
    if not keep:
        gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def window_of(segments: Sequence[Segment]) -> Segment:
    """The window of these segments, or its first turn."""
    return next(segment for segment in segments if segment.name == "window")


def columns_of_segments(segments: Sequence[Segment], *, unknown: float) -> dict[str, NDArray[Any]]:
    """Columns of `steps` but for losses, segment after segment; starts count from the window's.

    Args:
        segments: steps that were run.
        unknown: stands for a time that a segment does not have.
    """
    window = window_of(segments)
    names = dict.fromkeys(name for segment in segments for name in segment.times)
    counts = [len(segment.times["step_s"]) for segment in segments]
    counted = list(zip(segments, counts, strict=True))
    columns: dict[str, NDArray[Any]] = {
        name: _joined(
            segment.times.get(name, np.full(count, unknown)) for segment, count in counted
        )
        for name in names
    }
    columns["start_s"] = _joined(
        segment.times["start_s"] + segment.began - window.began for segment in segments
    )
    columns["part"] = np.repeat([segment.name for segment in segments], counts)
    columns["block"] = _joined(
        np.repeat(segment.blocks, count // len(segment.blocks)) for segment, count in counted
    )
    columns["step"] = np.arange(sum(counts))
    if any(segment.turn >= 0 for segment in segments):
        columns["turn"] = np.repeat([segment.turn for segment in segments], counts)
    return columns


def without_lead(lead: int, times: Times) -> Times:
    """Times of the steps that follow the lead."""
    return {column: values[lead:] for column, values in times.items()}


def _joined(arrays: Iterable[NDArray[Any]]) -> NDArray[Any]:
    return np.concatenate(list(arrays))


def numbers_of(losses: Sequence[Loss]) -> NDArray[np.float64]:
    """Losses as numbers, (steps,); nan where a step has none."""
    numbers = np.full(len(losses), np.nan)
    on_device = {at: loss for at, loss in enumerate(losses) if isinstance(loss, torch.Tensor)}
    if on_device:
        fetched = torch.stack([*on_device.values()]).double().cpu()
        numbers[[*on_device]] = fetched.numpy()
    on_host = {at: loss for at, loss in enumerate(losses) if isinstance(loss, float | int)}
    numbers[[*on_host]] = [*on_host.values()]
    return numbers


def _trains(losses: Sequence[Loss]) -> NDArray[np.bool_]:
    """Mark the steps in which a rank trained, where workers are drawn: (steps,)."""
    return np.array([loss is not None for loss in losses], dtype=np.bool_)
