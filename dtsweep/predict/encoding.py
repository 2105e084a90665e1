"""Settings and measurements as the arrays that the performance model takes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.settings import (
    NODES,
    WITHOUT_EFFECT,
    Settings,
    axis_name,
    declared,
    is_read,
    number_of,
    participants_of,
    settings_of_rows,
    slowness_of,
    text_of,
)
from dtsweep.predict.limits import REACH
from dtsweep.predict.payloads import Payloads, measured_payloads, payload_of
from dtsweep.predict.setups import MeasuredSetups, Setups
from dtsweep.sweep.modes import PERIODS, mode_in_results
from dtsweep.sweep.point_axes import DEFAULTS
from dtsweep.text import format_number

if TYPE_CHECKING:
    import pandas as pd


_SIZES = ("workers", NODES, "micro_batch", "accumulation", *PERIODS, "slow_rank")
"""Settings with arrays of their own, whose limits the model of the step time knows."""

_GRID = ("tensor_parallel", "pipeline_parallel")
"""Numbers between which nothing is predicted: the model has no terms for them."""


@dataclass(frozen=True, kw_only=True)
class _Places:
    """Numbers of nodes of measured trials."""

    nodes: Mapping[tuple[str, int], int]
    """Most frequent number of nodes, by placement and workers; of equal counts the smallest."""

    workers_per_node: Mapping[str, float]
    """Most workers on a node, by placement; infinite where all trials ran on one node."""

    def nodes_of(self, settings: Settings) -> int:
        """Give the number of nodes of a configuration.

        It is that in the settings, else the most frequent one of as many workers. Workers that
        were not measured fill nodes like the measured ones.
        """
        if settings.get(NODES):
            return int(settings[NODES])
        place = _place(settings)
        if place in self.nodes:
            return self.nodes[place]
        most = max(self.workers_per_node.values(), default=math.inf)
        return max(1, math.ceil(place[1] / self.workers_per_node.get(place[0], most)))


def _places_of(measured: Sequence[Settings]) -> _Places:
    """Count the nodes of measured trials, by their placement and workers."""
    counts: dict[tuple[str, int], Counter[int]] = {}
    for one in measured:
        if one.get(NODES):
            counts.setdefault(_place(one), Counter())[int(one[NODES])] += 1
    most: dict[str, int] = {}
    frequent: dict[tuple[str, int], int] = {}
    for (placement, workers), nodes in counts.items():
        most[placement] = max(most.get(placement, 0), math.ceil(workers / min(nodes)))
        frequent[placement, workers] = max(sorted(nodes), key=nodes.__getitem__)
    several = {placement for (placement, _), nodes in counts.items() if max(nodes) > 1}
    return _Places(
        nodes=frequent,
        workers_per_node={
            placement: count if placement in several else math.inf
            for placement, count in most.items()
        },
    )


def _place(settings: Settings) -> tuple[str, int]:
    return text_of(settings.get("placement")), int(settings["workers"])


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Columns of setups and facts of the measured trials, which setups of other points need."""

    categories: tuple[str, ...]
    """Names of the settings without an order that vary."""

    numbers: Mapping[str, float]
    """Further settings that vary and are numbers above 0: a mean for those that don't read them."""

    places: _Places
    """Numbers of nodes that were measured."""

    payloads: Payloads
    """Measured bytes of compressed exchanges as shares of the others."""


def encoding_of(trials: pd.DataFrame, others: Sequence[Settings] = ()) -> Encoding:
    """Choose the columns of setups, by the settings that vary."""
    measured = settings_of_rows(trials)
    categories, numbers = _varying([*measured, *others])
    return Encoding(
        categories=categories,
        numbers=numbers,
        places=_places_of(measured),
        payloads=measured_payloads(measured, trials["bytes_sent_per_step"].tolist()),
    )


def _varying(settings: Sequence[Settings]) -> tuple[tuple[str, ...], dict[str, float]]:
    """Name the categories and the numbers that vary among those that read them."""
    categories: list[str] = []
    numbers: dict[str, float] = {}
    own = {*_SIZES, *WITHOUT_EFFECT}
    for name in dict.fromkeys(name for one in settings for name in one if name not in own):
        values = {one.get(name) for one in settings if is_read(one, name)}
        positive = [number_of(value) for value in values]
        if len(values) < 2:
            continue
        if min(positive) > 0 and name not in _GRID:
            numbers[name] = geometric_mean(positive)
        else:
            categories.append(name)
    return tuple(categories), numbers


