"""Settings of points and of trials in one form."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias

from dtsweep.analysis.launches import setting_columns
from dtsweep.sweep.modes import mode_in_results
from dtsweep.sweep.point import Point
from dtsweep.sweep.secret import hidden
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
    """
    workers = int(settings["workers"])
    participants = mode_in_results(settings["sync"]).participants
    if participants is None:
        return workers
    try:
        return int(participants(settings))
    except (AttributeError, KeyError, TypeError):
        # A declaration of a package may read the workload itself.
        return workers
