"""Training to a loss before a trial's window: evaluated on the way, kept in checkpoints."""

from __future__ import annotations

import math
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException

from dtsweep.errors import error_line
from dtsweep.hardware.device import barrier
from dtsweep.hardware.random_states import random_states_kept
from dtsweep.measure.isolated_exchange import max_over_ranks, mean_over_ranks
from dtsweep.sweep.task import Task
from dtsweep.worker.loop import ModeLoop
from dtsweep.worker.training_state import TrainingState

_SHARE = 0.05
"""Most of the time of a training that its evaluations, or its checkpoints, may take."""

_GROWTH = 0.02
"""Least time between two evaluations, as a share of the training so far."""

_LEAST_S = 0.05
"""Least seconds of training between two evaluations."""

_CHECKPOINT_EVERY_S = 5.0
"""Least seconds of training between two checkpoints."""


@dataclass(frozen=True, kw_only=True)
class _Evaluation:
    """State of a training; a row of `curves`."""

    steps: int
    samples: int
    """Over all workers."""
    trained_s: float
    """Training on the slowest worker, without evaluations and checkpoints."""
    loss: float
    """Mean over workers of what `evaluate` gives, else of the steps since the last evaluation."""
    training_loss: float
    """Mean over the workers' steps since the last evaluation; nan before the first step."""


