"""Settings of the data loaders of a training loop of the user that can be axes `loader.NAME`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dtsweep.errors import SweepError, did_you_mean, quoted
from dtsweep.sweep.values import LOADER, Scalar

LOADER_TYPES: Mapping[str, Any] = {
    "num_workers": int | None,
    "prefetch_factor": int | None,
    "pin_memory": bool | None,
}
"""Type of each by the name of the argument of `DataLoader`; None leaves what the loop gives."""

_LEAST: Mapping[str, int] = {"num_workers": 0, "prefetch_factor": 1}


def check_loader_setting(name: str) -> None:
    """Refuse an axis `loader.NAME` that can't be set.

    Raises:
        SweepError: with the nearest name.
    """
    if name.removeprefix(LOADER) not in LOADER_TYPES:
        allowed = [f"{LOADER}{setting}" for setting in LOADER_TYPES]
        raise SweepError(
            f"axis {name!r} is not a setting of a DataLoader that can be an axis; "
            f"{did_you_mean(name, allowed)}",
            word=name,
        )


def loader_settings(values: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """Settings as a `DataLoader` takes them: without processes there is nothing to prefetch.

    >>> loader_settings({"num_workers": 0, "prefetch_factor": 4})
    {'num_workers': 0, 'prefetch_factor': None}

    Raises:
        SweepError: a number is too small.
    """
    for name, least in _LEAST.items():
        value = values.get(name)
        if isinstance(value, int) and value < least:
            raise SweepError(
                f"{LOADER}{name}={quoted(value)} must be at least {least}", word=f"{LOADER}{name}"
            )
    settings = dict(values)
    if settings.get("num_workers") == 0 and "prefetch_factor" in settings:
        settings["prefetch_factor"] = None
    return settings
