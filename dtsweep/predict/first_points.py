"""First points of a search: cheap ones that lie far apart."""

from __future__ import annotations

import numpy as np

from dtsweep.predict.candidate_costs import Rows
from dtsweep.predict.setups import Flags, Numbers, Setups

COUNT = 6
"""First points of a search."""

_THRIFT = 0.15
"""Power of the cost by which distances are divided."""

_JITTER = 0.05
"""Largest share by which a seed changes the score of a candidate."""


def first_points(
    setups: Setups,
    cost: Numbers,
    *,
    is_open: Flags | None = None,
    count: int = COUNT,
    seed: int = 0,
) -> Rows:
    """Choose points to measure before there is a model.

    The fewest workers with the smallest and the largest micro-batch come first, then the points
    that lie farthest from those so far, cheap ones first. Among them is one on several nodes, and
    one with as many workers per node as there are, if the candidates have any.

    Args:
        setups: n candidates.
        cost: (n,) accelerator-seconds of each candidate's trial.
        is_open: (n,) True where a candidate can be measured; all by default.
        count: number of points.
        seed: decides between candidates of almost equal score.

    Returns:
        (count,) numbers of candidates in the order of their measurement, fewer where fewer are
        open.
    """
    is_left = np.ones(len(setups), dtype=np.bool_) if is_open is None else is_open.copy()
    places = _places(setups)
    jitter = 1 + _JITTER * np.random.default_rng(seed).random(len(setups))
    weight = jitter / cost**_THRIFT
    chosen: list[int] = []
    while len(chosen) < count and is_left.any():
        is_asked = is_left & _wanted(setups, is_left, chosen=chosen, left=count - len(chosen))
        if len(chosen) < 2:
            score = weight
        else:
            away = places[:, None, :] - places[chosen]
            score = weight * np.sqrt((away**2).sum(axis=2)).min(axis=1)
        row = int(np.where(is_asked, score, -np.inf).argmax())
        chosen.append(row)
        is_left[row] = False
    return np.array(chosen, dtype=np.int64)


def _wanted(setups: Setups, is_left: Flags, *, chosen: list[int], left: int) -> Flags:
    """(n,) candidates of which the next point is one."""
    everything = np.ones(len(setups), dtype=np.bool_)
    if len(chosen) < 2:
        is_small = setups.workers == setups.workers[is_left].min()
        batches = setups.micro_batch[is_left & is_small]
        extreme = batches.max() if chosen else batches.min()
        is_extreme: Flags = is_small & (setups.micro_batch == extreme)
        return is_extreme
    per_node = setups.workers / setups.nodes
    wishes: list[Flags] = [setups.nodes > 1, per_node == per_node.max()]
    unmet = [wish for wish in wishes if (wish & is_left).any() and not wish[chosen].any()]
    # A wish waits for the last points: the farthest point fulfils most of them by itself.
    if unmet and left <= len(unmet):
        return unmet[0]
    return everything


def _places(setups: Setups) -> Numbers:
    """(n, dimensions) coordinates of the candidates, each from 0 to 1."""
    amounts = [setups.workers, setups.micro_batch, setups.nodes, setups.accumulation, setups.period]
    columns = [np.log(amount.clip(min=1e-9)) for amount in (*amounts, setups.payload)]
    columns += [setups.is_asynchronous.astype(float), *setups.numbers.values()]
    scaled = [_scaled(column)[:, None] for column in columns]
    for texts in setups.categories.values():
        # Two values of a setting are as far apart as the ends of an amount.
        is_value = np.unique(texts.astype(str)) == texts.astype(str)[:, None]
        scaled.append(is_value / np.sqrt(2))
    return np.concatenate(scaled, axis=1)


def _scaled(column: Numbers) -> Numbers:
    """(n,) column from 0 to 1; 0 where all are equal."""
    low, high = column.min(), column.max()
    width = high - low if high > low else 1.0
    scaled: Numbers = (column - low) / width
    return scaled
