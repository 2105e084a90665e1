"""Status of an attempt whose window came to its end."""

from __future__ import annotations

import numpy as np

from dtsweep.measure.stopping import FEWEST_MEASURED
from dtsweep.metrics.rank_result import Measured, Steps
from dtsweep.sweep.modes import AS_WRITTEN, OWN
from dtsweep.sweep.point import Point
from dtsweep.sweep.task import Task
from dtsweep.worker.reference import tolerance_of

OTHER_GRADIENT = (
    "gradient_error {error:.2g} is above {most:g}: the exchanged gradient is not one worker's with "
    "the same samples; does loss depend on the rank, or do hooks exchange or scale gradients?"
)
"""Reason where `Measure(check=True)` found another gradient."""


OWN_EXCHANGES_NOTHING = (
    " (with sync=own dtsweep exchanges nothing: do prepare and train_step exchange all gradients?)"
)
"""Added to a reason for other training where the workload makes its model parallel by itself."""


def verdict_on(measured: Measured, task: Task, point: Point) -> tuple[str, str | None]:
    """Status and reason of an attempt at a point whose window came to its end."""
    steps = measured.steps
    count = int((steps["part"] == "window").sum())
    if measured.stop_reason == "max_seconds" and count < FEWEST_MEASURED:
        return "timeout", (
            f"{count} steps in a window of {measured.window_s:.0f} s, which is the limit; take a "
            "smaller batch, or raise max_seconds above it"
        )
    if measured.batch_fault:
        return measured.batch_fault
    if task.point.sync == AS_WRITTEN:
        # Its losses are not known, and it trains what it says.
        return "ok", None
    if wrong := _other_training(measured, point):
        return wrong
    return _on_losses(steps)


def _on_losses(steps: Steps) -> tuple[str, str | None]:
    """`nan` with its reason if a loss of warm-up or window is not finite, else `ok`."""
    if "loss" not in steps:
        # Another rank of its model has it.
        return "ok", None
    finite = np.isfinite(steps["loss"]) | ~np.isin(steps["part"], ("warmup", "window"))
    # A worker that was not drawn has no loss.
    finite |= ~steps.get("trains", np.ones_like(finite))
    if finite.all():
        return "ok", None
    step = int(np.argmin(finite))
    if step == 0:
        return "nan", "the loss is not finite in the first step, before any update"
    return "nan", f"the loss is not finite from step {step} on; lower learning_rate"


def _other_training(measured: Measured, point: Point) -> tuple[str, str | None] | None:
    """Status and reason of a trial that trained something else than its mode says."""
    error = measured.gradient_error
    hint = OWN_EXCHANGES_NOTHING if point.sync == OWN and point.workers > 1 else ""
    if measured.gradients_agree is False:
        detail = ""
        if error is not None:
            detail = f"; gradient_error {error:.2g}"
        return "wrong_gradient", f"{measured.gradients_reason}{detail}{hint}"
    most = tolerance_of(point)
    if error is not None and error > most and point.semantics == "exact":
        return "wrong_gradient", f"{OTHER_GRADIENT.format(error=error, most=most)}{hint}"
    if measured.parameters_agree is False:
        return "wrong_parameters", f"{measured.gradients_reason}{hint}"
    if measured.traffic_reason is not None:
        return "wrong_traffic", measured.traffic_reason
    return None
