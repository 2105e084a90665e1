"""Speed-up, efficiency and gain of more workers or nodes, and the size from which none pays."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.ladders import COMPARED, ENDS, Per
from dtsweep.analysis.launches import has_caution, joined_cautions
from dtsweep.analysis.study import Frame, study_of
from dtsweep.errors import SweepError
from dtsweep.inference.contrasts import Contrasts
from dtsweep.inference.variance import Numbers
from dtsweep.inference.verdicts import KneeVerdict, Reason
from dtsweep.results.statuses import ABOVE_LINEAR

if TYPE_CHECKING:
    import pandas as pd


_OF_A_SIZE = {
    "workers",
    "hosts",
    "point_id",
    "launches",
    *(f"samples_per_s{end}" for end in ENDS),
}
"""Columns of one size that a group does not share; by kind, the columns in which sizes differ."""
_LINEAR_AT_MOST = 1.02
"""Speed-up over the number of times more workers, above which it is doubtful."""

_KNOWS_NOTHING = 10.0
"""Half-width of a speed-up's logarithm from which on no interval is given: a factor of 22,000."""

_DIFFERING = {"weak": ["global_batch"], "strong": ["micro_batch", "accumulation"]}


def scaling(frame: Frame, *, per: Per = "worker") -> pd.DataFrame:
    """Compare the throughput of larger worlds with the smallest one of their group.

    A group has points of one model (`model_digest`) and one `model_parallel` that are equal in all
    fields but workers, micro_batch and accumulation, in one environment; per node also in the
    workers on each node. `weak`: equal micro_batch and accumulation. `strong`: equal global_batch,
    where the fastest micro_batch × accumulation of a size stands for it; a point without
    global_batch (an asynchronous mode) is in no strong group. The fastest is a maximum of noisy
    rates, so a little too high, more so where more shapes were measured. A size that was measured
    on several numbers of hosts is stood for by the fastest, too.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.
        per: what a world is counted in: workers, or nodes (`hosts`).

    Returns:
        One row per group and size, smallest first: `group` (number), `kind`, the settings, `base`
        (the smallest size of the group), `speed_up` over the base as `difference` estimates it
        (where it compares in pairs, that need not be the ratio of the two `samples_per_s`),
        `efficiency` = speed_up ÷ (size ÷ base), and `gain`: what each worker more than the next
        smaller size has adds, as a share of what one of the base does (null for the base); `_low`
        and `_high` of the three, their 95 % intervals; `interval`, `launches`, or `launch` where
        both have one launch and nothing says how far launches differ: then it is that of the
        windows, widened by the machine's drift; `caution`, as in `over_launches`, of the row and of
        its base, with `above_linear` and `machine_drift` where these make the speed-up doubtful.
        Groups of one size give no row.

    Raises:
        SweepError: `per` is neither.
    """
    study = study_of(frame)
    ladders = study.ladders(per)
    rows = _with_speed_ups(ladders.rows, size=ladders.size, compared=ladders.compared)
    drifts = [study.drift(env_id) or 0.0 for env_id in rows["env_id"]]
    return _with_window_intervals(rows, size=ladders.size, drifts=np.array(drifts))


def _with_window_intervals(rows: pd.DataFrame, *, size: str, drifts: Numbers) -> pd.DataFrame:
    """Give single launches the interval of their windows, and add cautions of speed-ups."""
    if rows.empty:
        return rows.assign(interval=None)
    groups = rows.groupby("group")
    widths = (rows["samples_per_s_high"] - rows["samples_per_s_low"]) / 2 / rows["samples_per_s"]
    base_widths = widths.groupby(rows["group"]).transform("first")
    by_window = np.hypot(widths, base_widths)
    half_width = np.maximum(by_window, np.log1p(drifts))
    is_single = (rows["launches"] == 1) & (groups["launches"].transform("first") == 1)
    is_filled = rows["speed_up_low"].isna() & is_single & ~np.isnan(half_width)
    columns: dict[str, Any] = {"interval": np.where(is_filled, "launch", "launches")}
    for name in ("speed_up", "efficiency"):
        for end, sign in (("_low", -1), ("_high", 1)):
            filled = rows[name] * np.exp(sign * half_width)
            columns[f"{name}{end}"] = rows[f"{name}{end}"].where(~is_filled, filled)
    is_above = rows["speed_up"] > _LINEAR_AT_MOST * rows[size] / rows["base"]
    is_above &= ~has_caution(rows, [ABOVE_LINEAR])
    is_drift = is_filled & (np.log1p(drifts) > by_window)
    above = np.where(is_above, f" {ABOVE_LINEAR}", "")
    drifted = np.where(is_drift, " machine_drift", "")
    columns["caution"] = (rows["caution"].astype(object) + above + drifted).str.strip()
    rows = rows.assign(**columns)
    rows["interval"] = rows["interval"].where(rows["speed_up_low"].notna(), None)
    return rows


