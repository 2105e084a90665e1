"""Parts of each point's step, which add up to it, and the one that limits it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from dtsweep.analysis.launches import rows_of
from dtsweep.analysis.study import Frame, study_of
from dtsweep.inference.spread import POINT
from dtsweep.sweep.modes import mode_in_results
from dtsweep.text import format_share

if TYPE_CHECKING:
    import pandas as pd

EXPLAINS, OUTWEIGHS = 0.2, 2.0
"""Smallest share of the device's work that can be its limit, and its least ratio to the next one.

The shares of arithmetic, memory and launches are lower bounds, and peaks are known to about 10 %.
"""

_UNKNOWN_NOISE = 0.25
"""Half of the interval of a share without one, as a share of it: too few steps."""

_WORK = ("compute", "memory", "launch")
"""Limits of device work. Kernel launches count as the host's."""

_WORDS = {"input": "loading batches", "exchange": "exposed exchange", "work": "device work"}
_COLUMNS = (
    "bound",
    "bound_share",
    "bound_share_low",
    "bound_share_high",
    "bound_reason",
    "input_share",
    "exchange_share",
    "waiting_share",
    "work_share",
    "compute_share",
    "memory_share",
    "launch_share",
)

_Row = dict[str, Any]


class _Part(NamedTuple):
    """A part of the mean step, as a share of it."""

    name: str
    words: str
    share: float | None
    low: float
    high: float

    @classmethod
    def of(
        cls, name: str, words: str, share: float, low: float | None, high: float | None
    ) -> _Part:
        """Make a part of a measured share, with its interval where that is known."""
        if low is None:
            low = share * (1 - _UNKNOWN_NOISE)
        return cls(name, words, share, low, share * (1 + _UNKNOWN_NOISE) if high is None else high)

    @property
    def largest_share(self) -> float:
        """Share, or the largest possible one where it is unknown."""
        if self.share is None:
            return self.high
        return self.share

    @property
    def description(self) -> str:
        """Name, size and margin of error: "exposed exchange 41 ± 3 %"."""
        if self.share is None:
            return f"{self.words} unknown"
        return f"{self.words} {format_share(self.share, self.low, self.high)} %"


def bottleneck(frame: Frame) -> pd.DataFrame:
    """Name what limits each point, with the number that says so.

    A step is the sum of four parts: `input_share` (loading batches), `exchange_share` (exchange
    that nothing hides), `waiting_share` (for the slowest worker: where one stands out, what it is
    slower than the mean of the others), and `work_share` (the rest: the device's work on the
    others). A part is the bound where its 95 % interval lies above those of all others; one that is
    not known counts as `_UNKNOWN_NOISE`.

    Device work is divided further by what it would take at the measured rates: `compute_share` (its
    arithmetic at the peak), `memory_share` (moving bytes), `launch_share` (launching operations).
    One of them limits it where it is at least `EXPLAINS` of it and `OUTWEIGHS` times each other
    one; an unknown one may be all that is left. On a GPU the measured time without work
    (`device_idle_low` to `device_idle_high`) bounds what launching costs; where it is more than
    half of the device work, the host is the limit.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.

    Returns:
        One row per row of `over_launches`, by `point_id`, `env_id` and `hosts`: `bound` (compute,
        exchange, memory, input, host, straggler; None where what was measured can't tell),
        `bound_share` with `_low` and `_high`, the part's share of the step, for compute, memory and
        host of the device's work; `bound_reason`, in a sentence; and the shares above, null where
        unknown.
    """
    import pandas as pd

    study = study_of(frame)
    trials = study.trials.assign(
        compute_share=study.trials["compute_share"]
        .fillna(study.trials["hfu"])
        .fillna(study.trials["mfu"]),
    )
    groups = trials.groupby(list(POINT), dropna=False, sort=False)
    means = groups[["compute_share"]].mean()
    causes = groups.agg(comm_reason=("comm_reason", "first"))
    causes["straggler"] = _stragglers(trials).reindex(causes.index)
    points = study.points.drop(columns="compute_share")
    points = pd.concat(
        [points, means.reset_index(drop=True), causes.reset_index(drop=True)], axis="columns"
    )
    bounds = [_bound_columns(row) for row in rows_of(points)]
    bound_table = pd.DataFrame(bounds, columns=_COLUMNS, dtype=object)
    numbers = [name for name in _COLUMNS if "share" in name]
    return pd.concat(
        [points[[*POINT]], bound_table.astype(dict.fromkeys(numbers, "float64"))], axis="columns"
    )


