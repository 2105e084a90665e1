"""Need of memory of points, from the peaks of trials and those that ran out of memory."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.setting_values import slowness_of
from dtsweep.analysis.settings import participants_of, settings_of_points
from dtsweep.model.memory import PARTS, FittedMemory, MemorySetups, Need
from dtsweep.model.memory_fit import MeasuredPeaks, fit_memory
from dtsweep.model.memory_terms import STATE_SHARES, Setting, moments_of
from dtsweep.model.setups import Flags, Numbers
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point

if TYPE_CHECKING:
    import pandas as pd

Row = Mapping[str, Any]

PARAMETER_BYTES = 4
"""Of a parameter: they stay in fp32."""

MEMORY_COLUMNS = (
    *("status", "backend", "hosts", "parameters", "blocks", "memory_peak_bytes"),
    "device_free_bytes",
    *("workload", "sync", "workers", "micro_batch", "accumulation", "optimizer", "precision"),
    *("checkpointing", "compression", "shard_precision", "reshard", "node_size", "offload"),
    *("topology", "participation", "slow_rank", "balance"),
)
"""Columns of `trials` that a model of memory reads, with the fields of the workload."""

KNOWN, LOOSE, UNKNOWN = 0.04, 0.5, 1.0
"""Prior standard deviations of a mode's need, as shares of the parameters.

Of a mode whose arithmetic is known, with a compression, and of one that is not dtsweep's own.
"""


@dataclass(frozen=True, kw_only=True, eq=False)
class MemoryModel:
    """Need of memory of the points of one workload class, on one kind of device."""

    fitted: FittedMemory
    is_gpu: bool

    model_bytes: Mapping[str, float]
    """Bytes of the parameters, by the workload's class and fields as text."""

    block_shares: Mapping[str, float]
    """One by the number of blocks, by the same."""

    node_workers: int
    """Most workers of a node."""

    micro_batches: Mapping[str, frozenset[float]]
    """Micro-batches whose peak was measured, by the names of what activations depend on."""

    capacity_bytes: float | None
    """Memory of a device that no process took before a trial, largest; None where unknown."""

    def predict(self, points: Sequence[Point]) -> Need:
        """Predict the largest peak of a worker, in bytes, with its 90 % interval.

        It is nan for a class or fields of the workload that no trial has had: their number of
        parameters is unknown.

        Args:
            points: also those that were measured.

        Returns:
            `expected`, `low` and `high`: (points,) each.
        """
        return self.predict_rows(settings_of_points(points))

    def predict_rows(self, rows: Sequence[Row]) -> Need:
        """Predict as `predict` does.

        Args:
            rows: settings by the columns of `trials`, of each configuration.
        """
        return self.fitted.predict(self._setups(rows))

    def probability_to_fit(
        self, points: Sequence[Point], capacity_bytes: float | None = None
    ) -> Numbers:
        """Give the probability that points stay within the memory of a device.

        Args:
            points: with their workloads.
            capacity_bytes: memory for each worker; by default the memory of the trials' devices.

        Returns:
            (points,), nan where the need or the device's memory is unknown.
        """
        setups = self._setups(settings_of_points(points))
        capacity = capacity_bytes or self.capacity_bytes or math.nan
        return self.fitted.probability_to_fit(setups, capacity)

    def has_evidence(self, points: Sequence[Point]) -> Flags:
        """Mark the points whose need rests on measurements, not on priors alone: (points,).

        Activations need two micro-batches of their precision and checkpointing. Where states alone
        are too much, any peak does.
        """
        setups = self._setups(settings_of_points(points))
        grows = [len(self.micro_batches.get(name, ())) > 1 for name in _activations(setups)]
        capacity = self.capacity_bytes or math.inf
        states = _without_activations(setups)
        fits = self.fitted.probability_to_fit(states, capacity)
        evidence: Flags = np.array(grows) | (fits < 0.01)
        return evidence

    def _setups(self, rows: Sequence[Row]) -> MemorySetups:
        return _setups_of(
            rows,
            model_bytes=self.model_bytes,
            block_shares=self.block_shares,
            node_workers=self.node_workers,
            is_gpu=self.is_gpu,
        )


