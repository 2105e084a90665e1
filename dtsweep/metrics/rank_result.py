"""Messages of a rank to its slot: its place, the outcome of its attempt, its measurements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.hardware.gpu_place import GpuPlace
from dtsweep.measure.warmup import Steadiness
from dtsweep.measure.work import StepWork
from dtsweep.sweep.point import Point

Steps = Mapping[str, NDArray[Any]]
"""Columns of the table `steps`, each (steps,), from warm-up to checks; times in seconds."""


@dataclass(frozen=True, kw_only=True)
class RankFacts:
    """Place of a rank: columns of `ranks` that stay the same from trial to trial."""

    node: str
    """Host name of its machine."""

    partition: str | None = None
    """Slurm's partition of its machine; None without Slurm."""

    switch: str | None = None
    """Switches above its machine, `spine.leaf1`; None without Slurm's topology."""

    pid: int
    device: str
    """Model of its device."""

    device_uuid: str | None
    """None on a CPU."""

    pci_bus_id: str | None = None
    """Of its GPU, or of the GPU that it has a slice of; None on a CPU, and if it is unknown."""

    threads: int
    """That PyTorch uses for one operation, unless a trial's workload sets others."""

    niceness: int
    machine: Mapping[str, Any]
    """Hardware, software and settings behind `env_id`; what is unknown is absent."""

    node_id: str | None = None
    """Ray's name of the machine."""

    log: str | None = None
    """Path of its log on that machine."""

    @property
    def gpu_place(self) -> GpuPlace | None:
        """Place of its GPU; None on a CPU."""
        if self.device_uuid is None:
            return None
        return GpuPlace(node=self.node, node_id=self.node_id, pci_bus_id=self.pci_bus_id)

    @property
    def compute_capability(self) -> tuple[int, int] | None:
        """CUDA compute capability of its GPU, (major, minor); None without one, or if unknown."""
        capability = self.machine.get("compute_capability")
        if capability is None:
            return None
        major, minor = capability.split(".")
        return int(major), int(minor)


@dataclass(frozen=True, kw_only=True)
class RankColumns:
    """Values of a rank that `ranks` stores as they are, in columns of these names."""

    window_s: float
    """From the common start until this rank's work is done, in seconds."""

    build_s: float | None = None
    """Seconds from receiving the task to the warm-up: model, first batches, mode, rates."""

    warmup_s: float | None = None
    """From then to the window's start, with windows that were measured again."""

    after_window_s: float | None = None
    """From the window's end until all is measured."""

    trained_steps: int | None = None
    """Steps of the window in which it trained, where workers are drawn; else None: in all."""

    memory_peak_bytes: int | None
    """None where several models were in memory."""

    memory_reserved_peak_bytes: int | None = None
    """That torch's allocator took from the GPU; None on a CPU."""

    bytes_sent: int | None = None
    """Payload that it sent in the window; None where that was not counted."""

    messages_sent: int | None = None
    """Calls that sent it; None where they were not counted."""

    pipeline_s: float | None = None
    """Seconds of the window in passes of a pipeline; None without one."""

    stage_busy_s: float | None = None
    """Of these, seconds in which its own stages computed."""

    matmul_flops_per_s: float | None = None
    """Of a large matrix product at the trial's precision."""

    moved_bytes_per_s: float | None = None
    """Of a large element-wise operation: read and written."""

    launch_s: float | None = None
    """To launch an operation, mean of forward and backward."""

    device_idle_low: float | None = None
    """Share of a step in which its GPU had no work in forward, backward and optimizer: at least."""

    device_idle_high: float | None = None
    """Upper end of the 95 % interval that `device_idle_low` begins; both None on a CPU."""


