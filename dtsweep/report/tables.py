"""Table columns of points for the terminal: header → formatted strings."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.analysis.settings import axis_name
from dtsweep.report.answer import in_short, quantity
from dtsweep.report.labels import (
    BATCH_SHAPE,
    argument_columns,
    passes_label,
    point_key,
    trial_label,
)
from dtsweep.report.limits import bound_columns
from dtsweep.report.recommendation import names_of
from dtsweep.sweep.values import ARGS
from dtsweep.text import (
    ends_of,
    format_ends,
    format_integers,
    format_number,
    format_rate,
    format_rates,
    format_share,
)

if TYPE_CHECKING:
    import pandas as pd

    from dtsweep.analysis.recommend import Recommendation
    from dtsweep.report.content import Scaling

_BATCH_HEADERS = {
    "workers": "workers",
    "micro_batch": "micro\nbatch",
    "accumulation": "accumu-\nlation",
}
_OTHER_HEADERS = ("sync", "mark", "caution")
"""Headers that an argument of a user's loop must not take."""

_RECOMPUTED = 0.001
"""Least share of work that is computed again for a column of `hfu` next to `mfu`."""

_SIZE_COLUMNS = {"worker": "workers", "node": "hosts"}


def batch_columns(rows: pd.DataFrame, *, varying: Sequence[str]) -> dict[str, list[str]]:
    """Columns of the axes that vary and shape a batch, and of arguments of a user's loop."""
    columns = {
        header: format_integers(rows[name])
        for name, header in _BATCH_HEADERS.items()
        if name in varying
    }
    names: set[str] = set()
    for name in argument_columns(varying):
        header = axis_name(name).removeprefix(ARGS).lstrip("-+")
        if header in (*_BATCH_HEADERS, *_OTHER_HEADERS) or header in names:
            header = axis_name(name)
        names.add(header)
        columns[_folded(header)] = [_format_argument(value) for value in rows[name]]
    return columns


def _folded(header: str) -> str:
    """Break a header behind the ends of its words, into about three lines at most."""
    words = re.split(r"(?<=\w[-_.])(?=\w)", header)
    width = max(len(header) // 3 + 3, *map(len, words))
    lines = [""]
    for word in words:
        if lines[-1] and len(lines[-1] + word) > width:
            lines.append("")
        lines[-1] += word
    return "\n".join(lines)


def _format_argument(value: Any) -> str:
    import pandas as pd

    if pd.isna(value):
        return ""
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)


def measured_columns(rows: pd.DataFrame, *, varying: Sequence[str]) -> dict[str, list[str]]:
    """Columns of the global batch, step time and throughput.

    The global batch has a column if a setting that it follows from varies.
    """
    columns = {}
    if not set(BATCH_SHAPE).isdisjoint(varying) and rows["global_batch"].notna().any():
        columns["global\nbatch"] = format_integers(rows["global_batch"])
    steps = zip(rows["latency_s"], *ends_of(rows, "latency_s"), strict=True)
    columns["step\nms"] = [format_ends(*(value * 1e3 for value in ends)) for ends in steps]
    columns["samples\n/s"] = format_rates(rows["samples_per_s"], *ends_of(rows, "samples_per_s"))
    return columns


def objective_columns(rows: pd.DataFrame, names: Sequence[str]) -> dict[str, list[str]]:
    """Columns of other objectives with their units, except those with columns elsewhere."""
    elsewhere = (*setting_columns(rows), "global_batch", "memory_peak_bytes", "tokens_per_s")
    return {
        name: [
            "" if math.isnan(value) else quantity(name, value).removeprefix(f"{name} ")
            for value in rows[name].astype("float64")
        ]
        for name in names
        if name not in elsewhere
    }


