"""Settings of points and of trials in one form, and their values as numbers and texts."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dtsweep.analysis.launches import rows_of, setting_columns
from dtsweep.secret import hidden
from dtsweep.sweep.compressions import COMPRESSIONS, CompressionInfo, reads_of
from dtsweep.sweep.modes import UNDECLARED, mode_in_results
from dtsweep.sweep.point import Point
from dtsweep.sweep.point_axes import AXES, CHOSEN_FIELDS, DEFAULTS
from dtsweep.sweep.values import OF_LOOPS, stored_fields

if TYPE_CHECKING:
    import pandas as pd


Settings: TypeAlias = Mapping[str, Any]
"""Settings of a configuration by the columns of `trials`; None where a column is null.

Variables of the workers are `env.NAME`; `nodes` is the number of machines, where it is known.
"""

NODES = "nodes"
"""Setting of measured rows that a run can't be asked for."""

_NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


_OFF: Mapping[str, Any] = {
    **{name: default for name, default in DEFAULTS.items() if default is False},
    **{"tensor_parallel": 1, "pipeline_parallel": 1},
}
"""Axes that change nothing until they are set: an imported row has no value for them."""


def settings_of_points(
    points: Iterable[Point], *, environment: Mapping[str, str] = _NO_VARIABLES
) -> list[Settings]:
    """Give the settings of points as rows of their trials have them."""
    return [_settings_of_point(point, environment) for point in points]


def _settings_of_point(point: Point, environment: Mapping[str, str]) -> Settings:
    settings: dict[str, Any] = dict(point.columns())
    if point.has_own_optimizer:
        settings["optimizer"] = None
    if point.workload is not None:
        settings |= {"workload": type(point.workload).__name__, **stored_fields(point.workload)}
    return settings | _variables(hidden({**environment, **point.environment}))


def settings_of_rows(rows: pd.DataFrame) -> list[Settings]:
    """Give the settings of trials or points of a frame, one for each row."""
    columns = rows[setting_columns(rows)]
    if "hosts" in rows.columns:
        columns = columns.assign(**{NODES: rows["hosts"]})
    return [_settings_of_row(row) for row in rows_of(columns)]


def _settings_of_row(row: dict[str, Any]) -> Settings:
    environment = row.pop("environment", None)
    settings: dict[str, Any] = row | _variables(json.loads(environment or "{}"))
    unset = [name for name in _OFF if settings.get(name) is None and is_read(settings, name)]
    return settings | {name: _OFF[name] for name in unset}


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {f"env.{name}": value for name, value in environment.items()}


def participants_of(settings: Settings) -> int:
    """Groups of workers that train in a step; all of them where the mode does not say otherwise.

    >>> participants_of({"sync": "ddp", "workers": 4, "tensor_parallel": 2})
    2

    >>> participants_of({"sync": "federated", "workers": 4, "participation": 0.5})
    2
    >>> participants_of({"sync": "federated", "workers": 4, "participation": None})
    4
    """
    shared = [int(settings.get(name) or 1) for name in ("tensor_parallel", "pipeline_parallel")]
    workers = int(settings["workers"]) // math.prod(shared)
    participants = mode_in_results(settings["sync"]).participants
    if participants is None:
        return workers
    return declared(participants, settings, unknown=workers)


def is_plain_training(settings: Settings) -> bool:
    """True for one worker that its mode lets train like plain PyTorch: the one definition of it.

    A compression does not count, because one worker sends nothing.

    >>> is_plain_training({"sync": "local_sgd", "workers": 1, "local_momentum": "keep"})
    True
    >>> is_plain_training({"sync": "local_sgd", "workers": 1, "local_momentum": "reset"})
    False
    """
    if settings["workers"] != 1:
        return False
    info, sync = UNDECLARED, settings["sync"]
    # An imported table may have no mode.
    if isinstance(sync, str):
        info = mode_in_results(sync)
    changes = declared(info.changes_one_worker, settings, unknown=False)
    return not changes and not declared(info.renews_optimizer, settings, unknown=False)


def plain_training_in(points: pd.DataFrame) -> pd.Series[bool]:
    """Mark the rows of trials or points for which `is_plain_training` is true."""
    import pandas as pd

    columns = points[[name for name in AXES if name in points]]
    is_plain = [is_plain_training(row) for row in rows_of(columns)]
    return pd.Series(is_plain, index=points.index, dtype="bool")


_Value = TypeVar("_Value")


def declared(
    function: Callable[[Settings], _Value], settings: Settings, *, unknown: _Value
) -> _Value:
    """Value of a function of a declaration, which may read what settings of a row don't have."""
    try:
        return function(settings)
    except (AttributeError, KeyError, TypeError):
        # A declaration may read the workload itself.
        return unknown


WITHOUT_EFFECT = (
    "learning_rate",
    "synchronous_steps",
    "outer_learning_rate",
    "outer_momentum",
)
"""Settings that the step time doesn't depend on."""


def is_read(settings: Settings, name: str) -> bool:
    """True if a setting has an effect: null may be a value of it, or mean that nothing reads it."""
    if name not in CHOSEN_FIELDS or settings.get(name) is not None:
        return True
    if name in mode_in_results(settings["sync"]).reads:
        return True
    return compression_info(settings) is not None and name in reads_of(settings["compression"])


def compression_info(settings: Settings) -> CompressionInfo | None:
    """Declaration of a compression; None without one, or if dtsweep does not have it."""
    return COMPRESSIONS.get(settings.get("compression") or "")


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
    """Value of a setting as a text: 8.0 and 8 are one, different numbers are not.

    >>> text_of(8.0), text_of(None), text_of(1234567.0), text_of(0.1)
    ('8', 'none', '1234567', '0.1')
    """
    if value is None:
        return "none"
    if not isinstance(value, float):
        return str(value)
    return str(int(value)) if value.is_integer() else repr(float(value))


def axis_name(column: str) -> str:
    """Name a column of a setting as a sweep file does.

    >>> axis_name("workload_width"), axis_name("workload_args.batch-size"), axis_name("env.OMP")
    ('workload.width', 'args.batch-size', 'env.OMP')
    """
    if column.startswith(tuple(f"workload_{beginning}" for beginning in OF_LOOPS)):
        return column.removeprefix("workload_")
    return column.replace("workload_", "workload.", 1)


def slowness_of(settings: Settings) -> float:
    """Factor of the slowest worker's pass by `slow_rank`.

    >>> slowness_of({"workers": 2}), slowness_of({"workers": 2, "slow_rank": 2.0})
    (1.0, 2.0)
    """
    return number_of(settings.get("slow_rank")) or 1.0


def settings_key(settings: Settings) -> tuple[Any, ...]:
    """Key of settings that are equal in all that has an effect; null and not given are one."""
    return tuple(
        sorted(
            (name, text_of(value))
            for name, value in settings.items()
            if value is not None and name not in WITHOUT_EFFECT
        )
    )