@dataclass(frozen=True, kw_only=True)
class TrialColumns:
    """Values of rank 0 that `trials` stores as they are, in columns of these names.

    They say what was trained, and what was seen of its gradients: a trial that failed has them too.
    """

    gradients_agree: bool | None = None
    """True if the ranks gave their optimizers the same gradients; None if that is unknown."""

    parameters_agree: bool | None = None
    """True if the ranks had the same parameters after an exchange; None if that is unknown."""

    gradients_reason: str | None = None
    """Difference between ranks, with the next step; or the reason why it is unknown."""

    device_idle_reason: str | None = None
    """Reason why the limits of a GPU's idle time are no closer; rank 0."""

    compression_error: float | None = None
    """Distance of a compressed exchange from the mean of the values themselves, by its norm."""

    model_digest: str | None = None
    """Of what was trained; rank 0 alone knows its FLOPs."""

    parameters: int | None = None
    """Elements of all parameters."""

    optimizer_class: str | None = None
    """Name of the optimizer that ran."""

    loop_learning_rate: float | None = None
    """Of a training loop of the user: its optimizer's learning rate at the window's end."""

    loop_precision: str | None = None
    """Of such a loop: type in which its model's products are computed."""

    loop_wrapper: str | None = None
    """Of such a loop: known wrappers of its model; `none` without one."""

    loop_reason: str | None = None
    """Reason why one of these is unknown."""

    is_weighted: bool | None = None
    """True if the workload weighs its batches."""

    blocks: str | None = None
    """Units into which the mode divided the model, in words."""

    attention_ran: str | None = None
    """Kernels of attention in a pass; None where none ran, or they were compiled."""

    skipped_updates: int | None = None
    """Updates of the window that fp16 left out; None in other precisions."""

    compile_s: float | None = None
    """Seconds in which torch compiled before the window's end; None where nothing was compiled."""

    compiled_graphs: int | None = None
    """Graphs that it compiled until then."""

    recompiles: int | None = None
    """Graphs that it compiled inside the window."""

    target_loss: float | None = None
    """Loss to which it was trained before the window; None where it was not."""

    time_to_loss_s: float | None = None
    """Seconds of training to the target; where it is censored, of all of it."""

    time_to_loss_s_error: float | None = None
    """Standard error of that by the time between two evaluations."""

    samples_to_loss: float | None = None
    """Samples of all workers until then."""

    is_censored: bool | None = None
    """True if the training ended before the target was reached."""

    final_loss: float | None = None
    """Loss at the end of that training, or of one on a number of samples."""

    trained_samples: int | None = None
    """Samples of all workers until then."""

    loss_by: str | None = None
    """Source of the loss: `evaluate` of the workload, or `training`."""

    requests_lost: int | None = None
    """Requests of an open loop's window that ended with an error."""

    requests_late: int | None = None
    """Those that had no answer when the wait after the window was over."""

    queue_share: float | None = None
    """Share of the answered requests' time in which they waited for their batch to begin."""

    first_token_s: float | None = None
    """Mean time from the scheduled arrival to the first token; None without tokens."""

    per_token_s: float | None = None
    """Mean time from a token to the next; None without several."""