def amount_columns(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Columns of memory and of tokens, where they are known."""
    columns = {}
    if rows["memory_peak_bytes"].notna().any():
        memory = rows["memory_peak_bytes"].astype("float64")
        if memory.max() >= 2**30:
            unit, size = ("GiB", 2**30)
        else:
            unit, size = ("MiB", 2**20)
        columns[f"memory\n{unit}"] = [format_number(value, digits=3) for value in memory / size]
    if rows["tokens_per_s"].notna().any():
        columns["tokens\n/s"] = format_rates(rows["tokens_per_s"])
    return columns


def plain_headers(columns: Mapping[str, Sequence[str]]) -> dict[str, list[str]]:
    r"""Columns of a table with headers in one line.

    >>> plain_headers({"step\nms": ["1"], "samples\n/s": ["2"], "speed-\nup": ["3"]})
    {'step ms': ['1'], 'samples/s': ['2'], 'speed-up': ['3']}
    """
    syllables = {"accumu-\nlation": "accumulation", "effi-\nciency": "efficiency"}
    return {
        syllables.get(header, re.sub(r"(?<=[-_.])\n|\n(?=/)", "", header).replace("\n", " ")): list(
            cells
        )
        for header, cells in columns.items()
    }


def caution_columns(cautions: Sequence[str]) -> dict[str, list[str]]:
    """Column of cautions, where there are any."""
    if not any(cautions):
        return {}
    return {"caution": list(cautions)}


def mark_columns(rows: pd.DataFrame, recommended: Sequence[pd.Series[Any]]) -> dict[str, list[str]]:
    """Column of marks (R recommended, k knee, ? may be beaten)."""
    names = [point_key(point) for point in recommended]
    marks = []
    for _, row in rows.iterrows():
        is_marked = {
            "R": point_key(row) in names,
            "k": bool(row["knee"]) and row["on_frontier"],
            "?": row["standing"] == "undecided",
        }
        marks.append("".join(mark for mark, is_so in is_marked.items() if is_so))
    if not any(marks):
        return {}
    return {"mark": marks}


def error_columns(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Column of the error of a compressed exchange against the exact one, where it is known."""
    errors = rows["compression_error"]
    if not errors.notna().any():
        return {}
    return {"error\n%": [_format_percent(value, digits=2 if value < 1 else 0) for value in errors]}


def share_columns(rows: pd.DataFrame) -> dict[str, list[str]]:
    """Columns of the shares of a step's time and of the peak FLOP rate, where they are known."""
    columns = {}
    if rows["comm_share"].notna().any():
        shares = zip(rows["comm_share"], *ends_of(rows, "comm_share"), strict=True)
        columns["exchange\n+ wait %"] = [format_share(*ends, decimals=1) for ends in shares]
    if rows["wait_share"].notna().any():
        columns["wait\n%"] = [_format_percent(value) for value in rows["wait_share"]]
    if rows["mfu"].notna().any():
        columns["mfu\n%"] = [_format_percent(value) for value in rows["mfu"]]
    # Without recomputation they are the same.
    if (rows["hfu"] > rows["mfu"] * (1 + _RECOMPUTED)).any():
        columns["hfu\n%"] = [_format_percent(value) for value in rows["hfu"]]
    return columns


def limit_columns(bounds: pd.DataFrame) -> dict[str, list[str]]:
    """Column of the points' bounds with their shares, where any is known.

    Args:
        bounds: rows of `dtsweep.analysis.bottleneck`, in the order of the table.
    """
    if not bounds["bound"].notna().any():
        return {}
    ends = zip(bounds["bound_share"], *ends_of(bounds, "bound_share"), strict=True)
    shares = [format_share(*interval) for interval in ends]
    limits = zip(bound_columns(bounds)["limited by"], shares, strict=True)
    return {"limited by, %": [f"{limit} {share}".rstrip() for limit, share in limits]}


def recommendation_columns(
    recommendations: Sequence[Recommendation], varying: Sequence[str]
) -> dict[str, list[str]]:
    """Columns of recommendations for one goal: model, point, throughput and answer."""
    points = [recommendation.point for recommendation in recommendations]
    varying = [name for name in varying if not name.startswith("workload")]
    return {
        "of": names_of(recommendations),
        "recommended": [trial_label(point, varying) for point in points],
        "samples\n/s": [
            format_rate(point["samples_per_s"], *ends_of(point, "samples_per_s"))
            for point in points
        ],
        "answer": [in_short(recommendation) for recommendation in recommendations],
    } | caution_columns([point["caution"] for point in points])


def reason_columns(bounds: pd.DataFrame) -> dict[str, list[str]]:
    """Column of the reason for each bound, or for an unknown one."""
    reasons = bound_columns(bounds)["because"]
    return {"because": reasons} if any(reasons) else {}


def scaling_columns(scaling: Scaling, *, groups: Sequence[pd.DataFrame]) -> dict[str, list[str]]:
    """Columns of speed-ups: a line per step from the smallest world of a group to a larger one.

    Args:
        scaling: the section.
        groups: those of its groups that are shown.
    """
    steps = []
    for group in groups:
        steps += [(group.iloc[0], row) for _, row in group.iloc[1:].iterrows()]
    size = _SIZE_COLUMNS[scaling.per]
    return {
        "sync": [label for group in groups for label in scaling.labels[group.index[1:]]],
        f"{scaling.per}s": [f"{base[size]} → {row[size]}" for base, row in steps],
        "micro_batch ×\naccumulation": [
            " → ".join(dict.fromkeys(map(passes_label, step))) for step in steps
        ],
        "samples\n/s": format_rates(row["samples_per_s"] for _, row in steps),
        "speed-\nup": [
            format_ratio(row["speed_up"], *ends_of(row, "speed_up")) for _, row in steps
        ],
        "effi-\nciency": [
            format_ratio(row["efficiency"], *ends_of(row, "efficiency"), unit=100, digits=0) + "%"
            for _, row in steps
        ],
    } | caution_columns([row["caution"] for _, row in steps])


def format_ratio(value: float, low: float, high: float, *, unit: float = 1, digits: int = 2) -> str:
    """Write a ratio with its interval; `digits` are those of one without an interval."""
    if math.isnan(high - low):
        return f"{value * unit:.{digits}f}"
    return format_ends(value * unit, low * unit, high * unit)


def _format_percent(share: float, *, digits: int = 1) -> str:
    """Write a share in percent; unknown is empty."""
    if math.isnan(share):
        return ""
    return f"{share * 100:.{digits}f}"
