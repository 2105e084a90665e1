"""Performance of configurations that were not measured, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.launches import PER_SAMPLES, setting_columns
from dtsweep.analysis.settings import (
    NODES,
    Settings,
    settings_key,
    settings_of_points,
    settings_of_rows,
)
from dtsweep.analysis.study import Frame, study_of
from dtsweep.inference.spread import of_environment
from dtsweep.predict.encoding import (
    Encoding,
    Reach,
    encoding_of,
    measured_of,
    reach_of,
    setups_of_settings,
    usable_trials,
)
from dtsweep.predict.limits import reasons_of
from dtsweep.predict.memory import need_bytes
from dtsweep.predict.setups import NORMAL_90, MeasuredSetups, Numbers, Setups
from dtsweep.predict.step_time import StepTimeModel, fit_step_time
from dtsweep.sweep.point import Point

if TYPE_CHECKING:
    import pandas as pd


_NEAR = 0.25
"""Distance at which a measured configuration counts a sixteenth of one at distance 0.

A distance is the number of doublings between sizes, and 2 for each other category.
"""

_GROWTH = 0.05
"""Least standard deviation of a ratio's logarithm at distance 1: one measured point shows none."""


def _carried_over(ratios: Numbers, measured: Setups, setups: Setups) -> tuple[Numbers, Numbers]:
    """Carry the logarithm of a ratio over to configurations.

    Args:
        ratios: (m,) of the measured ones; nan or 0 where it is unknown.
        measured: m measured configurations.
        setups: n configurations.

    Returns:
        (n,) mean of the measured ones, the nearest first of all; and (n,) standard deviation of
        them around it, and of the distance to the nearest. Nan where no measured one has it.
    """
    is_known = ratios > 0
    if not is_known.any():
        mean, deviation = np.full((2, len(setups)), np.nan)
        return mean, deviation
    logs = np.log(ratios[is_known])
    apart = _distances(setups, measured.take(is_known))
    weights = (apart + _NEAR) ** -4.0
    weights /= weights.sum(axis=1, keepdims=True)
    mean = weights @ logs
    squares = (logs[None, :] - mean[:, None]) ** 2
    around = np.sqrt((weights * squares).sum(axis=1))
    return mean, np.hypot(around, _GROWTH * apart.min(axis=1))


def _distances(setups: Setups, measured: Setups) -> Numbers:
    """Distances of n configurations to m measured ones: (n, m)."""
    total = np.zeros((len(setups), len(measured)))
    pairs = [
        *((getattr(setups, name), getattr(measured, name)) for name in _SIZES),
        *((setups.numbers[name], values) for name, values in measured.numbers.items()),
    ]
    for one, other in pairs:
        total += np.abs(np.log2(one)[:, None] - np.log2(other)[None, :])
    for name, texts in measured.categories.items():
        total += np.where(setups.categories[name][:, None] != texts[None, :], 2.0, 0.0)
    return total


_SIZES = ("workers", "nodes", "micro_batch", "accumulation", "period")


_MOST_TRIALS = 200
"""Trials that a model is fitted to by default: the time of a fit grows with their third power."""

_WITH_INTERVAL = ("samples_per_s", "latency_s", "energy_j_per_sample", PER_SAMPLES)
"""Columns of predictions with `_low` and `_high`, the ends of their 90 % intervals."""

PREDICTED = (*_WITH_INTERVAL, "memory_peak_bytes")
"""Columns of predictions."""


