"""The order of what follows a window, one for sync modes and training loops of users."""

from __future__ import annotations

import time
from collections.abc import Generator
from typing import Protocol

import torch

from dtsweep.hardware.memory import restart_peak
from dtsweep.measure.store_group import GaveUpError
from dtsweep.sweep.task import Task
from dtsweep.worker.in_step import StepError

Steps = Generator[None, None, None]
"""Gets control after each step of a training loop that goes on by itself.

A sync mode runs its steps inside, and yields nothing.
"""


class _Stages(Protocol):
    """Stages after a window on one rank; each keeps fields of `Measured`."""

    def checks(self) -> Steps:
        """See what a step does, and compare gradients and parameters of all ranks."""

    @property
    def goes_on(self) -> bool:
        """True if the checks leave steps that are worth their time."""

    def idle(self) -> None:
        """Limits of the share of a step in which this rank's GPU had no work."""

    def compression(self) -> None:
        """Compare a compressed exchange with that of the values themselves."""

    def exchange(self, spent_s: float) -> Steps:
        """Time the exchange; the parameters of ranks differ after that.

        Args:
            spent_s: on checks and compression, in seconds.
        """

    def note_failure(self, reason: str) -> None:
        """Set the reason of a failed step for all fields that are not known yet."""


def after_window(stages: _Stages, task: Task, device: torch.device) -> Steps:
    """Do what follows a window.

    After a failed step the trial keeps its row, without the fields that would have followed.
    """
    began = time.perf_counter()
    # The window's peak has been read. From here on it is that of single steps, without the build.
    restart_peak(device)
    try:
        yield from stages.checks()
        if stages.goes_on:
            began_idle = time.perf_counter()
            stages.idle()
            # The exchange has its time, however long this takes.
            began += time.perf_counter() - began_idle
            stages.compression()
            spent_s = time.perf_counter() - began
            # A canary watches the machine: only its window is of interest.
            if task.point.workers > 1 and not task.is_canary:
                yield from stages.exchange(spent_s)
    except (StepError, GaveUpError) as error:
        stages.note_failure(str(error))
