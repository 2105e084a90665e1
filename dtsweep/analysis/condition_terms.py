"""One comparison of a condition, a column with a value: true, false or unknown for each row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep.errors import LABEL_SHOWN, SweepError, did_you_mean, shortened
from dtsweep.sweep.point import AXES

if TYPE_CHECKING:
    import pandas as pd

Truth = Any
"""A column of pandas' `boolean`: true, false, or null where it is unknown.

`&`, `|` and `~` as Kleene has them.
"""

_KINDS = {bool: "true and false", float: "numbers", str: "words"}
"""Types of values, in words."""

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
    is_null = column.isna()
    if value is None:
        if sign not in ("=", "==", "!="):
            raise SweepError(f"{column.name} can't be {sign} null; use = or !=")
        return (is_null if sign != "!=" else ~is_null).astype("boolean")
    values = column[~is_null]
    kind = _kind_of(values)
    # Without values, a column of words may be one of any type.
    if type(value) is not kind and (len(values) or kind is not str):
        raise SweepError(
            f"{column.name} is compared with {shortened(repr(value), LABEL_SHOWN)}, but has "
            f"{_KINDS[kind]}"
        )
    if isinstance(value, str) and column.name in AXES:
        measured = sorted(values.unique())
        if value not in (*measured, *AXES[str(column.name)].choices):
            raise SweepError(
                f"no point has {column.name}={shortened(value, LABEL_SHOWN)}; "
                f"{did_you_mean(value, measured)}"
            )
    truth = _ordered(values, sign, value).reindex(column.index)
    # A setting that is null is none of the values; which number the mode has in its place is not
    # known.
    if is_setting and sign in ("=", "==", "!="):
        return truth.fillna(sign == "!=")
    return truth


def _kind_of(values: pd.Series[Any]) -> type:
    """Type that a condition has for the values of a column: bool, float or str."""
    import pandas as pd

    values = values.infer_objects()
    if pd.api.types.is_bool_dtype(values):
        return bool
    if pd.api.types.is_numeric_dtype(values):
        return float
    return str


def _ordered(values: pd.Series[Any], sign: str, value: Any) -> Truth:
    """Compare values, all known and of the type of `value`."""
    if values.empty:
        # A column of nulls may have any type.
        return values.astype("boolean")
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
    return is_true.astype("boolean")
