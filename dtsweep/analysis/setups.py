"""Settings and measurements as the arrays that the performance model takes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.analysis.settings import (
    NO_VARIABLES,
    Settings,
    settings_of_points,
    settings_of_rows,
)
from dtsweep.model.setups import Measured, Setups
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.modes import mode_in_results
from dtsweep.sweep.point import CHOSEN_FIELDS, Point

if TYPE_CHECKING:
    import pandas as pd

_BY_ITSELF = ("workers", "micro_batch", "accumulation", "sync_period")
"""Settings with arrays of their own."""

WITHOUT_EFFECT = ("learning_rate",)
"""Settings that the step time doesn't depend on."""

_JOINED = ("compression", "compression_coding")
"""Settings that are one category."""


@dataclass(frozen=True, kw_only=True)
class Encoding:
    """Columns of setups and facts of the measured trials, which setups of other points need."""

    categories: tuple[str, ...]
    """Names of the settings without an order that vary."""

    numbers: Mapping[str, float]
    """Further settings that vary and are numbers above 0: a mean for those that don't read them."""

    nodes: Mapping[tuple[str, int], int]
    """Measured number of nodes, by placement and workers."""

    workers_per_node: Mapping[str, float]
    """Most workers on a node, by placement; infinite where all trials ran on one node."""

    payloads: Mapping[str, float]
    """Measured bytes of compressed exchanges as shares of the others, by compression."""


def encoding_of(trials: pd.DataFrame, others: Sequence[Settings] = ()) -> Encoding:
    """Choose the columns of setups, by the settings that vary.

    Args:
        trials: measured trials of one model and environment, as `Study.trials` has them.
        others: settings of configurations that were not measured.
    """
    measured = settings_of_rows(trials)
    categories, numbers = _varying([*measured, *others])
    hosts = trials["hosts"].fillna(1).astype(int).tolist()
    return Encoding(
        categories=categories,
        numbers=numbers,
        nodes={_place(one): count for one, count in zip(measured, hosts, strict=True)},
        workers_per_node=_workers_per_node(measured, hosts),
        payloads=_measured_payloads(measured, trials["bytes_sent_per_step"].tolist()),
    )


def _varying(settings: Sequence[Settings]) -> tuple[tuple[str, ...], dict[str, float]]:
    """Name the categories and the numbers that vary among those that read them."""
    categories: list[str] = []
    numbers: dict[str, float] = {}
    own = {*_BY_ITSELF, *WITHOUT_EFFECT, *_JOINED}
    for name in dict.fromkeys(name for one in settings for name in one if name not in own):
        values = {one.get(name) for one in settings if _reads(one, name)}
        positive = [number_of(value) for value in values]
        if len(values) < 2:
            continue
        if min(positive) > 0:
            numbers[name] = geometric_mean(positive)
        else:
            categories.append(name)
    if len({_compression(one) for one in settings}) > 1:
        categories.append("compression")
    return tuple(categories), numbers


def _reads(settings: Settings, name: str) -> bool:
    """True if a setting has an effect: null may be a value of it, or mean that nothing reads it."""
    if name not in CHOSEN_FIELDS or settings.get(name) is not None:
        return True
    info = COMPRESSIONS.get(settings.get("compression") or "")
    return name in mode_in_results(settings["sync"]).reads or bool(info and name in info.reads)


def number_of(value: Any) -> float:
    """Value of a setting as a number; 0 if it isn't one above 0.

    >>> number_of(8), number_of("0.5"), number_of("relu"), number_of(True)
    (8.0, 0.5, 0.0, 0.0)
    """
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        return 0.0
    try:
        number = float(value)
    except ValueError:
        return 0.0
    return max(0.0, number) if math.isfinite(number) else 0.0


def text_of(value: Any) -> str:
    """Value of a setting as a text: 8.0 and 8 are one.

    >>> text_of(8.0), text_of(None)
    ('8', 'none')
    """
    if value is None:
        return "none"
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def _compression(settings: Settings) -> str:
    """Name a compression with its coding."""
    names = [settings.get(name) for name in _JOINED]
    return "+".join(name for name in names if name) or "none"


def _full_compression(settings: Settings) -> str:
    """Name a compression with all that decides its bytes."""
    numbers = [settings.get(name) for name in ("compression_ratio", "compression_rank")]
    return " ".join([_compression(settings), *(text_of(number) for number in numbers if number)])


def _place(settings: Settings) -> tuple[str, int]:
    return text_of(settings.get("placement")), int(settings["workers"])


def _workers_per_node(measured: Sequence[Settings], hosts: Sequence[int]) -> dict[str, float]:
    most: dict[str, float] = {}
    places = [_place(one) for one in measured]
    for (placement, workers), count in zip(places, hosts, strict=True):
        most[placement] = max(most.get(placement, 0.0), workers / count)
    several = {placement for (placement, _), count in zip(places, hosts, strict=True) if count > 1}
    return {place: count if place in several else math.inf for place, count in most.items()}