def _group_row(group_rows: pd.DataFrame, *, shared: Sequence[str], size: str) -> dict[str, Any]:
    """Describe a group in one row: shared settings, `sizes`, the largest size, cautions."""
    first = group_rows.iloc[0]
    differing = _DIFFERING[first["kind"]]
    return {
        **{name: first[name] for name in shared if name not in differing},
        "sizes": len(group_rows),
        "largest": group_rows[size].max(),
        "caution": joined_cautions(group_rows["caution"]),
    }


def _with_speed_ups(
    rows: pd.DataFrame, *, size: str, compared: Mapping[Any, Contrasts]
) -> pd.DataFrame:
    """Add the columns that `scaling` computes: of each row to the first one of its group."""
    sizes = rows[size].to_numpy("float64")
    comparisons = np.full((len(rows), len(COMPARED)), np.nan)
    for group, places in rows.groupby("group").indices.items():
        columns = _speed_ups(sizes[places], compared[group])
        comparisons[places] = np.column_stack([columns[name] for name in COMPARED])
    rows = rows.assign(**dict(zip(COMPARED, comparisons.T, strict=True)))
    base = rows.groupby("group")["caution"].transform("first")
    rows["caution"] = [joined_cautions(pair) for pair in zip(base, rows["caution"], strict=True)]
    return rows


def _speed_ups(sizes: Numbers, contrasts: Contrasts) -> dict[str, Numbers]:
    """Speed-up, efficiency and gain of one group, with their intervals."""
    # Of few degrees of freedom they may be too large for their squares.
    known = np.minimum(contrasts.half_width, _KNOWS_NOTHING)
    contrasts = replace(contrasts, half_width=known)
    logs = contrasts.estimate[:, 0].copy()
    half_width = contrasts.half_width[:, 0].copy()
    logs[0] = half_width[0] = 0.0
    half_width[half_width >= _KNOWS_NOTHING] = np.nan
    columns = {}
    for end, log in zip(ENDS, (logs, logs - half_width, logs + half_width), strict=True):
        columns[f"speed_up{end}"] = np.exp(log)
        columns[f"efficiency{end}"] = np.exp(log) * sizes[0] / sizes
    # The interval of a gain follows from those of two speed-ups (Zou and Donner 2008).
    covariance = _speed_up_covariance(contrasts)
    scale = np.sqrt(np.outer(np.diag(covariance), np.diag(covariance)))
    correlations = np.divide(covariance, scale, out=np.zeros_like(covariance), where=scale > 0)
    neighbours = np.diag(correlations, 1)
    speed_up = columns["speed_up"]
    below = speed_up - columns["speed_up_low"]
    above = columns["speed_up_high"] - speed_up
    share = sizes[0] / np.diff(sizes)
    gain = share * np.diff(speed_up)
    gains = {"gain": gain}
    for end, sign, distance, opposite in (("_low", -1, below, above), ("_high", 1, above, below)):
        larger, smaller = distance[1:], opposite[:-1]
        square = larger**2 + smaller**2 - 2 * neighbours * larger * smaller
        gains[f"gain{end}"] = gain + sign * share * np.maximum(square, 0) ** 0.5
    return columns | {name: np.concatenate([[np.nan], values]) for name, values in gains.items()}


def _speed_up_covariance(contrasts: Contrasts) -> Numbers:
    """Covariance of the logarithms of speed-ups, in squares of half-widths of 95 % intervals.

    Each size has an error of its own, and the base's error is in all speed-ups. Effects of launches
    cancel out where sizes are compared in pairs. So the squared half-width of a difference is a sum
    of two squares, which are estimated here.

    Args:
        contrasts: each size of a group with each, the base first.

    Returns:
        (sizes, sizes); 0 for the base itself, nan for sizes that can't be tested against the
        others.
    """
    from scipy.optimize import nnls

    count = len(contrasts.half_width)
    covariance = np.full((count, count), np.nan)
    tested = np.flatnonzero(contrasts.tested[:, 0] | (np.arange(count) == 0))
    first, second = np.triu_indices(len(tested), 1)
    squares = contrasts.half_width[tested[first], tested[second]] ** 2
    if not np.isnan(squares).any():
        unit = squares.max(initial=0.0) or 1.0
        is_of_pair = np.eye(len(tested))[first] + np.eye(len(tested))[second]
        variances = nnls(is_of_pair, squares / unit)[0] * unit
        covariance[np.ix_(tested, tested)] = np.diag(variances) + variances[0]
    of_base = np.where(np.isnan(np.diag(covariance)), np.nan, 0.0)
    covariance[0] = of_base
    covariance[:, 0] = of_base
    covariance[0, 0] = 0.0
    return covariance


