"""Values of settings as numbers and texts, and the settings that have an effect."""

from __future__ import annotations

import math
from typing import Any

from dtsweep.analysis.settings import Settings
from dtsweep.sweep.compressions import COMPRESSIONS, CompressionInfo, reads_of
from dtsweep.sweep.modes import mode_in_results
from dtsweep.sweep.point import CHOSEN_FIELDS
from dtsweep.sweep.values import ARGS

WITHOUT_EFFECT = (
    *("learning_rate", "synchronous_steps"),
    *("outer_learning_rate", "outer_momentum"),
)
"""Settings that the step time doesn't depend on."""

JOINED = ("compression", "compression_coding")
"""Settings that are one category."""


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
    if column.startswith(f"workload_{ARGS}"):
        return column.removeprefix("workload_")
    return column.replace("workload_", "workload.", 1)


def compression_name(settings: Settings) -> str:
    """Name a compression with its coding."""
    names = [settings.get(name) for name in JOINED]
    return "+".join(name for name in names if name) or "none"


def slowness_of(settings: Settings) -> float:
    """Factor of the slowest worker's pass by `slow_rank`; with `balance` what is left of it.

    With n workers, one of them with passes of f times the length, shares by speed leave
    n ÷ (n − 1 + 1/f); the others' share of samples grows by the same factor.

    >>> slowness_of({"workers": 2}), slowness_of({"workers": 2, "slow_rank": 2.0})
    (1.0, 2.0)
    >>> round(slowness_of({"workers": 2, "slow_rank": 2.0, "balance": "static"}), 3)
    1.333
    """
    factor = number_of(settings.get("slow_rank")) or 1.0
    if settings.get("balance") is None:
        return factor
    workers = float(settings["workers"])
    return workers / (workers - 1 + 1 / factor)


def settings_key(settings: Settings) -> tuple[Any, ...]:
    """Key of settings that are equal in all that has an effect; null and not given are one."""
    return tuple(
        sorted(
            (name, text_of(value))
            for name, value in settings.items()
            if value is not None and name not in WITHOUT_EFFECT
        )
    )
