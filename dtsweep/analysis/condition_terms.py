"""One comparison of a condition, a column with a value: true, false or unknown for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError, did_you_mean
from dtsweep.sweep.point import AXES

if TYPE_CHECKING:
    import pandas as pd

Truth = Any
"""A column of pandas' `boolean`: true, false, or null where it is unknown.

`&`, `|` and `~` as Kleene has them.
"""

SIGNS = ("<=", ">=", "<", ">", "=", "==", "!=")


def compared_interval(low: pd.Series[Any], high: pd.Series[Any], sign: str, value: float) -> Truth:
    """Compare intervals with a number: null where it lies within one, or where there is none.

    Args:
        low: lower ends.
        high: upper ends.
        sign: one of `SIGNS`; no measured value is known to be equal.
        value: the number.
    """
    import pandas as pd

    match sign:
        case "<=":
            is_true, is_false = high <= value, low > value
        case ">=":
            is_true, is_false = low >= value, high < value
        case "<":
            is_true, is_false = high < value, low >= value
        case ">":
            is_true, is_false = low > value, high <= value
        case "!=":
            is_true, is_false = (low > value) | (high < value), low > high
        case _:
            is_true, is_false = low > high, (low > value) | (high < value)
    truth = pd.Series(pd.NA, index=low.index, dtype="boolean")
    truth[is_true] = True
    truth[is_false] = False
    return truth


def compared(column: pd.Series[Any], sign: str, value: Any, *, is_setting: bool) -> Truth:
    """Compare each value of a column with another one.

    Args:
        column: a setting or something measured, null where it is unknown.
        sign: one of `SIGNS`.
        value: a number, a word, True, False, or None for null.
        is_setting: a setting that is null is known: it is left at what the mode has of its own.

    Raises:
        SweepError: the column can't hold such a value.
    """
    import pandas as pd

    is_null = column.isna()
    if value is None:
        if sign not in ("=", "==", "!="):
            raise SweepError(f"{column.name} can't be {sign} null; use = or !=")
        return (is_null if sign != "!=" else ~is_null).astype("boolean")
    values = column[~is_null]
    is_number = pd.api.types.is_numeric_dtype(column) and not pd.api.types.is_bool_dtype(column)
    if is_number != (isinstance(value, float)) and len(values):
        raise SweepError(
            f"{column.name} is compared with {value!r}, but has "
            f"{'numbers' if is_number else 'words'}"
        )
    if isinstance(value, str) and column.name in AXES:
        measured = sorted(values.unique())
        if value not in (*measured, *AXES[str(column.name)].choices):
            raise SweepError(f"no point has {column.name}={value}; {did_you_mean(value, measured)}")
    match sign:
        case "<=":
            is_true = values <= value
        case ">=":
            is_true = values >= value
        case "<":
            is_true = values < value
        case ">":
            is_true = values > value
        case "!=":
            is_true = values != value
        case _:
            is_true = values == value
    truth = is_true.astype("boolean").reindex(column.index)
    # A setting that is null is none of the values; which number the mode has in its place is not
    # known.
    if is_setting and sign in ("=", "==", "!="):
        return truth.fillna(sign == "!=")
    return truth