WORTH = 0.5
"""Default of the share of a base worker's throughput that one more worker must add."""

_SIZES = ("pays_to", "pays_to_low", "pays_to_high", "pays_at_least", "next_size")
_TYPES: dict[str, Any] = {**dict.fromkeys(_SIZES, "Int64"), "verdict_reason": object}
_COLUMNS = (*_SIZES, "verdict", "verdict_reason")


def worthwhile(frame: Frame, *, per: Per = "worker", worth: float = WORTH) -> pd.DataFrame:
    """Say for each group of `scaling` from which size on one more doesn't pay.

    Going from a size to the next one measured pays where each worker more adds at least `worth` of
    what a worker of the base does (`gain` of `scaling`). A step pays, or does not, by its
    95 % interval alone.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.
        per: what a world is counted in: workers, or nodes.
        worth: what one more has to add, from 0 to 1.

    Returns:
        One row per group: `group`, `kind`, `base` and settings as in `scaling`; `sizes` (how many)
        and `largest`; `pays_to`, the smallest size from which the step to the next doesn't pay;
        `pays_to_low`, the smallest from which it does not significantly pay; `pays_to_high`, the
        smallest from which it significantly does not (the three are null unless some step
        significantly does not pay, and so are not within the sizes measured); `pays_at_least`, as
        `pays_to_low`, also if no step significantly fails to pay (null if nothing is significant,
        or each step pays); `next_size`, the size measured after `pays_to`; `verdict`, a code of
        `dtsweep.inference.verdicts.KneeVerdict`;
        `verdict_reason`, a code, null unless that is unknown; `caution`, of any of the sizes.

    Raises:
        SweepError: `per` is neither; `worth` is not from 0 to 1.
    """
    import pandas as pd

    if not 0 <= worth <= 1:
        raise SweepError(
            f"worth={worth!r} is not a share; give what one more has to add, from 0 to 1, such as "
            "0.5"
        )
    ladders = study_of(frame).ladders(per)
    size = ladders.size
    rows = _with_speed_ups(ladders.rows, size=size, compared=ladders.compared)
    shared = [name for name in rows.columns if name not in {*_OF_A_SIZE, *COMPARED}]
    records = [
        _group_row(group_rows, shared=shared, size=size)
        | _row(group_rows.rename(columns={size: "size"}), worth=worth)
        for _, group_rows in rows.groupby("group")
    ]
    table = pd.DataFrame(records, columns=[*shared, "sizes", "largest", *_COLUMNS])
    # Settings keep the types that they have in the rows.
    return table.astype({**rows.dtypes[shared], **_TYPES})


def _row(group_rows: pd.DataFrame, *, worth: float) -> dict[str, Any]:
    """Columns of `worthwhile` for one group."""
    before = group_rows["size"].to_numpy()[:-1]
    steps = group_rows.iloc[1:]
    if steps["gain_low"].isna().all():
        return {"verdict": KneeVerdict.UNKNOWN, "verdict_reason": Reason.TOO_FEW_LAUNCHES}
    # Sizes before a step whose gain is too small: possibly, significantly, and by the mean.
    possibly_too_small = before[~(steps["gain_low"] >= worth)]
    significantly_too_small = before[steps["gain_high"] < worth]
    too_small = before[steps["gain"] < worth]
    if not len(possibly_too_small):
        return {"verdict": KneeVerdict.BEYOND_SIZES}
    low = int(possibly_too_small[0])
    if not len(significantly_too_small):
        return {"verdict": KneeVerdict.NOT_DISTINGUISHABLE, "pays_at_least": low}
    pays_to = int(too_small[0])
    return {
        "pays_to": pays_to,
        "pays_to_low": low,
        "pays_to_high": int(significantly_too_small[0]),
        "pays_at_least": low,
        "next_size": int(group_rows["size"][group_rows["size"] > pays_to].min()),
        "verdict": KneeVerdict.FOUND,
    }