@dataclass(frozen=True, kw_only=True)
class Measured(RankColumns, TrialColumns):
    """Measurements of a rank in a trial whose window was completed."""

    steps: Steps
    """`step`, `part`, `block`, `start_s`, `step_s`, `loss` and each phase that was marked.

    Where workers are drawn also `trains`, true in the steps in which it trained. The driver gives
    part `warmup` to the steps of the window that are still warming up (`mark_warmup`), so that
    `of_part` then gives measured steps alone.
    """

    window_steps: int
    """Steps of the window, with the warm-up that is found in it."""

    skipped_steps: int
    """Steps before the window."""

    stop_reason: str
    """Rule that ended the window."""

    flags: Sequence[str] = ()
    """Flags of this rank, names of `FLAG_MEANINGS`."""

    curve: Sequence[Mapping[str, Any]] = ()
    """Evaluations of a training to a target, rows of `curves`; rank 0."""

    threads: int | None = None
    """That PyTorch used for one operation in the window: the facts' or the workload's."""

    telemetry: Mapping[str, Any] = field(default_factory=dict)
    """Columns of `ranks` about its device and host in the window, stored as they come."""

    staleness: Sequence[int] = ()
    """(pushes,) updates by others between a pull and a push; empty where the mode has none."""

    dropped: Sequence[bool] = ()
    """(window_steps,) true if no update was made from the step's gradients; empty where all are."""

    peak_flops_per_s: float | None = None
    peak_source: str | None = None
    """`given`, `table` or `measured`."""

    samples_per_step: float | None = None
    """Of a training loop of the user: mean samples that this rank loaded per step of the window."""

    usual_samples: int | None = None
    """Samples of its usual step: those of the most frequent size of a batch."""

    samples_reason: str | None = None
    """Reason why they are unknown."""

    untaken: Sequence[str] = ()
    """Settings of axes `loader.NAME` that no `DataLoader` of this rank has."""

    model_parallel: int | None = None
    """Ranks that load the same batches as this one for parts of one model; None if unknown."""

    semantics: str | None = None
    """Of such a loop with several ranks: one of `SEMANTICS`, as gradients and parameters show."""

    work: StepWork | None = None
    """Time of a step's operations at those rates; rank 0 alone counts."""

    flops_per_sample: float | None = None
    """Of the model, without recomputation; rank 0 alone counts."""

    hardware_flops_per_sample: float | None = None
    """As above, with recomputation."""

    exchange_isolated_s: float | None = None
    """A step's exchange alone, in seconds."""

    exchange_isolated_error_s: float | None = None
    """Its standard error."""

    traffic_reason: str | None = None
    """Difference of the sent bytes from the mode's formula; None where there is none."""

    exchange_reason: str | None = None
    """Reason for missing steps without the exchange, if the mode can leave it out."""

    batch_fault: tuple[str, str] | None = None
    """Status and reason for a batch after the window that failed or has another size."""

    steadiness: Steadiness | None = None
    """Steady part of the window, and its drift.

    None until the driver has found the warm-up in the steps of all ranks.
    """

    @property
    def is_in_turn(self) -> bool:
        """True if its window is made of turns."""
        return "turn" in self.steps

    @property
    def steps_with_samples(self) -> int:
        """Steps of the window in which it trained."""
        if self.trained_steps is None:
            return self.window_steps
        return self.trained_steps

    @property
    def used_steps(self) -> int:
        """Steps of the window whose gradients updates were made from."""
        return self.steps_with_samples - sum(self.dropped)

    def is_used(self) -> NDArray[np.bool_]:
        """True for the measured steps whose gradients updates were made from: (steps,)."""
        measured = len(self.of_part("step_s"))
        if not len(self.dropped):
            return np.ones(measured, dtype=np.bool_)
        # The measured steps are the window's last: a warm-up that is found in it comes first.
        return ~np.asarray(self.dropped, dtype=np.bool_)[-measured:]

    def answered(self) -> Measured:
        """Leave out the requests of an open loop that were not answered."""
        return self._with_steps(np.isfinite(self.steps["step_s"]))

    def while_training(self) -> Measured:
        """Leave out the steps in which it did not train, where workers are drawn."""
        if "trains" not in self.steps:
            return self
        return self._with_steps(self.steps["trains"])

    def in_turn(self, number: int) -> Measured:
        """Leave out the steps of other turns; counters stay those of all."""
        return self._with_steps(self.steps["turn"] == number)

    def _with_steps(self, is_kept: NDArray[np.bool_]) -> Measured:
        """Leave out the other steps."""
        return replace(self, steps={name: values[is_kept] for name, values in self.steps.items()})

    def of_part(self, name: str, part: str = "window") -> NDArray[np.float64]:
        """A column of the steps of one part alone."""
        column: NDArray[np.float64] = self.steps[name][self.steps["part"] == part]
        return column


@dataclass(frozen=True, kw_only=True)
class RankResult:
    """Outcome of one attempt on one rank."""

    status: str
    """One of `STATUSES`."""

    reason: str | None = None
    in_turn: Sequence[RankResult | None] = ()
    """Of `Task.in_turn`; None for one that was not measured on this rank."""

    measured: Measured | None = None
    """None where the attempt failed before its window's end."""

    cleanup_s: float | None = None
    """To release what the trial held, in seconds."""

    memory_left_bytes: int | None = None
    """In use after cleaning up."""

    device_bytes: int | None = None
    """Memory of the device."""

    device_free_bytes: int | None = None
    """Free on the GPU before the attempt; None on a CPU."""

    is_spent: bool = False
    """True if its process can't use its device any more."""

    left_state: Sequence[str] = ()
    """State of its process that the attempt had changed, in words."""

    needs_new_process: bool = False
    """True if some of it can't be undone, for example a thread that goes on."""

    position: int | None = None
    """Collectives that the rank has begun: ranks in step have the same number."""


def trained_in_window(ranks: Sequence[Measured]) -> dict[int, Measured]:
    """Ranks that trained in the window, by number, with only the steps in which they did."""
    trained = {number: rank.while_training() for number, rank in enumerate(ranks)}
    return {number: rank for number, rank in trained.items() if len(rank.of_part("step_s"))}


def samples_of(point: Point) -> float:
    """Samples per step that count as a worker's: its part of its group's."""
    return point.micro_batch * point.accumulation / point.grid.model