def _stragglers(trials: pd.DataFrame) -> pd.Series[str]:
    """The worker that more than half of a point's launches name as the straggler, by `POINT`."""
    launches = trials.groupby(list(POINT), dropna=False, sort=False).size().rename("launches")
    named = trials.groupby([*POINT, "straggler"], dropna=False).size().rename("named")
    counts = (
        named.reset_index()
        .dropna(subset=["straggler"])
        .merge(launches.reset_index(), on=list(POINT))
    )
    most = counts[counts["named"] > counts["launches"] / 2]
    return most.set_index(list(POINT))["straggler"]


def _bound_columns(row: _Row) -> _Row:
    """Columns of `bottleneck` for one point."""
    parts = parts_of(row)
    significant = [
        part for part in parts if all(part.low > rival.high for rival in parts if rival is not part)
    ]
    # An unknown share counts as the largest possible one.
    first, second, *_ = sorted(
        parts, key=lambda part: (part in significant, part.largest_share), reverse=True
    )
    work = parts[-1].largest_share
    bound, reason = _verdict(first, second, row, is_sure=bool(significant))
    if work < 0 and parts[-1].high < 0:
        bound = None
        reason = f"what was measured of the step adds up to {(1 - work) * 100:.0f} % of it"
    for name, part in zip(("input", "exchange", "waiting", "work"), parts, strict=True):
        row[f"{name}_share"] = part.share
    columns = {
        "bound": bound,
        "bound_share": first.share,
        "bound_share_low": first.low,
        "bound_share_high": first.high,
        "bound_reason": reason,
    }
    if bound is None:
        columns |= dict.fromkeys(("bound_share", "bound_share_low", "bound_share_high"))
    return {name: (row | columns)[name] for name in _COLUMNS}


def parts_of(row: _Row) -> list[_Part]:
    """Divide a point's step into input, exchange, waiting and work.

    The parts add up to the step; no time is in two of them.
    """
    mode = mode_in_results(row["sync"])
    is_alone = row["workers"] == 1 and not mode.servers({"shards": row["shards"] or 1})
    parts = [
        _part(row, "input", "data_share"),
        _part(row, "exchange", "exchange_share"),
        _waiting(row),
    ]
    if is_alone:
        parts[1:] = [
            _Part("exchange", "exposed exchange", 0.0, 0.0, 0.0),
            _Part("wait", "waiting", 0.0, 0.0, 0.0),
        ]
    elif _is_asynchronous(row) and row["comm_share"] is not None:
        # A step is a worker's own push: what it waits for others, by the bound, is in the same
        # number.
        exchange = _part(row | {"exchange_share": row["comm_share"]}, "exchange", "comm_share")
        parts[1:] = [exchange, _Part("wait", "waiting", 0.0, 0.0, 0.0)]
    return _with_work(parts, row)


def _is_asynchronous(row: _Row) -> bool:
    """True if a step is a worker's own push: then there is no global batch."""
    is_own = row["semantics"] == "stale" or bool(row.get("drop_slowest"))
    return is_own and row.get("global_batch") is None


def _part(row: _Row, name: str, column: str) -> _Part:
    share, words = row[column], _WORDS[name]
    if share is None:
        return _Part(name, words, None, 0.0, 1.0)
    return _Part.of(name, words, share, row[f"{column}_low"], row[f"{column}_high"])


def _waiting(row: _Row) -> _Part:
    """The wait for the slowest worker; if one stands out, relative to the others' mean."""
    if row["wait_share"] is None:
        return _Part("wait", "waiting", None, 0.0, 1.0)
    share, low, high = (row[f"wait_share{end}"] for end in ("", "_low", "_high"))
    if row["straggler"] is None:
        return _Part.of("wait", "waiting for the slowest worker", share, low, high)
    factor = row["workers"] / (row["workers"] - 1)
    low, high = (None if end is None else end * factor for end in (low, high))
    return _Part.of("straggler", f"waiting for {row['straggler']}", share * factor, low, high)


