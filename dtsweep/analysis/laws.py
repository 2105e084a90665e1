"""Laws of scaling, fitted to the sizes of a group.

Amdahl (1967) for strong scaling, Gustafson (1988) for weak, Gunther's Universal Scalability Law
(1993) for both.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from dtsweep.analysis.ladders import Per
from dtsweep.analysis.scaling import group_row, group_table, speed_up_covariance
from dtsweep.analysis.study import Frame, study_of
from dtsweep.analysis.worthwhile import WORTH, check_worth
from dtsweep.inference.contrasts import Contrasts
from dtsweep.inference.fits import fitted
from dtsweep.inference.variance import Numbers
from dtsweep.inference.verdicts import Reason

if TYPE_CHECKING:
    import pandas as pd

_NUMBERS = ("serial_share", "contention", "coherency", "peak", "pays_to")
_NAMES = [
    *(f"{name}{end}" for name in _NUMBERS for end in ("", "_low", "_high")),
    *(
        "peak_extrapolates",
        "pays_to_extrapolates",
        "residual",
        "errors",
        "contradicted",
        "reason",
        "sizes_needed",
    ),
]

_FARTHEST = 2.0**40
"""Workers up to which a law is asked whether one more pays."""


@dataclass(frozen=True, kw_only=True)
class Law:
    """A law of scaling."""

    kinds: tuple[str, ...]
    """Kinds of scaling that it describes: weak, strong."""
    parameters: tuple[str, ...]
    """Shares from 0 to 1, as columns name them."""
    rate: Callable[[Any, Any], Any]
    """Throughput relative to one worker: (cases, sizes).

    Parameters have shape (cases, parameters).
    """
    has_diminishing_returns: bool
    """True if each further worker adds less than the one before."""


def _universal(n: Any, at: Numbers) -> Any:
    contention = at[:, :1]
    coherency = at[:, 1:] if at.shape[1] > 1 else 0.0
    return n / (1 + contention * (n - 1) + coherency * n * (n - 1))


LAWS: Mapping[str, Law] = {
    "amdahl": Law(
        kinds=("strong",),
        parameters=("serial_share",),
        rate=_universal,
        has_diminishing_returns=True,
    ),
    "gustafson": Law(
        kinds=("weak",),
        parameters=("serial_share",),
        rate=lambda n, at: n - at * (n - 1),
        has_diminishing_returns=False,
    ),
    "usl": Law(
        kinds=("weak", "strong"),
        parameters=("contention", "coherency"),
        rate=_universal,
        has_diminishing_returns=True,
    ),
}


def laws(frame: Frame, *, per: Per = "worker", worth: float = WORTH) -> pd.DataFrame:
    """Fit Amdahl's or Gustafson's law and the Universal Scalability Law to groups of `scaling`.

    Throughput of n workers relative to one is 1 ÷ (s + (1 − s) ÷ n) by Amdahl, n − s (n − 1) by
    Gustafson, and n ÷ (1 + σ (n − 1) + κ n (n − 1)) by the USL. Fitted are the logarithms of
    speed-ups by least squares, weighted by the errors that `difference` finds; the base's error is
    in all of them. A law needs as many sizes as parameters, and two more: its base, and one that
    can contradict it.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, or a study of it.
        per: what a world is counted in: workers, or nodes.
        worth: what one more has to add, as a share of what each of the base does.

    Returns:
        One row per group and law: what `worthwhile` has of a group; `law`; `serial_share` (s), or
        `contention` (σ) and `coherency` (κ); `peak`, the size of the USL's highest throughput, null
        where κ can't be distinguished from 0; `pays_to`, the smallest size from which one more adds
        less than `worth` by the law, null where it always adds more; `_low` and `_high` of each,
        its 95 % interval, null where there is no end; `peak_extrapolates`,
        `pays_to_extrapolates`: True where it lies outside the sizes measured (both are null there
        if the law is `contradicted`); `residual`, the
        distance of speed-ups from the law as a share; `errors`, what intervals go by: `launches`,
        or `residuals` where launches say nothing, or say that the law misses (`contradicted`, else
        False, or null); `reason`, why there is no fit, a code of `dtsweep.inference.verdicts`;
        `sizes_needed` by the law.

    Raises:
        SweepError: `per` is neither; `worth` is not from 0 to 1.
    """
    check_worth(worth)
    ladders = study_of(frame).ladders(per)
    rows, size = ladders.rows, ladders.size
    law_rows = []
    for group, group_rows in rows.groupby("group"):
        for name, law in LAWS.items():
            if group_rows["kind"].iloc[0] in law.kinds:
                sizes = group_rows[size].to_numpy("float64")
                row = _law_row(law, sizes, ladders.compared[group], worth=worth)
                law_rows.append(group_row(group_rows, size=size) | {"law": name} | row)
    return group_table(law_rows, rows, columns=["law", *_NAMES])


def _law_row(law: Law, sizes: Numbers, compared: Contrasts, *, worth: float) -> dict[str, Any]:
    """Columns of `laws` for one group and law."""
    needed = len(law.parameters) + 2
    if len(sizes) < needed:
        return {"reason": Reason.TOO_FEW_SIZES, "sizes_needed": needed}
    logs = compared.estimate[1:, 0]
    if np.isnan(logs).any():
        return {"reason": Reason.NOT_COMPARABLE, "sizes_needed": needed}
    fit = fitted(
        lambda at: np.log(law.rate(sizes[1:], at) / law.rate(sizes[:1], at)),
        logs,
        covariance=speed_up_covariance(compared)[1:, 1:],
        parameters=len(law.parameters),
    )
    row: dict[str, Any] = {
        "residual": fit.residual,
        "errors": fit.errors,
        "contradicted": fit.contradicted,
    }
    row["sizes_needed"] = needed
    for number, name in enumerate(law.parameters):
        row |= _range_of(name, fit.edge[:, number])
    if law.has_diminishing_returns:
        row |= _size_range(
            "pays_to",
            np.maximum(sizes[0], _pays_to(law, fit.edge, base=sizes[0], worth=worth)),
            sizes=sizes,
        )
    if "coherency" in law.parameters and row["coherency_low"] > 0:
        row |= _size_range("peak", _peak(fit.edge), sizes=sizes)
    if fit.contradicted:
        # What a wrong law says beyond the measured sizes is worth nothing.
        for name in ("pays_to", "peak"):
            if row.get(f"{name}_extrapolates"):
                row |= dict.fromkeys((name, *(f"{name}_{end}" for end in ("low", "high"))))
    return row


def _range_of(name: str, values: Numbers) -> dict[str, float]:
    """A number with its interval, from its values at the best fit and around it."""
    return {
        name: float(values[0]),
        f"{name}_low": float(values.min()),
        f"{name}_high": float(values.max()),
    }


def _size_range(name: str, values: Numbers, *, sizes: Numbers) -> dict[str, Any]:
    """A size with its interval, and whether it lies within the measured sizes.

    A value beyond the largest size considered is null.
    """
    row: dict[str, Any] = {
        key: value if value < _FARTHEST else None for key, value in _range_of(name, values).items()
    }
    if row[name] is not None:
        row[f"{name}_extrapolates"] = not sizes[0] <= row[name] <= sizes[-1]
    return row


def _peak(at: Numbers) -> Numbers:
    contention, coherency = at.T
    with np.errstate(divide="ignore"):
        peak: Numbers = np.maximum(1.0, ((1 - contention) / coherency) ** 0.5)
    return peak


def _pays_to(law: Law, at: Numbers, *, base: float, worth: float) -> Numbers:
    """Smallest number of workers from which one more adds less than `worth`, by parameters."""
    least = worth * law.rate(np.array([base]), at) / base
    low = np.zeros((len(at), 1))
    high = np.full((len(at), 1), _FARTHEST)
    while (high - low > 1).any():
        middle = np.floor((low + high) / 2)
        adds = law.rate(middle + 1, at) - law.rate(middle, at) >= least
        low, high = np.where(adds, middle, low), np.where(adds, high, middle)
    return high[:, 0]