@dataclass(frozen=True, kw_only=True, eq=False)
class PerformanceModel:
    """Performance of one model in one environment, fitted to its measured trials."""

    model_digest: Any
    """Digest of what is trained."""

    env_id: Any
    """Digest of the environment."""

    trials: pd.DataFrame
    """Trials that it is fitted to, as `Study.trials` has them."""

    all_trials: pd.DataFrame
    """Trials that it could be fitted to."""

    points: pd.DataFrame
    """Measured points, rows of `over_launches`."""

    def __repr__(self) -> str:
        """Count the points, and name the model and the environment."""
        return (
            f"<PerformanceModel: {len(self.points)} measured points, model {self.model_digest}, "
            f"environment {self.env_id}>"
        )

    @cached_property
    def encoding(self) -> Encoding:
        """Columns of its setups."""
        return encoding_of(self.all_trials)

    @cached_property
    def step_time(self) -> StepTimeModel:
        """Model of the step time."""
        return fit_step_time(*self._measured)

    @cached_property
    def _peaks(self) -> dict[Any, dict[int, float]]:
        """Largest peak of a worker by micro-batch, by all other settings."""
        peaks: dict[Any, dict[int, float]] = {}
        measured = self.all_trials[self.all_trials["memory_peak_bytes"].notna()]
        peak_bytes = measured["memory_peak_bytes"].astype("float64")
        for settings, peak in zip(settings_of_rows(measured), peak_bytes, strict=True):
            if peak:
                sizes = peaks.setdefault(_family(settings), {})
                size = int(settings["micro_batch"])
                sizes[size] = max(peak, sizes.get(size, 0.0))
        return peaks

    @cached_property
    def _measured(self) -> tuple[Setups, MeasuredSetups]:
        return measured_of(self.trials, self.encoding)

    @cached_property
    def _reach(self) -> Reach:
        return reach_of(settings_of_rows(self.all_trials), self.encoding)

    @cached_property
    def fastest(self) -> Settings:
        """Settings of the measured point with the highest throughput, without its nodes."""
        (settings,) = settings_of_rows(self.points.nlargest(1, "samples_per_s"))
        return {name: value for name, value in settings.items() if name != NODES}

    def predict(self, asked: Sequence[Settings] | Sequence[Point]) -> pd.DataFrame:
        """Predict configurations.

        Args:
            asked: points, or settings by the columns of `trials`. A setting of the workload or a
                variable that is not given is taken from the fastest measured point. Without
                `nodes` they run on as many as most measured trials with their workers.

        Returns:
            One row per configuration: its settings; `nodes`; `step_s`, `PREDICTED` and the ends of
            90 % intervals (`_low`, `_high`) `_WITH_INTERVAL`, null where they can't be predicted;
            `distance` to the measured points, 0 at one and 1 where they tell little; `reason`, why
            nothing is predicted, else null; `point_id` of a measured point with these settings,
            else null.
        """
        import pandas as pd

        settings = self._complete(asked)
        setups = setups_of_settings(settings, self.encoding)
        rows = pd.DataFrame(settings, dtype=object).drop(columns=NODES)
        prediction = self.step_time.predict(setups)
        reasons = [
            self._reach.reason(one) or reason
            for one, reason in zip(settings, reasons_of(setups, self._measured[0]), strict=True)
        ]
        names = self._point_ids
        needs = [
            need_bytes(self._peaks.get(_family(one), {}), int(one["micro_batch"]))
            for one in settings
        ]
        figures: dict[str, Any] = {
            "nodes": setups.nodes.astype(int),
            **self._figures(setups, prediction.log_step_s, prediction.error),
            "memory_peak_bytes": np.array(needs, dtype=np.float64),
        }
        table = pd.DataFrame(figures)
        is_refused = np.array([reason is not None for reason in reasons])
        table.loc[is_refused, [name for name in table if name != "nodes"]] = np.nan
        table["distance"] = prediction.distance
        table["reason"] = pd.Series(reasons, dtype=object)
        table["point_id"] = pd.Series(
            [names.get(settings_key(one)) for one in settings], dtype=object
        )
        return pd.concat([rows, table], axis="columns")

    def _complete(self, asked: Sequence[Settings] | Sequence[Point]) -> list[Settings]:
        """Give each configuration the settings that it leaves open."""
        points = [one for one in asked if isinstance(one, Point)]
        settings = [one for one in asked if not isinstance(one, Point)]
        return [
            self._on_nodes({**self.fastest, **one})
            for one in [*settings_of_points(points), *settings]
        ]

    def _on_nodes(self, settings: Settings) -> Settings:
        return {**settings, NODES: self.encoding.places.nodes_of(settings)}

    @cached_property
    def _point_ids(self) -> dict[Any, str]:
        """Measured points by their settings."""
        settings = settings_of_rows(self.points)
        return {
            settings_key(self._on_nodes(one)): name
            for one, name in zip(settings, self.points["point_id"], strict=True)
        }

    def _figures(self, setups: Setups, log_step_s: Numbers, error: Numbers) -> dict[str, Numbers]:
        """Compute the predicted columns."""
        measured, times = self._measured
        rate = self.trials["samples_per_s"].to_numpy("float64")
        log_rate = np.log(setups.samples_per_step) - log_step_s
        latency, of_latency = _carried_over(
            self._column("latency_s") / times.step_s, measured, setups
        )
        per_worker = self._column("energy_j_per_sample") * rate / measured.workers
        power, of_power = _carried_over(per_worker, measured, setups)
        log_energy = power + np.log(setups.workers) - log_rate
        log_price = np.log(self._usd_per_hour(setups) / 3600 * 1e6)
        return {
            "step_s": np.exp(log_step_s),
            **_with_ends("samples_per_s", log_rate, error),
            **_with_ends("latency_s", log_step_s + latency, np.hypot(error, of_latency)),
            **_with_ends("energy_j_per_sample", log_energy, np.hypot(error, of_power)),
            **_with_ends(PER_SAMPLES, log_price - log_rate, error),
        }

    def _column(self, name: str) -> Numbers:
        column: Numbers = self.trials[name].to_numpy("float64")
        return column

    def _usd_per_hour(self, setups: Setups) -> Numbers:
        """Price of the nodes: the measured one of as many workers, else by the dearest node."""
        price = self._column("usd_per_hour")
        is_known = ~np.isnan(price)
        measured = self._measured[0].take(is_known)
        price = price[is_known]
        dearest = max(price / measured.nodes, default=np.nan)
        places = zip(measured.workers, measured.nodes, strict=True)
        by_place = dict(zip(places, price, strict=True))
        return np.array(
            [
                by_place.get((workers, nodes), dearest * nodes)
                for workers, nodes in zip(setups.workers, setups.nodes, strict=True)
            ]
        )


