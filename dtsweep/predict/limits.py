"""Configurations that a model of measured ones can't predict, and why."""

from __future__ import annotations

import numpy as np

from dtsweep.predict.setups import Flags, Numbers, Setups

REACH = 4
"""Predictions reach this many times the largest measured size."""

_SLACK = 2.0
"""Factor by which a step may be shorter than the step of less work, or longer than that of more."""

_FEWEST_MULTI_NODE = 2
"""Measured configurations on several nodes, below which more nodes can't be predicted."""


def reasons_of(setups: Setups, measured: Setups) -> tuple[str | None, ...]:
    """Say why each configuration can't be predicted; None where it can, or was measured.

    Args:
        setups: configurations to predict.
        measured: configurations that were measured.
    """
    reasons: list[str | None] = [None] * len(setups)
    is_measured = setups.are_in(measured)

    def refuse(rows: Flags, reason: str) -> None:
        for row in np.flatnonzero(rows & ~is_measured):
            reasons[row] = reasons[row] or f"unsupported: {reason}"

    for name, sizes, largest in _sizes(setups, measured):
        refuse(
            sizes > REACH * largest,
            f"measured up to {largest:g} {name}; predictions reach {REACH * largest:g}",
        )
    refuse(*_nodes(setups, measured))
    for setting in measured.categories:
        known = sorted({str(value) for value in measured.categories[setting]})
        values = setups.categories[setting].astype(str)
        refuse(~np.isin(values, known), f"measured {setting}: {', '.join(known)}")
    return tuple(reasons)


def _sizes(setups: Setups, measured: Setups) -> list[tuple[str, Numbers, float]]:
    """List sizes: name, values to predict, largest measured."""
    samples, largest_samples = (some.micro_batch * some.accumulation for some in (setups, measured))
    return [
        ("workers", setups.workers, float(np.max(measured.workers))),
        ("nodes", setups.nodes, float(np.max(measured.nodes))),
        ("samples per worker and step", samples, float(np.max(largest_samples))),
        ("steps per exchange", setups.period, float(np.max(measured.period))),
    ]


def _nodes(setups: Setups, measured: Setups) -> tuple[Flags, str]:
    """Mark configurations on several nodes if too few of them were measured."""
    is_many = measured.nodes > 1
    columns = np.stack(
        [measured.workers, measured.nodes, measured.micro_batch, measured.accumulation]
    )
    count = len(np.unique(columns[:, is_many], axis=1).T)
    is_refused = (setups.nodes > 1) & (count < _FEWEST_MULTI_NODE)
    noun = "configuration" if count == 1 else "configurations"
    have = f"measured {count} {noun} on several nodes"
    return is_refused, f"{have}; predictions need {_FEWEST_MULTI_NODE}"


def bounds_of(setups: Setups, measured: Setups, log_step_s: Numbers) -> tuple[Numbers, Numbers]:
    """Bound the step times by the measured ones of less and of more work, within `_SLACK`.

    A configuration has less work than another one if it has no more workers, nodes, workers of a
    node and samples, and is equal in all else.

    Args:
        setups: n configurations to bound.
        measured: configurations that were measured.
        log_step_s: logarithms of their step times.

    Returns:
        (n,) lower and (n,) upper bounds of the logarithms; infinite where nothing was measured.
    """
    is_alike = setups.are_alike(measured)
    is_less, is_more = is_alike.copy(), is_alike.copy()
    for own, other in zip(_work(setups), _work(measured), strict=True):
        is_less &= other <= own[:, None]
        is_more &= other >= own[:, None]
    low = np.where(is_less, log_step_s, -np.inf).max(axis=1)
    high = np.where(is_more, log_step_s, np.inf).min(axis=1)
    slack = np.log(_SLACK)
    return low - slack, np.maximum(high, low) + slack


def _work(setups: Setups) -> list[Numbers]:
    """Settings with which a step takes longer."""
    sizes = [setups.workers, setups.participants, setups.nodes, setups.per_node]
    return [*sizes, setups.micro_batch, setups.accumulation]
