"""Closed sets: ends of an attempt, those that are retried, flags, and phases of a step."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

STATUS_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "ok": "measured",
        "skipped": "not run: the column `reason` says why",
        "oom_device": "a worker ran out of device memory",
        "oom_host": "a worker's machine ran out of memory",
        "hang": "the workers did not finish by the deadline",
        "rank_died": "a worker process ended",
        "node_lost": "a machine went away",
        "preempted": "a machine was taken back by its owner",
        "collateral": "ended by the failure of a peer of its trial, of its session, or of the "
        "process of its slot",
        "nan": "the loss was not finite",
        "wrong_gradient": "the workers' gradients were not exchanged",
        "wrong_parameters": "the workers' parameters differ after an exchange",
        "wrong_traffic": "the workers sent more or less than the mode sends",
        "wrong_samples": "a training loop of the user loads other samples than its axes promise",
        "wrong_grid": "other workers of a script share a model than its arguments promise",
        "user_error": "the workload raised an exception",
        "infeasible": "the cluster can't hold the workers, or its GPUs can't have the precision",
        "no_nodes": "the machines did not come in time",
        "timeout": "fewer than 3 steps in a window of ten minutes, or of `max_seconds` if longer",
        "cancelled": "interrupted by the user",
        "budget": "cut, because the money or the time of the run was spent",
        "storage": "measured, but its numbers could not be stored",
        "launch_failed": "the workers could not be started: an import, or the group in which they "
        "exchange",
        "version_mismatch": "the workers' versions differ from the driver's",
    }
)
STATUSES = frozenset(STATUS_MEANINGS)
"""Ways in which an attempt can end: a closed set."""

CANARY_DRIFT = 0.02
"""Largest difference between canaries of a world on a steady machine, as a share.

A larger difference that is not due to chance means that the machine has changed.
"""

FLAG_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "implausible": "numbers that can't all be true: the column `implausible` says which",
        "imprecise": "the mean step time is known less well than `half_width` asked for",
        "few_steps": "`max_seconds` was over before 8 steps, or 8 sync periods of a mode that has "
        "them",
        "drift": "the step time still rose or fell when the window ended, or its level shifted: "
        "no interval within the window",
        "unstable": "soon after the window the same steps took another time; found with "
        "exchange='precise' alone",
        "stalled": "one step took more than half of the window, as if its process had been stopped",
        "client_late": "the client of an open loop sent requests late, by 3 % of their latency or "
        "more: take a lower rate, or a machine that is less busy",
        "requests_lost": "requests of an open loop had an error: `requests_lost` counts them, and "
        "the log of rank 0 has the first",
        "requests_late": "requests of an open loop had no answer in time: `requests_late` counts "
        "them",
        "slow_start": "the first steps, a quarter of the window's time or more, were slower: they "
        "are left out of the numbers",
        "spiky": "significantly more than 1 % of the steps are outliers among their neighbours",
        "bimodal": "step times come in two clusters, so a median says little",
        "autocorrelated": "neighbouring steps resemble each other over more than five steps",
        "recompiled": "something was compiled inside the window, or inside one that was measured "
        "again for that",
        "timer_mismatch": "the steps add up to another time than the window, by more than 0.5 %",
        "unrepeatable": "`batch` gives other data for the same sample numbers, so that runs differ "
        "in their samples",
        "summed_losses": "a step of the loop has several backward passes, and `loss` is the sum of "
        "theirs: of micro-batches, or of several losses",
        "input_bound": "waiting for data takes more than 5 % of a step, which need not be what "
        "limits it",
        "bf16_emulated": "the GPU has no bf16 in hardware (compute capability below 8.0), "
        "so times are those of an emulation",
        "same_batches": "workers that exchange their gradients loaded the same batches: the "
        "DataLoader needs a DistributedSampler",
        "loader_unchanged": "no DataLoader from which the loop takes batches has the value of an "
        "axis `loader.NAME`: there is none, it was made before the loop, or it has no processes "
        "to prefetch in",
        "shared_gpu": "other processes used the device",
        "throttled": "the device lowered its clock for heat, or on a signal of its hardware "
        "(slowdown, power brake)",
        "ecc": "the device's memory had errors (ECC) in the window",
        "xid": "the device's driver reported an error (Xid) in the window",
        "clock_low": "a busy device ran at less than 90 % of the clock of the world's other busy "
        "devices of its model",
        "window_short": "`Measure(energy=True)` asked for energy, which is null: the window is "
        "under 5 s",
        "oom_retry": "the allocator ran full, emptied its cache and tried again",
        "memory_left": "the trial left memory behind, so the next one got a new session",
        "one_block": "the model has repeated modules, but was sharded as one unit, so nothing is "
        "freed while it computes: name them by `blocks(model)` of the workload",
        "left_state": (
            "the workload changed its process (environment variables, working directory, threads, "
            "…), which was restored, or files of yours: `left_state` in `ranks` says what"
        ),
        "canary_drift": f"over {CANARY_DRIFT * 100:.0f} % and more than chance from its world's "
        "earlier canaries of this run",
        "adjacent_launches": "the repeats of a world followed each other",
    }
)
"""Flags with the doubt that each casts on a row's numbers: a closed set."""

ABOVE_LINEAR = "above_linear"
"""Caution, not a flag: a speed-up that is more than the number of workers explains."""

CAUTIONS = (
    "implausible",
    "same_batches",
    "loader_unchanged",
    ABOVE_LINEAR,
    "drift",
    "unstable",
    "stalled",
    "requests_lost",
    "requests_late",
    "slow_start",
)
"""Flags of numbers that can't be true, and of a window unlike the rest of the job.

A report shows them next to the numbers.
"""

UNSOUND = ("implausible", "same_batches", "loader_unchanged")
"""Cautions with which a point is never recommended."""

PHASE_MEANINGS: Mapping[str, str] = MappingProxyType(
    {
        "data": "loading the batches of a step",
        "queue": "waiting of a request until its batch is served, in an open loop",
        "forward": "forward passes of a step; of inference until the first output",
        "backward": "backward passes of a step, with the communication that hides behind them",
        "decode": "outputs of a batch after the first",
        "respond": "from the last output of a request until its client has it, in an open loop",
        "compress": "compressing and decompressing what travels",
        "sync": "exchange between workers that a step waits for",
        "optimizer": "update of the parameters in a step",
        "loop": "a step of the user's own training loop without loading its batches",
    }
)
"""The parts of a step, in the order in which they usually come."""

FINE = frozenset({"ok", "skipped", "oom_device"})
"""Statuses of trials that need no attention of the user: out of memory is an answer, too."""

CUT = frozenset({"cancelled", "budget"})
"""Statuses of attempts that the end of their run has cut: their trials are left."""

WRONG = ("wrong_gradient", "wrong_parameters", "wrong_traffic", "wrong_samples", "wrong_grid")
"""Ends of a trial that trained something else than its mode says."""

FINAL = frozenset({"ok", "oom_device", "nan", *WRONG, "user_error", "timeout"})
"""Not measured again when a sweep is resumed."""

RETRIED = frozenset({"rank_died", "node_lost", "preempted", "collateral"})
"""Measured up to two more times within one run."""

ATTEMPTS = 3
"""Attempts at a trial within one run, where the fault was not its own."""


def is_retried(status: str, *, attempt: int) -> bool:
    """True if a trial is measured again within the run."""
    return status in RETRIED and attempt < ATTEMPTS