def memory_model(trials: pd.DataFrame) -> MemoryModel | None:
    """Fit the need of memory to the trials of the newest workload class.

    Args:
        trials: as `dtsweep.load` gives them.

    Returns:
        The model; None where no peak was measured.
    """
    names = [name for name in trials.columns if name in MEMORY_COLUMNS or _is_field(name)]
    kept = trials[names].astype(object).where(trials[names].notna(), None)
    rows: list[dict[str, Any]] = kept.to_dict("records")  # type: ignore[assignment]  # names are texts
    return memory_model_of(rows)


def memory_model_of(rows: Iterable[Row]) -> MemoryModel | None:
    """As `memory_model`, of rows with `MEMORY_COLUMNS`, the oldest first."""
    rows = [row for row in rows if row.get("status") in ("ok", "oom_device")]
    # Rows of tables may lack them.
    rows = [row for row in rows if row.get("workers") and row.get("micro_batch")]
    measured = [row for row in rows if row["status"] == "ok" and row.get("memory_peak_bytes")]
    if not measured:
        return None
    newest = measured[-1]
    is_gpu = _is_on_gpu(newest)
    rows = [
        row for row in rows if row["workload"] == newest["workload"] and _is_on_gpu(row) == is_gpu
    ]
    model_bytes = {
        _fields_of(row): PARAMETER_BYTES * float(row["parameters"])
        for row in rows
        if row.get("parameters")
    }
    rows = [row for row in rows if _fields_of(row) in model_bytes]
    if not any(row.get("memory_peak_bytes") for row in rows):
        return None
    return _fitted(rows, model_bytes, is_gpu=is_gpu)


def _fitted(rows: Sequence[Row], model_bytes: Mapping[str, float], *, is_gpu: bool) -> MemoryModel:
    """Fit to rows of one class and one kind of device."""
    block_shares = {
        _fields_of(row): 1 / blocks for row in rows if (blocks := _blocks(row.get("blocks")))
    }
    # Without a column of hosts all workers are on one.
    node_workers = max(math.ceil(row["workers"] / (row.get("hosts") or 1)) for row in rows)
    setups = _setups_of(
        rows,
        model_bytes=model_bytes,
        block_shares=block_shares,
        node_workers=node_workers,
        is_gpu=is_gpu,
    )
    peaks = _column(rows, "memory_peak_bytes")
    free = _column(rows, "device_free_bytes")
    is_full = np.array([row["status"] == "oom_device" for row in rows])
    peaks[is_full] = np.nan
    of_peaks = MeasuredPeaks(
        peak_bytes=peaks, full_bytes=np.where(is_full, free, np.nan), is_gpu=is_gpu
    )
    micro_batches: dict[str, set[float]] = {}
    for name, size, peak in zip(_activations(setups), setups.micro_batch, peaks, strict=True):
        if not np.isnan(peak):
            micro_batches.setdefault(name, set()).add(size)
    return MemoryModel(
        fitted=fit_memory(setups, of_peaks),
        is_gpu=is_gpu,
        model_bytes=model_bytes,
        block_shares=block_shares,
        node_workers=node_workers,
        micro_batches={name: frozenset(sizes) for name, sizes in micro_batches.items()},
        capacity_bytes=None if np.isnan(free).all() else float(np.nanmax(free)),
    )


def _setups_of(
    rows: Sequence[Row],
    *,
    model_bytes: Mapping[str, float],
    block_shares: Mapping[str, float],
    node_workers: int,
    is_gpu: bool,
) -> MemorySetups:
    """Settings of rows by column."""
    fields = [_fields_of(row) for row in rows]
    settings = [_setting(row, node_workers=node_workers, is_gpu=is_gpu) for row in rows]
    shares = [setting.state_share for setting in settings]
    return MemorySetups(
        moments=np.array([moments_of(setting) for setting in settings]).reshape(-1, 3, 5),
        state_share=np.array([math.nan if share is None else share for share in shares]),
        model_bytes=np.array([model_bytes.get(name, math.nan) for name in fields]),
        block_share=np.array([block_shares.get(name, math.nan) for name in fields]),
        micro_batch=np.array([_largest_batch(row) for row in rows]),
        labels=np.array([_labels(row) for row in rows], dtype=object).reshape(-1, len(PARTS)),
        looseness=np.array([_looseness(row) for row in rows]),
    )


