"""Training time on an amount of data, by number of workers: the table of scaling studies."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep.analysis.frontier import UPDATE
from dtsweep.analysis.ladders import compared_sizes
from dtsweep.analysis.launches import PER_SAMPLES, setting_columns
from dtsweep.analysis.scaling import with_speed_ups
from dtsweep.analysis.study import Frame, study_of
from dtsweep.errors import SweepError
from dtsweep.inference.spread import POINT
from dtsweep.sweep.mode_info import SEMANTICS

if TYPE_CHECKING:
    import pandas as pd

_TABLE = [*UPDATE, "workload", "model_digest", "env_id"]
"""Columns that are equal in a table: update, model and environment."""

_SHAPE = ("workers", "micro_batch", "accumulation")
_ENERGY = ["energy_j", "cpu_energy_j"]
_WITH_ENDS = ("training_time_s", "samples_per_s", "speed_up", "efficiency", "gain", "cost_usd")


def training_time(frame: Frame, *, samples: int) -> pd.DataFrame:
    """Estimate time, speed-up, efficiency and energy of training, for each number of workers.

    The fastest point of each number of workers stands for it, by the mean over its launches: a
    maximum of noisy rates and so a little too fast, more so where more settings were measured.
    Points of different kinds of update, models and environments stand in tables of their own. It is
    the time for the data alone: no start, no validation, and nothing of the loss that is reached.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.
        samples: to train on, such as 50,000 for one pass over CIFAR-10.

    Returns:
        One row per table and number of workers, exact updates first: `group` (number of the table);
        `kind`, `strong` or `weak` where the rows of a table scale so and are otherwise equal,
        `free` where each has settings of its own, null with one number of workers; the settings;
        `samples`; `training_time_s` = samples ÷ samples_per_s, `samples_per_s`, `speed_up`,
        `efficiency` and `gain` over the table's smallest number of workers (`base`), and
        `cost_usd`, by the prices of nodes and null without them, each with `_low` and `_high`, its
        95 % interval as in `over_launches` (`interval` says which) and `scaling`; `energy_j` of all
        devices and `cpu_energy_j` of the CPUs of all hosts, by their means in the windows, null
        where no launch knows it; `launches`; `caution`, of the row and of its base.

    Raises:
        SweepError: `samples` is not above 0.
    """
    if not samples > 0:
        raise SweepError(
            f"samples={samples!r} is not an amount of data; give how many to train on, such as "
            "50000"
        )
    study = study_of(frame)
    points = study.points.dropna(subset=["samples_per_s", "workers"])
    rows = _fastest(points)
    compared = compared_sizes(rows, lambda env_id: study.launches(env_id, "samples_per_s"))
    rows = with_speed_ups(rows, size="workers", compared=compared)
    rows = rows.merge(_cpu_joules_per_sample(study.trials), how="left", on=list(POINT))
    rows = _with_times(rows, samples=samples)
    ends = [f"{name}{end}" for name in _WITH_ENDS for end in ("", "_low", "_high")]
    shown = [
        "group",
        "kind",
        "point_id",
        *_TABLE,
        *setting_columns(rows),
        "hosts",
        "global_batch",
        "base",
        "samples",
    ]
    return rows[list(dict.fromkeys([*shown, *ends, "interval", *_ENERGY, "launches", "caution"]))]


def _with_times(rows: pd.DataFrame, *, samples: int) -> pd.DataFrame:
    """Add time, cost and energy of training on so many samples."""
    columns: dict[str, Any] = {"samples": samples}
    columns |= {name: samples * rows[f"{name}_per_sample"] for name in _ENERGY}
    # Of the highest rate the shortest time; a rate that may be 0 leaves no longest one.
    for end, of in {"": "", "_low": "_high", "_high": "_low"}.items():
        rate = rows[f"samples_per_s{of}"]
        columns[f"training_time_s{end}"] = samples / rate.where(rate > 0)
        columns[f"cost_usd{end}"] = rows[f"{PER_SAMPLES}{end}"] * (samples / 1e6)
    return rows.assign(**columns)


def _fastest(points: pd.DataFrame) -> pd.DataFrame:
    """Fastest point of each number of workers, smallest first, by table; exact updates first."""
    order = {semantics: number for number, semantics in enumerate(SEMANTICS)}
    points = points.assign(order=points["semantics"].map(order))
    fastest = points.sort_values("samples_per_s", ascending=False, kind="stable").drop_duplicates(
        [*_TABLE, "workers"]
    )
    rows = fastest.sort_values(["order", *_TABLE[1:], "workers"], ignore_index=True)
    tables = rows.groupby(_TABLE, dropna=False, sort=False)
    rows = rows.assign(group=tables.ngroup(), base=tables["workers"].transform("first"))
    kinds = {group: _kind(table) for group, table in rows.groupby("group")}
    return rows.assign(kind=rows["group"].map(kinds).astype(object))


def _kind(table: pd.DataFrame) -> str | None:
    """Settings that all numbers of workers in a table share."""
    if len(table) == 1:
        return None
    shared = [name for name in setting_columns(table) if name not in _SHAPE]
    if (table[shared].nunique(dropna=False) > 1).any():
        return "free"
    if len(table[["micro_batch", "accumulation"]].drop_duplicates()) == 1:
        return "weak"
    if table["global_batch"].notna().all() and table["global_batch"].nunique() == 1:
        return "strong"
    return "free"


def _cpu_joules_per_sample(trials: pd.DataFrame) -> pd.DataFrame:
    """CPU energy of all hosts by `POINT`, where launches know it."""
    joules = trials["cpu_energy_j_per_sample"].astype("float64")
    per_sample = trials[[*POINT]].assign(cpu_energy_j_per_sample=joules)
    means = per_sample.groupby(list(POINT), dropna=False)["cpu_energy_j_per_sample"].mean()
    return means.reset_index().astype({"env_id": object})
