"""Settings of points and of trials in one form."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

from dtsweep.analysis.launches import setting_columns
from dtsweep.secret import hidden
from dtsweep.sweep.modes import UNDECLARED, mode_in_results
from dtsweep.sweep.point import AXES, Point
from dtsweep.sweep.values import stored_fields

if TYPE_CHECKING:
    import pandas as pd

Settings: TypeAlias = Mapping[str, Any]
"""Settings of a configuration by the columns of `trials`; None where a column is null.

Variables of the workers are `env.NAME`; `nodes` is the number of machines, where it is known.
"""

NODES = "nodes"
"""Setting of measured rows that a run can't be asked for."""

NO_VARIABLES: Mapping[str, str] = MappingProxyType({})


def settings_of_points(
    points: Iterable[Point], *, environment: Mapping[str, str] = NO_VARIABLES
) -> list[Settings]:
    """Give the settings of points as rows of their trials have them.

    Args:
        points: with their workloads.
        environment: variables of all workers, of the sweep's resources.
    """
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
    values = columns.astype(object).where(columns.notna(), None)
    return [_settings_of_row(row) for row in values.to_dict("records")]


def _settings_of_row(row: dict[Any, Any]) -> Settings:
    environment = row.pop("environment", None)
    return row | _variables(json.loads(environment or "{}"))


def _variables(environment: Mapping[str, str]) -> dict[str, str]:
    return {f"env.{name}": value for name, value in environment.items()}


def participants_of(settings: Settings) -> int:
    """Workers that train in a step; all of them where the mode does not say otherwise.

    >>> participants_of({"sync": "federated", "workers": 4, "participation": 0.5})
    2
    >>> participants_of({"sync": "federated", "workers": 4, "participation": None})
    4
    """
    workers = int(settings["workers"])
    participants = mode_in_results(settings["sync"]).participants
    if participants is None:
        return workers
    return _declared(participants, settings, unknown=workers)


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
    changes = _declared(info.changes_one_worker, settings, unknown=False)
    return not changes and not _declared(info.renews_optimizer, settings, unknown=False)


def plain_training_in(points: pd.DataFrame) -> pd.Series[bool]:
    """Mark the rows of trials or points for which `is_plain_training` is true."""
    import pandas as pd

    columns = points[[name for name in AXES if name in points]]
    values = columns.astype(object).where(columns.notna(), None)
    rows = ({str(name): value for name, value in row.items()} for row in values.to_dict("records"))
    is_plain = [is_plain_training(row) for row in rows]
    return pd.Series(is_plain, index=points.index, dtype="bool")


Value = TypeVar("Value")


def _declared(
    function: Callable[[Settings], Value], settings: Settings, *, unknown: Value
) -> Value:
    """Value of a function of a declaration, which may read what settings of a row don't have."""
    try:
        return function(settings)
    except (AttributeError, KeyError, TypeError):
        # A declaration may read the workload itself.
        return unknown
