"""From how many workers, or nodes, on one more doesn't pay, as far as launches can tell."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep.analysis.ladders import Per
from dtsweep.analysis.scaling import group_row, group_table, with_speed_ups
from dtsweep.analysis.study import Frame, study_of
from dtsweep.errors import SweepError
from dtsweep.inference.verdicts import KneeVerdict, Reason

if TYPE_CHECKING:
    import pandas as pd

WORTH = 0.5
"""Default of the share of a base worker's throughput that one more worker must add."""

_TYPES: dict[str, Any] = {
    **dict.fromkeys(
        ("pays_to", "pays_to_low", "pays_to_high", "pays_at_least", "next_size"), "Int64"
    ),
    "verdict_reason": object,
}
_COLUMNS = (
    *("pays_to", "pays_to_low", "pays_to_high", "pays_at_least", "next_size"),
    *("verdict", "verdict_reason"),
)


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
    check_worth(worth)
    ladders = study_of(frame).ladders(per)
    size = ladders.size
    rows = with_speed_ups(ladders.rows, size=size, compared=ladders.compared)
    records = [
        group_row(group_rows, size=size)
        | _row(group_rows.rename(columns={size: "size"}), worth=worth)
        for _, group_rows in rows.groupby("group")
    ]
    return group_table(records, rows, columns=_COLUMNS).astype(_TYPES)


def check_worth(worth: float) -> None:
    """Refuse what no gain can be measured by.

    Raises:
        SweepError: it is not from 0 to 1.
    """
    if not 0 <= worth <= 1:
        raise SweepError(
            f"worth={worth!r} is not a share; give what one more has to add, from 0 to 1, such as "
            "0.5"
        )


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