def _with_ends(name: str, logs: Numbers, error: Numbers) -> dict[str, Numbers]:
    """Columns of a quantity and its 90 % interval."""
    half = NORMAL_90 * error
    return {
        name: np.exp(logs),
        f"{name}_low": np.exp(logs - half),
        f"{name}_high": np.exp(logs + half),
    }


def _family(settings: Settings) -> tuple[Any, ...]:
    """Key of the settings that a peak depends on, but for the micro-batch."""
    apart = ("micro_batch", NODES)
    return settings_key({name: value for name, value in settings.items() if name not in apart})


def performance_model(frame: Frame, *, most_trials: int = _MOST_TRIALS) -> list[PerformanceModel]:
    """Fit the performance of each model in each environment.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.
        most_trials: trials that one model is fitted to; of more, as many are drawn at random, the
            draw being the same each time.

    Returns:
        One for each `model_digest` and `env_id` of the measured trials, in their order. It is
        fitted when it is first asked.

    >>> import dtsweep
    >>> performance_model(dtsweep.load("notebooks/samples/campaign"))
    [<PerformanceModel: 8 measured points, model 1e990dc93d18d696, environment 1e403af3c2a36fe4>]
    """
    study = study_of(frame)
    trials = usable_trials(study.trials)
    groups = trials.groupby(["model_digest", "env_id"], dropna=False, sort=False)
    models = []
    for (model_digest, env_id), rows in groups:
        points = of_environment(study.points, env_id)
        points = points[points["point_id"].isin(rows["point_id"])]
        models.append(
            PerformanceModel(
                model_digest=model_digest,
                env_id=env_id,
                trials=_thinned(rows, most_trials).reset_index(drop=True),
                all_trials=rows.reset_index(drop=True),
                points=points.reset_index(drop=True),
            )
        )
    return models


def _thinned(rows: pd.DataFrame, most: int) -> pd.DataFrame:
    """Draw at most so many rows, with each value of a setting among them where they are enough."""
    if len(rows) <= most:
        return rows
    # Equal intervals would fall on the same values of an axis again and again.
    order = np.random.default_rng(0).permutation(len(rows))
    settings = rows[[*setting_columns(rows), "hosts"]].iloc[order].astype(str)
    is_first = np.any([~settings[name].duplicated() for name in settings], axis=0)
    chosen = np.concatenate([order[is_first], order[~is_first]])[:most]
    return rows.iloc[np.sort(chosen)]
