"""Bytes of exchanges, as shares of those without compression."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any, TypeAlias

from dtsweep.analysis.settings import Settings, compression_info, settings_key, text_of
from dtsweep.sweep.compressions import COMPRESSION_FIELDS

Payloads: TypeAlias = Mapping[tuple[str, str], float]
"""Measured shares, by mode and compression; the mode is empty for those of all modes."""

_STATE_SHARES: Mapping[str, float] = {"sgd": 0.0, "momentum": 1.0, "adam": 2.0, "adamw": 2.0}
"""Bytes of optimizer state for a byte of parameters, by `optimizer`."""

_OTHER_WAYS = ("parameter_server", "hierarchical")
"""Modes whose payloads don't travel to every worker or around a ring."""


def measured_payloads(measured: Sequence[Settings], sent: Sequence[float]) -> Payloads:
    """Median shares of sent bytes, of trials that differ in the compression alone.

    Args:
        measured: settings of n trials.
        sent: their bytes per step and worker; nan where they are unknown.
    """
    plain: dict[Any, list[float]] = {}
    for one, count in zip(measured, sent, strict=True):
        if one.get("compression") is None and count > 0:
            plain.setdefault(_without_compression(one), []).append(count)
    shares: dict[tuple[str, str], list[float]] = {}
    for one, count in zip(measured, sent, strict=True):
        whole = plain.get(_without_compression(one))
        if one.get("compression") is not None and whole and count > 0:
            for mode in (one["sync"], ""):
                key = (mode, _full_name(one))
                state = _averaged_state(one)
                shares.setdefault(key, []).append(count / median(whole) * (1 + state) - state)
    return {name: median(values) for name, values in shares.items()}


def payload_of(settings: Settings, payloads: Payloads) -> float:
    """Bytes of an exchange as a share of those without compression; 1 where it is unknown.

    Optimizer state that is averaged travels whole, in addition.
    """
    return _share_of_values(settings, payloads) + _averaged_state(settings)


def _averaged_state(settings: Settings) -> float:
    """Bytes of averaged optimizer state by those of parameters; 0 where its size is unknown."""
    if settings.get("local_momentum") != "average":
        return 0.0
    return _STATE_SHARES.get(settings.get("optimizer") or "", 0.0)


def _share_of_values(settings: Settings, payloads: Payloads) -> float:
    info = compression_info(settings)
    full_name = _full_name(settings)
    own = payloads.get((settings["sync"], full_name))
    if settings["sync"] in _OTHER_WAYS and own is not None:
        return own
    if (
        info is None
        or info.bytes_per_value is None
        or any(settings.get(name) is None for name in info.reads)
    ):
        return own or payloads.get(("", full_name), 1.0)
    share = info.bytes_per_value(settings) / 4
    if info.exchange == "all_gather" and settings["sync"] not in _OTHER_WAYS:
        # Each payload goes to every worker, and not twice around a ring.
        share *= settings["workers"] / 2
    return share


def _without_compression(settings: Settings) -> tuple[Any, ...]:
    """Key of all settings but those of the compression."""
    return settings_key(
        {
            name: value
            for name, value in settings.items()
            if name not in ("compression", *COMPRESSION_FIELDS)
        }
    )


def _full_name(settings: Settings) -> str:
    """Name a compression with all that decides its bytes."""
    numbers = [settings.get(name) for name in ("compression_ratio", "compression_rank")]
    texts = [text_of(number) for number in numbers if number]
    return " ".join([text_of(settings.get("compression")), *texts])