def _with_work(parts: Sequence[_Part], row: _Row) -> list[_Part]:
    """The parts, and the device's work, which takes the remainder of the step."""
    least_work = row["compute_share"] or 0.0
    remainder = 1 - sum(part.share for part in parts if part.share is not None)
    if any(part.share is None for part in parts):
        limited = [
            part if part.share is not None else part._replace(high=remainder - least_work)
            for part in parts
        ]
        return [*limited, _Part("work", _WORDS["work"], None, least_work, remainder)]
    spreads = [
        (part.share - part.low, part.high - part.share) for part in parts if part.share is not None
    ]
    if row["comm_share_low"] is not None and row["exchange_share_low"] is not None:
        spreads[1:] = _spreads_of_comm(row)
    up, down = (math.hypot(*distances) for distances in zip(*spreads, strict=True))
    work = _Part("work", _WORDS["work"], remainder, remainder - down, remainder + up)
    return [*parts, work]


def _spreads_of_comm(row: _Row) -> list[tuple[float, float]]:
    """Distances to the lower and upper end of the interval of exchange and wait together.

    One of them is larger by what the other one is smaller, so their own intervals don't add up.
    Where a straggler stands out, more of the wait counts than is in `comm_share`.
    """
    spreads = [
        (row["comm_share"] - row["comm_share_low"], row["comm_share_high"] - row["comm_share"])
    ]
    if row["straggler"] is not None and row["wait_share_low"] is not None:
        factor = 1 / (row["workers"] - 1)
        below = row["wait_share"] - row["wait_share_low"]
        above = row["wait_share_high"] - row["wait_share"]
        spreads.append((below * factor, above * factor))
    return spreads


def _verdict(first: _Part, second: _Part, row: _Row, *, is_sure: bool) -> tuple[str | None, str]:
    """Limit of a point and the number that shows it; or None and the reason."""
    if "implausible" in row["caution"]:
        return None, "numbers that can't all be true: see `implausible`"
    if not is_sure:
        if first.share is None or second.share is None:
            reason = row["comm_reason"] or "the exchange was not measured"
            has_exchange = row["comm_share"] is not None or row["workers"] == 1
            if row["data_share"] is None and has_exchange:
                reason = "the loading of batches was not measured"
            return None, f"{reason}: its limit is unknown"
        return None, f"can't tell {first.description} from {second.description}"
    if first.name == "wait":
        return None, f"{first.description} of the step: none stands out"
    if first.name != "work":
        return first.name, f"{first.description} of the step"
    limit, numbers = _limit_of_work(row, first.high if first.share is None else first.share)
    if first.share is None:
        size = f"{first.words} at least {first.low * 100:.0f} %"
    else:
        size = first.description
    return limit, f"{size} of the step: {numbers}"


def _limit_of_work(row: _Row, work: float) -> tuple[str | None, str]:
    """Limit of the device work, given as a share of the step, and the number that shows it.

    None and the reason where it is unknown.
    """
    words = {
        "compute": "arithmetic at the peak",
        "memory": "moving bytes",
        "launch": "launching operations",
    }
    shares = {name: row[f"{name}_share"] for name in _WORK}
    known = [
        f"{words[name]} {share * 100:.0f} %" for name, share in shares.items() if share is not None
    ]
    low, high = row["device_idle_low"], row["device_idle_high"]
    if high is not None:
        known.append(f"GPU without work {low * 100:.0f} to {high * 100:.0f} %")
        shares["launch"] = _host_share(shares["launch"], low, high)
    numbers = ", ".join(known)
    if low is not None and low > work / 2:
        return "host", numbers
    largest = max(shares, key=lambda name: shares[name] or 0.0)
    largest_share = shares[largest]
    if not largest_share:
        return None, "nothing is known of its operations"
    # An unknown share is at most the remaining work.
    rivals = [
        (work - largest_share) / OUTWEIGHS if share is None else share
        for name, share in shares.items()
        if name != largest
    ]
    if largest_share < EXPLAINS * work:
        return None, f"nothing that is known explains it ({numbers})"
    if largest_share < OUTWEIGHS * max(rivals):
        return None, f"can't tell which of its parts limits it ({numbers})"
    return "host" if largest == "launch" else largest, numbers


def _host_share(launch: float | None, low: float, high: float) -> float | None:
    """Share of a step in which a GPU waits for launches; None where that may be little or much.

    Args:
        launch: time to launch its operations one after the other, as a share; None if unknown.
        low: least share of a step in which the GPU had no work.
        high: largest such share.
    """
    if launch is not None:
        return min(max(launch, low), high)
    if high <= OUTWEIGHS * low:
        return low
    if high < EXPLAINS:
        return high
    return None