def setups_of_settings(settings: Sequence[Settings], encoding: Encoding) -> Setups:
    """Make the setups of configurations, on the nodes that `_Places.nodes_of` gives."""
    modes = [mode_in_results(one["sync"]) for one in settings]
    flags = [
        declared(mode.is_asynchronous, one, unknown=False)
        for mode, one in zip(modes, settings, strict=True)
    ]
    # 1 where their number is unknown
    servers = [
        int(declared(mode.servers, one, unknown=int("shards" in mode.reads)))
        for mode, one in zip(modes, settings, strict=True)
    ]
    return Setups(
        workers=_column(one["workers"] for one in settings),
        participants=_column(participants_of(one) for one in settings),
        nodes=_column(encoding.places.nodes_of(one) for one in settings),
        micro_batch=_column(one["micro_batch"] for one in settings),
        accumulation=_column(one["accumulation"] or 1 for one in settings),
        period=_column(_period(one) for one in settings),
        payload=_column(payload_of(one, encoding.payloads) for one in settings),
        is_asynchronous=np.array(flags, dtype=np.bool_),
        servers=_column(servers),
        exchanges_each_pass=np.array([mode.exchanges_each_pass for mode in modes], dtype=np.bool_),
        slowness=_column(slowness_of(one) for one in settings),
        categories={name: _texts(settings, name) for name in encoding.categories},
        numbers={
            name: _column(number_of(one.get(name)) or typical for one in settings)
            for name, typical in encoding.numbers.items()
        },
    )


def _column(values: Iterable[Any]) -> NDArray[np.float64]:
    return np.array([*values], dtype=np.float64)


def _period(settings: Settings) -> float:
    """Steps per exchange; a push and a pull are half of one each."""
    whole, push, pull = (settings.get(name) or 1 for name in PERIODS)
    return float(whole) * 2 / (1 / push + 1 / pull)


def _texts(settings: Sequence[Settings], name: str) -> NDArray[Any]:
    texts = [text_of(one.get(name)) if is_read(one, name) else "unread" for one in settings]
    return np.array(texts, dtype=object)


def measured_of(
    trials: pd.DataFrame, encoding: Encoding | None = None
) -> tuple[Setups, MeasuredSetups]:
    """Turn measured trials into setups and step times, one for each row.

    Args:
        trials: `usable_trials` of one model and environment.
        encoding: of these trials and the configurations to predict; None takes one of the trials.

    Returns:
        The setups, and their step times: samples of a step over samples per second, also in modes
        where each worker's step is its own.
    """
    encoding = encoding or encoding_of(trials)
    setups = setups_of_settings(settings_of_rows(trials), encoding)
    rate = trials["samples_per_s"].to_numpy("float64")
    error = (trials["samples_per_s_error"] / trials["samples_per_s"]).astype("float64")
    # A window that drifts has no error of its own: the others say how much windows vary.
    errors = np.array(error.fillna(error.median()).fillna(0.0), dtype=np.float64)
    measured = MeasuredSetups(
        step_s=setups.samples_per_step / rate,
        error=errors,
        pass_s=trials["pass_s"].where(trials["pass_s"] > 0).to_numpy("float64"),
        launch=trials["launch"].factorize()[0].astype(np.int64),
    )
    return setups, measured


def usable_trials(trials: pd.DataFrame) -> pd.DataFrame:
    """Select the trials that a model can be fitted to: with a rate and the size of a pass."""
    rate = trials["samples_per_s"]
    is_usable = (rate > 0) & (rate < math.inf) & trials["micro_batch"].notna()
    return trials[is_usable.fillna(value=False) & trials["workers"].notna()]


@dataclass(frozen=True, kw_only=True)
class Reach:
    """Settings that predictions can have."""

    constant: Mapping[str, frozenset[str]]
    """Measured values of the settings whose effect is not known."""

    ranges: Mapping[str, tuple[float, float]]
    """Smallest and largest measured value of the numbers that they differ in."""

    def reason(self, settings: Settings) -> str | None:
        """Say why a configuration can't be predicted; None if its settings are within reach."""
        for name, known in self.constant.items():
            if name in settings and text_of(settings[name]) not in known:
                return f"unsupported: measured {axis_name(name)}: {', '.join(sorted(known))}"
        for name, (low, high) in self.ranges.items():
            if not is_read(settings, name):
                continue
            value = number_of(settings.get(name))
            words = f"unsupported: measured {axis_name(name)} {_from_to(low, high)}"
            if not value:
                return f"{words}, and not {text_of(settings.get(name))}"
            if not low / REACH <= value <= high * REACH:
                return f"{words}; predictions reach {_from_to(low / REACH, high * REACH)}"
        return None


def _from_to(low: float, high: float) -> str:
    return f"{format_number(low, digits=3)} to {format_number(high, digits=3)}"


def reach_of(measured: Sequence[Settings], encoding: Encoding) -> Reach:
    """Find the values that measured configurations have."""
    varying = {*encoding.categories, *encoding.numbers, *_SIZES, *WITHOUT_EFFECT}
    names = dict.fromkeys(name for one in measured for name in one if name not in varying)
    ranges = {}
    for name in encoding.numbers:
        values = list(filter(None, (number_of(one.get(name)) for one in measured)))
        ranges[name] = (min(values), max(values))
    constant = {name: frozenset(text_of(one.get(name)) for one in measured) for name in names}
    # Null is not a value of a setting with a default: rows of tables don't say what it was.
    constant = {
        name: known
        for name, known in constant.items()
        if DEFAULTS.get(name) is None or known != {text_of(None)}
    }
    return Reach(constant=constant, ranges=ranges)