def _measured_payloads(measured: Sequence[Settings], sent: Sequence[float]) -> dict[str, float]:
    """Median shares of sent bytes, by compression, of trials with equal mode and workers."""
    plain: dict[Any, float] = {}
    for one, count in zip(measured, sent, strict=True):
        if _compression(one) == "none" and count > 0:
            plain[one["sync"], one["workers"]] = count
    shares: dict[str, list[float]] = {}
    for one, count in zip(measured, sent, strict=True):
        whole = plain.get((one["sync"], one["workers"]))
        if _compression(one) != "none" and whole and count > 0:
            shares.setdefault(_full_compression(one), []).append(count / whole)
    return {name: median(values) for name, values in shares.items()}


def setups_of_settings(settings: Sequence[Settings], encoding: Encoding) -> Setups:
    """Make the setups of configurations, on as many nodes as such ones were measured on.

    Workers that were not measured fill nodes like the measured ones; they share one node if all
    trials ran on one.
    """
    modes = [mode_in_results(one["sync"]) for one in settings]
    flags = [_is_asynchronous(one) for one in settings]
    return Setups(
        workers=_column(one["workers"] for one in settings),
        nodes=_column(_nodes(one, encoding) for one in settings),
        micro_batch=_column(one["micro_batch"] for one in settings),
        accumulation=_column(one["accumulation"] or 1 for one in settings),
        period=_column(one.get("sync_period") or 1 for one in settings),
        payload=_column(_payload(one, encoding) for one in settings),
        is_asynchronous=np.array(flags, dtype=np.bool_),
        exchanges_each_pass=np.array([mode.exchanges_each_pass for mode in modes], dtype=np.bool_),
        categories={name: _texts(settings, name) for name in encoding.categories},
        numbers={
            name: _column(number_of(one.get(name)) or typical for one in settings)
            for name, typical in encoding.numbers.items()
        },
    )


def setups_of_points(
    points: Sequence[Point],
    encoding: Encoding,
    *,
    environment: Mapping[str, str] = NO_VARIABLES,
) -> Setups:
    """Make the setups of points, as `setups_of_settings` does.

    Args:
        points: with their workloads.
        encoding: of the measured trials and the settings of these points.
        environment: variables of all workers, of the sweep's resources.
    """
    return setups_of_settings(settings_of_points(points, environment=environment), encoding)


def _column(values: Iterable[Any]) -> NDArray[np.float64]:
    return np.array([*values], dtype=np.float64)


def _texts(settings: Sequence[Settings], name: str) -> NDArray[Any]:
    if name == "compression":
        return np.array([_compression(one) for one in settings], dtype=object)
    return np.array([text_of(one.get(name)) for one in settings], dtype=object)


def _is_asynchronous(settings: Settings) -> bool:
    try:
        return bool(mode_in_results(settings["sync"]).is_asynchronous(settings))
    except (AttributeError, KeyError, TypeError):
        # A declaration of a package may read the workload itself.
        return False


def _nodes(settings: Settings, encoding: Encoding) -> int:
    place = _place(settings)
    if place in encoding.nodes:
        return encoding.nodes[place]
    on_node = max(encoding.workers_per_node.values(), default=math.inf)
    on_node = encoding.workers_per_node.get(place[0], on_node)
    return max(1, math.ceil(place[1] / on_node))


def _payload(settings: Settings, encoding: Encoding) -> float:
    """Bytes of an exchange as a share of those without compression; 1 where it is unknown."""
    name = settings.get("compression")
    info = COMPRESSIONS.get(name or "")
    is_coded = settings.get("compression_coding") is not None
    if info is None or info.bytes_per_value is None or is_coded:
        return encoding.payloads.get(_full_compression(settings), 1.0)
    share = info.bytes_per_value(settings) / 4
    if info.exchange == "all_gather":
        # Each payload goes to every worker, and not twice around a ring.
        share *= settings["workers"] / 2
    return share


def measured_of(trials: pd.DataFrame, encoding: Encoding | None = None) -> tuple[Setups, Measured]:
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
    hosts = trials["hosts"].fillna(1).to_numpy("float64")
    setups = Setups(**{**vars(setups), "nodes": hosts})
    rate = trials["samples_per_s"].to_numpy("float64")
    error = (trials["samples_per_s_error"] / trials["samples_per_s"]).astype("float64")
    # A window that drifts has no error of its own: the others say how much windows vary.
    errors = np.array(error.fillna(error.median()).fillna(0.0), dtype=np.float64)
    measured = Measured(
        step_s=setups.samples_per_step / rate,
        error=errors,
        pass_s=trials["pass_s"].to_numpy("float64"),
        launch=trials["launch"].factorize()[0].astype(np.int64),
    )
    return setups, measured


def usable_trials(trials: pd.DataFrame) -> pd.DataFrame:
    """Select the trials that a model can be fitted to: with a rate and the size of a pass."""
    rate = trials["samples_per_s"]
    is_usable = (rate > 0) & (rate < math.inf) & trials["micro_batch"].notna()
    return trials[is_usable.fillna(value=False) & trials["workers"].notna()]