class Training:
    """Trains a new model of a mode until its loss is the target, or its time is over."""

    def __init__(self, loop: ModeLoop, model: nn.Module, task: Task) -> None:
        """Take a loop that has made no step.

        Args:
            loop: of the trial.
            model: whose parameters the mode trains, without a wrapper.
            task: with the target; without one there is no training.
        """
        self._loop, self._model, self._task = loop, model, task
        self._device = loop.job.device
        self._evaluate_with = getattr(loop.job.point.workload, "evaluate", None)
        self._curve: list[_Evaluation] = []
        self._steps = 0
        """Of this rank."""
        self._evaluate_s = self._step_s = self._saved_s = self._save_s = 0.0
        self._state = None
        parts = loop.mode.checkpoint_parts()
        if parts and task.checkpoint:
            self._state = TrainingState(
                task.checkpoint, *parts, rank=loop.job.rank, device=self._device
            )

    def run(self) -> dict[str, Any]:
        """Train; return fields of `Measured`, of rank 0 with the curve.

        Raises:
            ValueError: the mode can't be paused for an evaluation, or there is nothing to reach.
        """
        if not self._task.train_s:
            return {}
        point = self._loop.job.point
        if not point.mode.can_restart:
            raise ValueError(
                f"sync={point.sync} can't pause for an evaluation, so it can't be trained to a "
                "target; leave it out of such a goal"
            )
        if point.pipeline_parallel > 1 and self._evaluate_with is not None:
            raise ValueError(
                "evaluate(model) needs a whole model, and in a pipeline a worker has some stages; "
                "use pipeline_parallel=1, or a workload without evaluate"
            )
        self._go_on()
        if not self._curve and self._evaluate_with is not None:
            self._note(0, 0.0, np.array([]))
            self._refuse_start()
        while not self._is_over:
            losses, seconds = self._train(self._interval_s())
            self._note(len(losses), seconds, losses)
            self._keep()
        self._keep(is_last=True)
        return self._found()

    def forget(self) -> None:
        """Remove the checkpoint: the trial is measured."""
        if self._state is not None:
            self._state.forget()

    def _refuse_start(self) -> None:
        """Refuse a training that has nothing to reach.

        Raises:
            ValueError: the loss of the new model is the target already, or not a number.
        """
        if self._is_over:
            raise ValueError(
                f"evaluate gives {self._curve[0].loss:.4g} before the first step, and the target "
                f"is {self._task.target}; it must return a loss, less is better"
            )

    def _go_on(self) -> None:
        """Take a checkpoint of an earlier attempt, where there is one."""
        if self._state is None:
            return
        kept = self._state.load()
        if kept is None:
            return
        steps, curve = kept
        self._curve, self._steps = [_Evaluation(**row) for row in curve], steps
        self._saved_s = self._trained_s
        for _ in range(steps):
            self._loop.next_batches()
        print(f"dtsweep: training goes on after {steps} steps, from a checkpoint")  # noqa: T201  # the rank's log

    @property
    def _trained_s(self) -> float:
        return self._curve[-1].trained_s if self._curve else 0.0

    @property
    def _is_over(self) -> bool:
        """True if the target is reached or can't be, or at a limit; equal on all ranks."""
        if not self._curve:
            return False
        last = self._curve[-1]
        is_reached = self._task.target is not None and last.loss <= self._task.target
        is_at_limit = last.trained_s >= self._task.train_s or self._steps_left == 0
        return is_reached or is_at_limit or not math.isfinite(last.loss)

    @property
    def _steps_left(self) -> float:
        """Steps of a worker to the samples on which it trains, in whole sync periods."""
        if self._task.train_samples is None:
            return math.inf
        point, curve = self._loop.job.point, self._curve
        left = self._task.train_samples - (curve[-1].samples if curve else 0)
        return point.period * max(0, math.ceil(left / point.global_batch / point.period))

    def _interval_s(self) -> float:
        """Seconds until the next evaluation: so long that evaluations take few of them."""
        wanted = max(self._evaluate_s * (1 - _SHARE) / _SHARE, _GROWTH * self._trained_s, _LEAST_S)
        return min(wanted, self._task.train_s - self._trained_s)

    def _train(self, interval_s: float) -> tuple[NDArray[np.float64], float]:
        """Train for about so long: whole sync periods, equal on ranks that step together.

        Returns:
            The losses of this rank's steps, and the seconds of the slowest rank.
        """
        point = self._loop.job.point
        steps: Iterator[int] | range
        if point.is_asynchronous:
            steps = _for_seconds(interval_s)
        else:
            # The first one shows how long a step takes.
            periods = 1
            if self._step_s:
                periods = max(1, round(interval_s / self._step_s / point.period))
            steps = range(int(min(periods * point.period, self._steps_left)))
        barrier(self._device)
        own_s = self._loop.run("window", steps, drain=True)
        losses = self._loop.take_losses()
        (seconds,) = max_over_ranks(self._device, own_s)
        self._step_s = seconds / len(losses)
        return losses, seconds

    def _note(self, steps: int, seconds: float, losses: NDArray[np.float64]) -> None:
        """Evaluate after so many further steps."""
        point = self._loop.job.point
        # Some workers have no loss: those that were not drawn, and early stages of a pipeline.
        is_known = np.isfinite(losses)
        held_out = self._evaluated()
        counts = np.array([steps, is_known.sum(), losses[is_known].sum(), held_out])
        mean_steps, mean_known, mean_sum, held_out = mean_over_ranks(self._device, counts)
        with np.errstate(invalid="ignore", divide="ignore"):
            training_loss = mean_sum / mean_known
        loss = held_out
        if self._evaluate_with is None:
            loss = training_loss
        curve = self._curve
        before = 0
        if curve:
            before = curve[-1].samples
        self._steps += steps
        samples = mean_steps * point.global_batch
        curve.append(
            _Evaluation(
                steps=self._steps,
                samples=before + round(samples),
                trained_s=self._trained_s + seconds,
                loss=float(loss),
                training_loss=float(training_loss),
            )
        )

    def _evaluated(self) -> float:
        """Held-out loss of this rank by `evaluate`; nan without one. All ranks call it."""
        if self._evaluate_with is None:
            return math.nan
        began = time.perf_counter()
        self._model.eval()
        try:
            with random_states_kept(self._device), torch.no_grad():
                given = self._evaluate_with(self._model)
            try:
                loss = float(given)
            except (TypeError, ValueError, RuntimeError) as error:
                raise TypeError(
                    f"evaluate gave a {type(given).__name__}; it must return a number, the loss"
                ) from error
        finally:
            self._model.train()
        (self._evaluate_s,) = max_over_ranks(self._device, time.perf_counter() - began)
        return loss

    def _keep(self, *, is_last: bool = False) -> None:
        """Save a checkpoint, where the time since the last one is long enough for it."""
        if self._state is None:
            return
        least_s = max(_CHECKPOINT_EVERY_S, self._save_s * (1 - _SHARE) / _SHARE)
        if is_last:
            least_s = 0.0
        if self._trained_s - self._saved_s <= least_s:
            return
        began = time.perf_counter()
        try:
            self._state.save(self._steps, [asdict(row) for row in self._curve])
        except CheckpointException as error:  # on all ranks
            cause, _ = next(iter(error.failures.values()))
            print(f"dtsweep: the training is not kept: {error_line(cause)}", file=sys.stderr)  # noqa: T201
            self.forget()
            self._state = None
        (self._save_s,) = max_over_ranks(self._device, time.perf_counter() - began)
        self._saved_s = self._trained_s

    def _found(self) -> dict[str, Any]:
        """Columns of the training."""
        last = self._curve[-1]
        found: dict[str, Any] = {
            "final_loss": last.loss,
            "trained_samples": last.samples,
            "loss_by": "training" if self._evaluate_with is None else "evaluate",
            "curve": [asdict(row) for row in self._curve],
        }
        if self._task.target is not None:
            return found | self._to(self._task.target)
        if self._steps_left:
            # The loss of fewer samples is compared with none.
            found |= {"is_censored": True, "final_loss": None}
        return found

    def _to(self, target: float) -> dict[str, Any]:
        """Columns of the target; between two evaluations the loss is taken to fall in a line."""
        curve = self._curve
        last = curve[-1]
        time_s, samples, error_s = last.trained_s, float(last.samples), 0.0
        is_censored = not last.loss <= target
        if not is_censored and len(curve) > 1:
            before = curve[-2]
            share = (before.loss - target) / (before.loss - last.loss)
            time_s = before.trained_s + share * (last.trained_s - before.trained_s)
            samples = before.samples + share * (last.samples - before.samples)
            error_s = (last.trained_s - before.trained_s) / math.sqrt(12)
        return {
            "target_loss": target,
            "time_to_loss_s": time_s,
            "time_to_loss_s_error": error_s,
            "samples_to_loss": samples,
            "is_censored": is_censored,
        }


def _for_seconds(seconds: float) -> Iterator[int]:
    """Count steps until so much time has passed; one at least."""
    end, count = time.perf_counter() + seconds, 0
    while count == 0 or time.perf_counter() < end:
        yield count
        count += 1