def _largest_batch(row: Row) -> float:
    """Samples of the fastest worker's pass, which balancing gives the most."""
    samples = float(row["micro_batch"])
    if row.get("balance") is None:
        return samples
    return samples * slowness_of(row)


def _setting(row: Row, *, node_workers: int, is_gpu: bool) -> Setting:
    """Settings that the arithmetic of states reads."""
    workers = int(row["workers"])
    halves = row.get("shard_precision") == "bf16"
    return Setting(
        sync=row["sync"],
        workers=workers,
        node_workers=min(workers, int(row.get("node_size") or node_workers)),
        state_share=STATE_SHARES.get(row.get("optimizer") or ""),
        accumulates=(row.get("accumulation") or 1) > 1,
        accrues=(row.get("push_period") or 1) > 1,
        casts=row.get("precision") == "bf16" and not halves,
        gathers_halves=halves,
        reshard=row.get("reshard"),
        topology=row.get("topology"),
        participants=participants_of(row),
        compresses=bool(row.get("compression")),
        offload=bool(row.get("offload")),
        is_gpu=is_gpu,
    )


def _labels(row: Row) -> list[str]:
    """Names of the parameters of each part, in the order of `PARTS`."""
    fields = _fields_of(row)
    activations, precision, checkpointing = f"activations {fields}", "", ""
    if row["sync"] not in MODES:
        # A mode of the user may divide the activations, too.
        activations += f" {row['sync']}"
    if row.get("precision") not in (None, "fp32", "tf32"):
        precision = f"precision {row['precision']}"
    if row.get("checkpointing"):
        checkpointing = f"checkpointing {row['checkpointing']}"
    mode = f"mode {row['sync']} {row.get('compression') or ''} {row.get('reshard') or ''}"
    return [
        *(f"largest {fields}", f"block {fields}", activations, precision, checkpointing),
        mode,
    ]


def _looseness(row: Row) -> float:
    """Prior standard deviation of a row's mode."""
    if row["sync"] not in MODES:
        return UNKNOWN
    if row.get("compression"):
        return LOOSE
    return KNOWN


def _activations(setups: MemorySetups) -> list[str]:
    """Names of what activations depend on, as one text for each configuration."""
    columns = [PARTS.index(part) for part in ("activations", "precision", "checkpointing")]
    return [" ".join(names) for names in setups.labels[:, columns]]


def _without_activations(setups: MemorySetups) -> MemorySetups:
    return MemorySetups(**{**vars(setups), "micro_batch": np.zeros(len(setups))})


def _is_on_gpu(row: Row) -> bool:
    """True if a trial ran on GPUs; those that ran out of memory may say so by their free memory."""
    return row.get("backend") == "nccl" or bool(row.get("device_free_bytes"))


def _is_field(name: str) -> bool:
    """True for the column of a workload's field."""
    return name.startswith("workload_") and name != "workload_digest"


def _fields_of(row: Row) -> str:
    """The workload's class and fields as text; equal numbers are equal texts, of any type."""
    values = {name: row[name] for name in row if _is_field(name) and row[name] is not None}
    plain = {
        name: value if isinstance(value, str) else float(value) for name, value in values.items()
    }
    return json.dumps([row.get("workload"), plain], sort_keys=True)


def _blocks(words: str | None) -> int:
    """Count blocks by their words: `4 Block`; 0 where there are none."""
    return sum(int(number) for number in re.findall(r"\b\d+\b", words or ""))


def _column(rows: Sequence[Row], name: str) -> Numbers:
    """Values of a column, nan where there is none."""
    return np.array([float(row.get(name) or math.nan) for row in rows])
