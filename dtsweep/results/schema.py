"""Every column of the data sets: source of Parquet schemas, checks and docs/columns.md."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Any, get_args

import pyarrow as pa

from dtsweep.errors import SweepError
from dtsweep.results.statuses import PHASE_MEANINGS
from dtsweep.sweep.point_axes import AXES, FIELD_TYPES

SCHEMA_VERSION = 1
"""Stored in every file.

It rises with each release that adds columns, and no column is ever changed or removed.
"""

IMPORTED = "imported"
"""Harness of rows that were imported from a table."""

_BOOL = pa.bool_()
INT = pa.int64()
FLOAT = pa.float64()
TEXT = pa.string()
TEXTS = pa.list_(TEXT)
_INTS = pa.list_(INT)
_FLOATS = pa.list_(FLOAT)
_TIME = pa.timestamp("us", tz="UTC")


@dataclass(frozen=True)
class _Column:
    """One stored column; null always means unknown or not measured."""

    name: str
    type: Any
    """An Arrow data type."""
    unit: str
    """Empty where the values have none."""
    meaning: str


_IDENTITY = (
    _Column("attempt_id", TEXT, "", "name of the attempt, the key of all three tables"),
    _Column(
        "trial_id", TEXT, "", "name of the trial: its point, workload, seed, repeat and `fresh`"
    ),
)
_PHASES = tuple((f"{phase}_s", meaning) for phase, meaning in PHASE_MEANINGS.items())

_AXIS_TYPES: Mapping[type, Any] = {int: INT, float: FLOAT, str: TEXT, bool: _BOOL}


def _axis_columns() -> tuple[_Column, ...]:
    """The axes of a point, as they are declared on its fields."""
    kinds = {
        name: (set(get_args(hint)) or {hint}) - {type(None)} for name, hint in FIELD_TYPES.items()
    }
    return tuple(
        _Column(name, _AXIS_TYPES[kinds[name].pop()], declared.unit, declared.meaning.rstrip("."))
        for name, declared in AXES.items()
    )


def _interval(name: str, unit: str) -> tuple[_Column, ...]:
    """Make the columns for the interval and the standard error of the column `name`."""
    return (
        _Column(f"{name}_low", FLOAT, unit, "lower end of its 95 % interval within this launch"),
        _Column(f"{name}_high", FLOAT, unit, "upper end of its 95 % interval within this launch"),
        _Column(
            f"{name}_error",
            FLOAT,
            unit,
            "its standard error within this launch; the interval is more careful",
        ),
    )


TRIALS: tuple[_Column, ...] = (
    *_IDENTITY,
    _Column("point_id", TEXT, "", "name of the point, the same for all its repeats"),
    _Column("repeat", INT, "", "which launch of the point, from 1"),
    _Column("attempt", INT, "", "which attempt at the trial, from 1"),
    _Column(
        "role",
        TEXT,
        "",
        "`trial`, or `canary`: the fixed point that both ends of a session measure",
    ),
    _Column("status", TEXT, "", "how the attempt ended, one of the set below"),
    _Column("reason", TEXT, "", "why it did not end `ok`"),
    _Column(
        "stop_reason",
        TEXT,
        "",
        "why the window ended: `precise` too where a maximum ended it and the mean was known by "
        "then",
    ),
    _Column(
        "gradients_agree",
        _BOOL,
        "",
        "whether the workers' optimizers were seen to get the same gradients: false is "
        "`wrong_gradient`, null unknown",
    ),
    _Column(
        "parameters_agree",
        _BOOL,
        "",
        "whether the workers were seen to have the same parameters after an exchange: false is "
        "`wrong_parameters`, null unknown",
    ),
    _Column(
        "gradients_reason",
        TEXT,
        "",
        "what differs between the workers, or why that is unknown; null where nothing was "
        "to compare",
    ),
    _Column(
        "compression_error",
        FLOAT,
        "",
        "of what a step after the window exchanged: how far its mean is from that of the values "
        "themselves, as a share "
        "of that one's norm",
    ),
    _Column("steady_class", TEXT, "", "how it became steady: flat, warmup, or not: slowdown, none"),
    _Column(
        "flags",
        TEXTS,
        "",
        "what a reader should know before trusting the numbers, of the set below",
    ),
    _Column(
        "implausible",
        TEXT,
        "",
        "which of the numbers contradict each other or the device; null where none does",
    ),
    _Column(
        "workload",
        TEXT,
        "",
        "class of the workload; its fields are columns `workload_<field>`, lists as JSON",
    ),
    _Column(
        "workload_digest",
        TEXT,
        "",
        "digest of the workload's source and data, as `sources` has them",
    ),
    _Column(
        "sources",
        TEXT,
        "",
        "JSON: digests of the workload's classes and modules and of files that its fields name, "
        "versions of packages",
    ),
    _Column(
        "model_digest",
        TEXT,
        "",
        "digest of what is trained: shapes, types and `requires_grad` of its parameters, FLOPs and "
        "tokens of a sample",
    ),
    _Column("parameters", INT, "", "of the model, elements of all its parameters"),
    _Column(
        "optimizer_class",
        TEXT,
        "",
        "of the optimizer that ran, with `(fused)` where it is; where it is the workload's own, "
        "`optimizer` is null",
    ),
    _Column(
        "loop_learning_rate",
        FLOAT,
        "",
        "of a user's training loop: of its optimizer's first group, at the window's end",
    ),
    _Column(
        "loop_precision",
        TEXT,
        "",
        "of a user's training loop: fp32, tf32, bf16 or fp16, in which most parameters are "
        "multiplied, by autocast, their wrapper or their own type",
    ),
    _Column(
        "loop_wrapper",
        TEXT,
        "",
        "of a user's training loop: DistributedDataParallel (with its communication hook), "
        "fully_shard, FullyShardedDataParallel, or none",
    ),
    _Column("loop_reason", TEXT, "", "why loop_precision or loop_wrapper is null"),
    _Column(
        "is_weighted",
        _BOOL,
        "",
        "whether the workload weighs its batches (`weight`)",
    ),
    _Column(
        "blocks",
        TEXT,
        "",
        "what a mode in shards gathers in one go, or `checkpointing` computes again, as `4 Block`; "
        "null of the others",
    ),
    _Column(
        "attention_ran",
        TEXT,
        "",
        "torch's names of the kernels of scaled_dot_product_attention in the first pass, "
        "joined by commas; null where none ran, in a compiled model and in a pipeline",
    ),
    _Column(
        "skipped_updates",
        INT,
        "",
        "updates of the window that were left out because a gradient was inf or nan; null but with "
        "precision=fp16",
    ),
    _Column(
        "compile_s",
        FLOAT,
        "s",
        "in which torch compiled (torch._dynamo's own clock), on rank 0, before the window's end; "
        "null where nothing was compiled",
    ),
    _Column("compiled_graphs", INT, "", "compiled until then on rank 0"),
    _Column(
        "recompiles",
        INT,
        "",
        "graphs compiled inside the window: above 0, steps that waited for the compiler are among "
        "the measured ones",
    ),
    _Column("seed", INT, "", "seed of the sweep"),
    _Column(
        "semantics",
        TEXT,
        "",
        "what an update means: exact, lossy, stale, local, not_exchanged or unknown; or inference",
    ),
    _Column(
        "data_parallel",
        INT,
        "",
        "groups of workers that each train on samples of their own; null for training loops of "
        "the user whose arguments promise none",
    ),
    _Column(
        "model_parallel",
        INT,
        "workers",
        "that share a model: tensor or pipeline parallel. In training loops of the user those that "
        "their arguments promise, or that load the same batches for parts of one model; null if "
        "unknown",
    ),
    _Column(
        "agree",
        TEXT,
        "",
        "what workers with copies of a parameter agree on: gradients, parameters or nothing",
    ),
    *_axis_columns(),
    _Column(
        "environment", TEXT, "", "JSON of the workers' variables by name; of secrets a short hash"
    ),
    _Column(
        "global_batch",
        INT,
        "samples",
        "per step over all workers; null where steps are each worker's own",
    ),
    _Column("samples_per_update", INT, "samples", "behind one update of the parameters"),
    _Column(
        "samples_per_s",
        FLOAT,
        "samples/s",
        "samples of all workers by time, from the first measured step to the latest end of the "
        "last",
    ),
    *_interval("samples_per_s", "samples/s"),
    _Column("tokens_per_s", FLOAT, "tokens/s", "samples_per_s times the tokens of a sample"),
    _Column(
        "latency_s",
        FLOAT,
        "s",
        "the frontier's: step_p50_s, or step_mean_s where semantics is local or not every step "
        "exchanges",
    ),
    *_interval("latency_s", "s"),
    _Column(
        "step_mean_s",
        FLOAT,
        "s",
        "mean step time; workers that step together: from latest end to latest end",
    ),
    *_interval("step_mean_s", "s"),
    _Column(
        "step_p50_s", FLOAT, "s", "median step time; with a sync period of the steps of all workers"
    ),
    *_interval("step_p50_s", "s"),
    _Column("step_p90_s", FLOAT, "s", "step time that 90 % of the steps stay below"),
    _Column("step_p95_s", FLOAT, "s", "step time that 95 % of the steps stay below"),
    *_interval("step_p95_s", "s"),
    _Column(
        "step_p99_s", FLOAT, "s", "step time that 99 % of the steps stay below; from 100 steps on"
    ),
    *_interval("step_p99_s", "s"),
    _Column("step_max_s", FLOAT, "s", "longest step"),
    _Column("insufficient", TEXTS, "", "percentiles for whose interval the steps are too few"),
    _Column(
        "half_width", FLOAT, "", "half of the 95 % interval of the mean step time, as a share of it"
    ),
    _Column(
        "effective_steps", FLOAT, "steps", "independent ones that the window's steps are worth"
    ),
    _Column("step_cv", FLOAT, "", "standard deviation of the step times over their mean"),
    _Column(
        "drift", FLOAT, "", "what the step time rises by over the window, as a share of its median"
    ),
    _Column("spike_share", FLOAT, "", "share of the steps that stand out from their neighbours"),
    _Column("warmup_steps", INT, "steps", "before the measured ones: the skipped and the found"),
    _Column("measured_steps", INT, "steps", "after the warm-up, per worker"),
    _Column(
        "window_s", FLOAT, "s", "from the first measured step until the last worker's work is done"
    ),
    *(
        _Column(
            name, FLOAT, "s", f"mean per step and worker; the phases add up to the step: {what}"
        )
        for name, what in _PHASES
    ),
    _Column(
        "comm_share",
        FLOAT,
        "",
        "share of a step that is exposed exchange (with compression) or waiting for the slowest "
        "worker, the sum of "
        "exchange_share and wait_share; null of canaries, and with one worker, but for the "
        "parameter server",
    ),
    *_interval("comm_share", ""),
    _Column(
        "comm_method",
        TEXT,
        "",
        "`difference` to steps without the exchange, or `wait`: what steps spend on it",
    ),
    _Column(
        "comm_reason",
        TEXT,
        "",
        "why comm_share of a trial is null although there are several workers",
    ),
    _Column(
        "exchange_share",
        FLOAT,
        "",
        "of a step: longer than its longest own work of a worker; null where stale",
    ),
    *_interval("exchange_share", ""),
    _Column(
        "wait_share",
        FLOAT,
        "",
        "of a step: that longest own work less the mean of the workers; null where stale",
    ),
    *_interval("wait_share", ""),
    _Column(
        "data_share",
        FLOAT,
        "",
        "of a step: loading batches, mean of the workers without a straggler",
    ),
    *_interval("data_share", ""),
    _Column("pass_s", FLOAT, "s", "a forward/backward pass without exchange, slowest worker"),
    _Column(
        "exchange_isolated_s",
        FLOAT,
        "s",
        "a step's exchange alone, nothing to hide behind; timed once per world for points that "
        "share it",
    ),
    _Column(
        "overlap_share",
        FLOAT,
        "",
        "share of exchange_isolated_s that hides behind other work; not kept in 0 to 1",
    ),
    *_interval("overlap_share", ""),
    _Column("memory_peak_bytes", INT, "bytes", "largest peak of a worker"),
    _Column(
        "device_free_bytes",
        INT,
        "bytes",
        "of a worker's GPU, not taken by any process before the trial; the least, null on a CPU",
    ),
    _Column(
        "rank_skew", FLOAT, "", "slowest worker's own work per step over the fastest's, less 1"
    ),
    _Column("rank_skew_low", FLOAT, "", "lower 95 % bound of it; 0 where the workers may be equal"),
    _Column(
        "straggler",
        TEXT,
        "",
        "slowest worker by its own work, as `rank R on NODE`; null where none stands out",
    ),
    _Column("flops_per_sample", FLOAT, "FLOP", "of the model, without recomputation"),
    _Column("flops_per_s_per_worker", FLOAT, "FLOP/s", "model FLOPs that a worker does"),
    _Column("peak_flops_per_s", FLOAT, "FLOP/s", "of one worker's device at this precision"),
    _Column(
        "peak_source",
        TEXT,
        "",
        "where that is from: `table`, `given`, or `measured` by a matrix product",
    ),
    _Column("mfu", FLOAT, "", "model FLOPs over what the device could do"),
    _Column("hfu", FLOAT, "", "the same with recomputation"),
    _Column(
        "operations_per_step",
        INT,
        "operations",
        "of a worker's passes and update that move numbers",
    ),
    _Column(
        "moved_bytes_per_step",
        FLOAT,
        "bytes",
        "that they read and write, each by itself: an upper bound, what a compiler fuses moves "
        "less",
    ),
    _Column(
        "peak_bytes_per_s",
        FLOAT,
        "bytes/s",
        "of one worker's memory, by a large operation into new memory; the least",
    ),
    _Column(
        "compute_share",
        FLOAT,
        "",
        "of a step: arithmetic, at the peak, of operations for which it takes at least half as "
        "long as moving bytes",
    ),
    _Column(
        "memory_share",
        FLOAT,
        "",
        "of a step: moving bytes, of operations for which it takes at least half as long as "
        "arithmetic",
    ),
    _Column("launch_share", FLOAT, "", "of a step: launching its operations, one after the other"),
    _Column(
        "device_idle_low",
        FLOAT,
        "",
        "share of a step in which a GPU had no work in forward, backward and optimizer, mean of "
        "workers: lower end of its 95 % interval; null on a CPU",
    ),
    _Column("device_idle_high", FLOAT, "", "upper end of that interval"),
    _Column(
        "samples_reason",
        TEXT,
        "",
        "why the samples of a user's training loop could not be counted",
    ),
    _Column(
        "device_idle_reason",
        TEXT,
        "",
        "why an end of that interval is no closer: phases that can't be queued ahead, a lowered "
        "clock, or no queued steps",
    ),
    _Column(
        "device_utilization",
        FLOAT,
        "",
        "share of time in which a device ran a kernel, mean of workers",
    ),
    _Column("power_w", FLOAT, "W", "drawn by all devices together"),
    _Column(
        "energy_j",
        FLOAT,
        "J",
        "used by all devices in the whole window, with the steps that window_s leaves out",
    ),
    _Column(
        "energy_j_per_sample", FLOAT, "J/sample", "energy_j by the samples of the whole window"
    ),
    _Column(
        "cpu_energy_j",
        FLOAT,
        "J",
        "used by the CPUs of all hosts in the whole window, where RAPL can be read",
    ),
    _Column(
        "cpu_energy_j_per_sample",
        FLOAT,
        "J/sample",
        "cpu_energy_j by the samples of the whole window",
    ),
    _Column(
        "host_cpu_share", FLOAT, "", "share of the hosts' CPU time that was in use, largest host"
    ),
    _Column("network_bytes_per_s", FLOAT, "bytes/s", "sent by all hosts through their interfaces"),
    _Column(
        "bytes_sent_per_step",
        FLOAT,
        "bytes",
        "sent by one worker per step, mean of workers: by the tensors and formulas of its "
        "exchanges; of the parameter "
        "server the push, not the pull",
    ),
    _Column(
        "messages_per_step",
        FLOAT,
        "messages",
        "of one worker per step, mean: calls that send, a collective is one",
    ),
    _Column(
        "staleness_mean", FLOAT, "updates", "by others between a worker's pull and its push, mean"
    ),
    _Column(
        "staleness_max", INT, "updates", "by others between a worker's pull and its push, largest"
    ),
    _Column(
        "bubble_share",
        FLOAT,
        "",
        "share of the passes of a step in which a worker of a pipeline does not compute, mean; "
        "with the time of messages; null without a pipeline",
    ),
    _Column(
        "bubble_expected",
        FLOAT,
        "",
        "the same by the formula of its schedule, for equal stages and messages without a cost",
    ),
    _Column(
        "dropped_share",
        FLOAT,
        "",
        "share of all workers' steps whose gradients were dropped (`drop_slowest`), in the time "
        "that counts in `samples_per_s`",
    ),
    _Column("loss_first", FLOAT, "", "loss of the first measured step"),
    _Column("loss_last", FLOAT, "", "loss of the last measured step"),
    _Column(
        "startup_s",
        FLOAT,
        "s",
        "start of the session and of its parameter servers, where this trial waited for them",
    ),
    _Column(
        "trial_s",
        FLOAT,
        "s",
        "from handing out the trial to its last worker's answer: build, window and all else; of a "
        "trial that the end of the run has cut, until then",
    ),
    _Column(
        "overhead_s", FLOAT, "s", "the harness's own time for this trial, in addition to trial_s"
    ),
    _Column("nodes_wait_s", FLOAT, "s", "of startup_s, the wait for an autoscaler's nodes"),
    _Column(
        "node_types",
        TEXT,
        "",
        "node types of its workers' nodes with their numbers, as `a:1+b:2`; `@spot` marks spot "
        "nodes, and a slot's part of a shared node is a fraction",
    ),
    _Column(
        "usd_per_hour",
        FLOAT,
        "USD/h",
        "price of these nodes, whole ones, of shared ones the part; null if one has no price",
    ),
    _Column(
        "cost_usd",
        FLOAT,
        "USD",
        "usd_per_hour / 3600 x (startup_s - nodes_wait_s + trial_s), null times counting as 0; "
        "idle nodes, as in overhead_s, are in the record of the run",
    ),
    _Column("started_at", _TIME, "UTC", "when the attempt began"),
    _Column(
        "row_number",
        INT,
        "",
        "of the row in its results: a later row has a larger one, whatever clocks say",
    ),
    _Column("hosts", INT, "machines", "that the workers ran on"),
    _Column("partition", TEXT, "", "Slurm's, of these machines; null without Slurm"),
    _Column("switches", INT, "switches", "that these hang on, by Slurm's topology; null without"),
    _Column("devices", TEXT, "", "device models of the workers"),
    _Column("env_id", TEXT, "", "digest of hardware and software that the numbers hold for"),
    _Column(
        "git_commit",
        TEXT,
        "",
        "of the sweep file's folder, with `+changes` where files differ from it",
    ),
    _Column(
        "cpus_per_worker",
        FLOAT,
        "CPUs",
        "of a worker, also its threads, unless the workload sets others",
    ),
    _Column("gpus_per_worker", FLOAT, "GPUs", "asked for per worker"),
    _Column("fresh", _BOOL, "", "whether the trial had a session of its own"),
    _Column(
        "harness",
        TEXT,
        "",
        "what started the workers: ray, torchrun or in_process; imported: the row is of a table",
    ),
    _Column(
        "imported_from", TEXT, "", "of an imported row: its table's file, and the line or row in it"
    ),
    _Column("backend", TEXT, "", "of the collectives: nccl or gloo"),
    _Column("session", TEXT, "", "name of the live worker group that measured it"),
    _Column(
        "turn_group",
        TEXT,
        "",
        "name of the group of trials whose points were measured in turn in one session; null for a "
        "whole window",
    ),
    _Column(
        "turn_samples_per_s",
        _FLOATS,
        "samples/s",
        "samples/s of each of the trial's turns; the index is the cycle, in all trials of a group",
    ),
    _Column(
        "turn_latency_s",
        _FLOATS,
        "s",
        "latency_s of each of the trial's turns, by cycle as turn_samples_per_s",
    ),
    _Column(
        "session_workers",
        INT,
        "workers",
        "how many that group has; a smaller world is made of some of them",
    ),
    _Column(
        "concurrent_trials",
        INT,
        "trials",
        "most others of the run that ran at the same time; 0 is alone, null unknown",
    ),
    _Column("log", TEXT, "", "path of the log of the worker that failed, else of rank 0"),
    _Column("dtsweep_version", TEXT, "", "version of dtsweep"),
    _Column("torch_version", TEXT, "", "version of PyTorch"),
    _Column("ray_version", TEXT, "", "version of Ray; null without Ray"),
    _Column("python_version", TEXT, "", "version of Python"),
    _Column("numpy_version", TEXT, "", "version of NumPy"),
    _Column("measure", TEXT, "", "JSON of the settings of `Measure`"),
    _Column(
        "question",
        TEXT,
        "",
        "JSON of the question that the run was to decide: goal (null: the frontier), indifference, "
        "confidence, max_launches; null of a plain grid",
    ),
    _Column(
        "command",
        TEXT,
        "",
        "of a script of the user: JSON of its path and its arguments, as a shell has them",
    ),
    _Column(
        "target_loss",
        FLOAT,
        "",
        "loss to which the launch trained a new model before its window; null where it did not",
    ),
    _Column(
        "loss_by",
        TEXT,
        "",
        "source of the loss of a training: `evaluate` of the workload, or `training`, the mean of "
        "its steps",
    ),
    _Column("requests_lost", INT, "", "requests of an open loop's window that had an error"),
    _Column("requests_late", INT, "", "those without an answer when the wait for it was over"),
    _Column("queue_share", FLOAT, "", "share of requests' time until their batch began, answered"),
    _Column("first_token_s", FLOAT, "s", "mean time from scheduled arrival to the first token"),
    _Column("per_token_s", FLOAT, "s", "mean time from a token of a request to its next"),
    _Column(
        "time_to_loss_s",
        FLOAT,
        "s",
        "training until the target on the slowest worker, without evaluations; where it "
        "`is_censored`, all of it: a lower bound",
    ),
    _Column(
        "time_to_loss_s_error",
        FLOAT,
        "s",
        "its standard error by the time between two evaluations",
    ),
    _Column(
        "samples_to_loss", FLOAT, "samples", "of all workers until the target, bounded likewise"
    ),
    _Column("is_censored", _BOOL, "", "whether the training ended before the target was reached"),
    _Column("final_loss", FLOAT, "", "loss at the end of a training, to a target or on samples"),
    _Column("trained_samples", INT, "samples", "of all workers until then"),
)

RANKS: tuple[_Column, ...] = (
    *_IDENTITY,
    _Column("rank", INT, "", "index of the worker"),
    _Column("node", TEXT, "", "host name of its machine"),
    _Column("node_id", TEXT, "", "Ray's name of its machine"),
    _Column("partition", TEXT, "", "Slurm's, of its machine; null without Slurm"),
    _Column("switch", TEXT, "", "`spine.leaf1`: above its machine, by Slurm's topology, or null"),
    _Column("pid", INT, "", "its process on that machine"),
    _Column("device", TEXT, "", "model of its device"),
    _Column("device_uuid", TEXT, "", "the very device"),
    _Column("pci_bus_id", TEXT, "", "of its GPU, or of the GPU that it has a slice of"),
    _Column(
        "threads",
        INT,
        "threads",
        "that PyTorch used for one operation in the window; else those of its process",
    ),
    _Column("niceness", INT, "", "scheduling priority of the process, 0 is normal"),
    _Column(
        "memory_peak_bytes",
        INT,
        "bytes",
        "peak in the trial: device memory; on a CPU resident, not shared",
    ),
    _Column(
        "memory_reserved_peak_bytes",
        INT,
        "bytes",
        "peak in the trial of what torch's allocator took from the GPU, in use or kept for later",
    ),
    _Column(
        "device_free_bytes",
        INT,
        "bytes",
        "of the GPU's memory, not taken by any process before the trial",
    ),
    _Column(
        "build_s",
        FLOAT,
        "s",
        "from taking the task to the warm-up: model, first batches, rates of the device",
    ),
    _Column(
        "warmup_s", FLOAT, "s", "from then to the window, with windows that were measured again"
    ),
    _Column("window_s", FLOAT, "s", "from the common start until this worker's work is done"),
    _Column(
        "trained_steps",
        INT,
        "steps",
        "of the window in which this worker trained; null where all train in each step",
    ),
    _Column(
        "after_window_s",
        FLOAT,
        "s",
        "from then until all is measured: checks, counts, steps without the exchange",
    ),
    _Column("cleanup_s", FLOAT, "s", "to release what the trial held"),
    _Column(
        "left_state",
        TEXT,
        "",
        "state of its process that the workload had changed; null if there is no such state",
    ),
    _Column("steps", INT, "steps", "of this worker that were measured, after its warm-up"),
    _Column("step_mean_s", FLOAT, "s", "mean step time of this worker"),
    *(_Column(name, FLOAT, "s", f"mean per step: {what}") for name, what in _PHASES),
    _Column(
        "work_s", FLOAT, "s", "a step without the exchange, where ranks don't wait for each other"
    ),
    _Column(
        "device_utilization", FLOAT, "", "share of the window in which the device ran a kernel"
    ),
    _Column(
        "device_memory_used_bytes",
        INT,
        "bytes",
        "most that was in use on the device, of all processes",
    ),
    _Column("sm_clock_hz", FLOAT, "Hz", "mean clock of the device's multiprocessors"),
    _Column("temperature_celsius", FLOAT, "°C", "highest of the device"),
    _Column("throttle_reasons", TEXTS, "", "why the device lowered its clock, as NVML names it"),
    _Column(
        "device_errors", TEXTS, "", "ECC errors and Xid that the driver reported in the window"
    ),
    _Column("power_w", FLOAT, "W", "mean power of the device"),
    _Column(
        "power_limit_w",
        FLOAT,
        "W",
        "that was in force on the device at the window's end",
    ),
    _Column("energy_j", FLOAT, "J", "used by the device in the window"),
    _Column("other_processes", INT, "processes", "of others on the device"),
    _Column("process_cpus", FLOAT, "CPUs", "that this worker's process kept busy"),
    _Column("host_cpu_share", FLOAT, "", "share of its host's CPU time that was in use"),
    _Column("host_memory_used_bytes", INT, "bytes", "most that was in use on its host"),
    _Column(
        "network_sent_bytes", INT, "bytes", "sent by its host in the window, without the loopback"
    ),
    _Column(
        "network_received_bytes",
        INT,
        "bytes",
        "received by its host in the window, without the loopback",
    ),
    _Column("cpu_energy_j", FLOAT, "J", "used by its host's CPUs in the window"),
    _Column(
        "matmul_flops_per_s",
        FLOAT,
        "FLOP/s",
        "of a large matrix product at this precision, all workers at once",
    ),
    _Column(
        "moved_bytes_per_s",
        FLOAT,
        "bytes/s",
        "of a large element-wise operation, all workers at once",
    ),
    _Column("launch_s", FLOAT, "s", "to launch an operation, mean of forward and backward"),
    _Column(
        "device_idle_low",
        FLOAT,
        "",
        "share of a step in which its GPU had no work: lower end of the 95 % interval",
    ),
    _Column("device_idle_high", FLOAT, "", "upper end of that interval"),
    _Column("machine", TEXT, "", "JSON of the hardware and software that `env_id` stands for"),
    _Column(
        "bytes_sent",
        INT,
        "bytes",
        "that it sent in the whole window, with warm-up found in it; of the parameter server the "
        "push, not the pull",
    ),
    _Column(
        "messages_sent",
        INT,
        "messages",
        "calls that sent them: each collective is one, each send another",
    ),
    _Column("pipeline_s", FLOAT, "s", "in the passes of a pipeline, over the whole window"),
    _Column("stage_busy_s", FLOAT, "s", "of these, in which its own stages computed"),
    _Column("staleness_mean", FLOAT, "updates", "by others between its pull and its push, mean"),
    _Column("staleness_max", INT, "updates", "by others between its pull and its push, largest"),
    _Column(
        "staleness_counts",
        _INTS,
        "pushes",
        "histogram of the staleness: pushes with 0 such updates, with 1, with 2, …",
    ),
    _Column(
        "dropped_steps",
        INT,
        "steps",
        "of the whole window whose gradients were dropped (`drop_slowest`); null without",
    ),
    _Column(
        "shards_hosted",
        INT,
        "servers",
        "shards of the parameters on its node that are counted to it",
    ),
    _Column("log", TEXT, "", "path of its log"),
)

STEPS: tuple[_Column, ...] = (
    *_IDENTITY,
    _Column("rank", INT, "", "index of the worker"),
    _Column(
        "step",
        INT,
        "",
        "index of the step, counted through all parts; untimed steps before a turn have none",
    ),
    _Column(
        "warmup",
        _BOOL,
        "",
        "whether the step lies before the measured ones, which are the others with part window",
    ),
    _Column("part", TEXT, "", "warmup, window; after it, in turns, exchange and no_exchange"),
    _Column(
        "block",
        INT,
        "",
        "after the window: number of the step's block; of rounds 2i and 2i+1 are a pair",
    ),
    _Column(
        "turn", INT, "", "cycle of the step's turn, where points are measured in turn; else null"
    ),
    _Column(
        "start_s", FLOAT, "s", "start of the step on this worker's clock, from the common start"
    ),
    _Column("step_s", FLOAT, "s", "its length"),
    *(_Column(name, FLOAT, "s", what) for name, what in _PHASES),
    _Column("loss", FLOAT, "", "mean over the worker's samples of the step"),
)

_CURVES: tuple[_Column, ...] = (
    *_IDENTITY,
    _Column(
        "steps",
        INT,
        "steps",
        "of a worker until the evaluation; of rank 0 in modes whose workers step apart",
    ),
    _Column("samples", INT, "samples", "of all workers until then"),
    _Column("trained_s", FLOAT, "s", "training of the slowest worker until then"),
    _Column("loss", FLOAT, "", "mean over workers of what gives the loss: `loss_by`"),
    _Column("training_loss", FLOAT, "", "mean over the steps since the last evaluation"),
)

TABLES: Mapping[str, tuple[_Column, ...]] = MappingProxyType(
    {"trials": TRIALS, "ranks": RANKS, "steps": STEPS, "curves": _CURVES}
)
"""The data sets of a results folder; `curves` are of trainings to a target."""

WORKLOAD_TYPES: Mapping[type, Any] = MappingProxyType(
    {bool: _BOOL, int: INT, float: FLOAT, str: TEXT, dict: TEXT}
)
"""Python type of a workload field -> type of its column; `dict` is whatever is stored as JSON."""


def table_schema(table: str, *, workload_types: Mapping[str, type] = MappingProxyType({})) -> Any:
    """Make the Arrow schema of a table; units, meanings and the schema version are in its metadata.

    Args:
        table: A name in `TABLES`.
        workload_types: Types of the workload's fields by name (without `workload_`), for trials.

    Raises:
        SweepError: A workload field would take the name of a column that exists.
    """
    return _schema_of(table, tuple(workload_types.items()))


@lru_cache(maxsize=64)
def _schema_of(table: str, workload_types: tuple[tuple[str, type], ...]) -> Any:
    columns = list(TABLES[table])
    taken = {column.name for column in columns}
    for field, kind in workload_types:
        if f"workload_{field}" in taken:
            raise SweepError(
                f"workload field {field!r} would be stored as workload_{field}, which is taken; "
                "rename it"
            )
        meaning = f"field {field} of the workload" + (", as JSON" if kind is dict else "")
        columns.append(_Column(f"workload_{field}", WORKLOAD_TYPES[kind], "", meaning))
    fields = [
        pa.field(
            column.name, column.type, metadata={"unit": column.unit, "meaning": column.meaning}
        )
        for column in columns
    ]
    return pa.schema(fields, metadata={"dtsweep.schema_version": str(SCHEMA_VERSION)})
