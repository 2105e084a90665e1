"""The report in the terminal: the frontier, the scaling, and what was not measured."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from rich.table import Table
from rich.text import Text

from dtsweep.analysis import frontier, scaling, setting_columns
from dtsweep.point import CHOICES
from dtsweep.terminal import count_of, interval, print_table, rate, say, significant, whole

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_UPDATES = {
    "exact": "exact updates",
    "lossy": "lossy updates",
    "stale": "stale updates, a step is one worker's push",
    "local": "local updates, latency is the mean step",
}
_SYNC_SETTINGS = {"sync_period": "H", "staleness": "s", "shards": "shards"}
_BATCH_SHAPE = {"workers": "workers", "micro_batch": "micro\nbatch", "accumulation": "accumu-\nlation"}
_SCALING = (
    ("worker", "weak", "Weak scaling by workers, same micro_batch and accumulation"),
    ("worker", "strong", "Strong scaling by workers, same global_batch, fastest micro_batch × accumulation"),
    ("node", "weak", "Weak scaling by nodes, same micro_batch and accumulation"),
    ("node", "strong", "Strong scaling by nodes, same global_batch, fastest micro_batch × accumulation"),
)
_GROUPS_SHOWN = 8
_REASONS_SHOWN = 8


def print_report(frame: pd.DataFrame, *, console: Console, show_all: bool = False) -> None:
    """Print what is worth running, how it scales, and what was not measured.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.
        console: where to; its width decides how close the columns stand.
        show_all: also dominated points, every scaling group and every reason.
    """
    if frame.empty:
        say(console, "No trials in these results.")
        return
    points = frontier(frame)
    say(console, _headline(frame), style="bold")
    if points.empty:
        say(console, "No trial ended ok, so there is no frontier.")
    else:
        varying = [c for c in setting_columns(points) if points[c].nunique(dropna=False) > 1]
        say(console, _constants(points, varying=varying))
        _print_frontiers(points, varying=varying, console=console, show_all=show_all)
        _print_notes(points, flags=frame["flags"], console=console)
        _print_scaling(frame, varying=varying, console=console, show_all=show_all)
    _print_unmeasured(frame, console=console, show_all=show_all)


def report_json(frame: pd.DataFrame) -> dict[str, Any]:
    """Give the content of the report as JSON values, every point included; unknown is None.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.

    Returns:
        `trials` (count), `statuses` (count of each), `frontier`, `scaling` and `scaling_per_node` (rows of the
        functions of `dtsweep.analysis`), `unmeasured` (count, status, reason, log of trials that are not ok).
    """
    if frame.empty:
        names = ("frontier", "scaling", "scaling_per_node", "unmeasured")
        return {"trials": 0, "statuses": {}} | {name: [] for name in names}
    return {
        "trials": len(frame),
        "statuses": {str(status): int(count) for status, count in frame["status"].value_counts().items()},
        "frontier": _records(frontier(frame)),
        "scaling": _records(scaling(frame)),
        "scaling_per_node": _records(scaling(frame, per="node")),
        "unmeasured": _records(_unmeasured(frame)),
    }


def _records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    records: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return records


def _headline(frame: pd.DataFrame) -> str:
    named = [" and ".join(sorted(frame[c].dropna().unique())) for c in ("workload", "devices")]
    hosts = int(frame["hosts"].max()) if frame["hosts"].notna().any() else 0
    where = [f"up to {count_of(hosts, 'host')}"] if hosts > 1 else []
    statuses = ", ".join(f"{count} {status}" for status, count in frame["status"].value_counts().items())
    return " · ".join([*filter(None, named), *where, f"{count_of(len(frame), 'trial')}: {statuses}"])


def _constants(points: pd.DataFrame, *, varying: list[str]) -> str:
    names = [c for c in setting_columns(points) if c not in ("workload", *varying)]
    known = {c: points[c].iloc[0] for c in names if points[c].notna().all() and points[c].iloc[0] != "{}"}
    return "In all points: " + ", ".join(f"{_axis(c)}={value}" for c, value in known.items())


def _axis(column: str) -> str:
    return column.replace("workload_", "workload.", 1)


def _setting(row: pd.Series[Any], varying: list[str]) -> str:
    """Say a row's sync with its settings, then the other axes that vary: "local_sgd H=8 bf16"."""
    import pandas as pd

    own = [str(row["sync"])]
    for name, short in _SYNC_SETTINGS.items():
        if pd.notna(row[name]):
            own.append(f"{short}={row[name]}")
        elif name == "staleness" and row["sync"] == "parameter_server":
            own.append("s=∞")
    others = [c for c in varying if c not in ("sync", *_SYNC_SETTINGS, *_BATCH_SHAPE)]
    named = {c: "" if c in CHOICES else f"{_axis(c)}=" for c in others if pd.notna(row[c])}
    return " ".join([*own, *(f"{name}{row[c]}" for c, name in named.items())])


def _print_frontiers(points: pd.DataFrame, *, varying: list[str], console: Console, show_all: bool) -> None:
    environments = points["env_id"].nunique(dropna=False)
    for (semantics, env_id), rows in points.groupby(["semantics", "env_id"], sort=False, dropna=False):
        settings = rows.apply(_setting, axis=1, varying=varying)
        alike = settings.nunique() == 1
        title = ["Frontier", _UPDATES[str(semantics)], *([settings.iloc[0]] if alike else [])]
        if environments > 1:
            title.append(f"env_id {env_id}")
        say(console, "\n" + " · ".join(title), style="bold")
        best, dominated = rows[rows["on_frontier"]], rows[~rows["on_frontier"]]
        if best.empty:
            say(console, "No point has both a step time and a throughput.")
            continue
        shown = {"": best} | ({"dim": dominated} if show_all and len(dominated) else {})
        for style, part in shown.items():
            cells = {} if alike else {"sync": settings[part.index].to_list()}
            if style:
                say(console, f"{count_of(len(part), 'dominated point')}:", style=style)
            print_table(cells | _point_cells(part, varying=varying), console=console, style=style)
        if len(dominated) and not show_all:
            say(console, f"{count_of(len(dominated), 'dominated point')}: --all shows them")


def _point_cells(rows: pd.DataFrame, *, varying: list[str]) -> dict[str, list[str]]:
    """Headers with their cells: the axes that vary in the frame, and what these rows know."""
    cells = {header: whole(rows[c]) for c, header in _BATCH_SHAPE.items() if c in varying}
    if cells and rows["global_batch"].notna().any():
        cells["global\nbatch"] = whole(rows["global_batch"])
    half_ms = (rows["latency_s_high"] - rows["latency_s_low"]) / 2 * 1e3
    cells["step\nms"] = [interval(*pair) for pair in zip(rows["latency_s"] * 1e3, half_ms, strict=True)]
    cells["samples\n/s"] = [rate(value) for value in rows["samples_per_s"]]
    if rows["tokens_per_s"].notna().any():
        cells["tokens\n/s"] = [rate(value) for value in rows["tokens_per_s"]]
    if rows["memory_peak_bytes"].notna().any():
        memory = rows["memory_peak_bytes"].astype("float64")
        unit, size = ("GiB", 2**30) if memory.max() >= 2**30 else ("MiB", 2**20)
        cells[f"memory\n{unit}"] = [significant(value, digits=3) for value in memory / size]
    return cells


def _print_notes(points: pd.DataFrame, *, flags: pd.Series[Any], console: Console) -> None:
    known = points[points["latency_s_low"].notna()]
    one = int((known["launches"] == 1).sum())
    if one:
        which = "" if one == len(known) else f" for {one} of {len(known)} points, else over launches"
        say(console, f"\n± is half of the 95 % interval; intervals are within one launch{which}.")
    elif len(known):
        say(console, "\n± is half of the 95 % interval over launches.")
    environments = points["env_id"].nunique(dropna=False)
    if environments > 1:
        say(console, f"Measured in {environments} environments (env_id): never compared with each other.")
    counts = flags.explode().value_counts()
    if len(counts):
        named = ", ".join(f"{flag} on {count_of(count, 'trial')}" for flag, count in counts.items())
        say(console, f"Flags: {named}.")


def _print_scaling(frame: pd.DataFrame, *, varying: list[str], console: Console, show_all: bool) -> None:
    ladders = {"worker": scaling(frame), "node": scaling(frame, per="node")}
    if frame.loc[frame["status"] == "ok", "env_id"].nunique(dropna=False) > 1:
        varying = [*varying, "env_id"]
    for per, kind, title in _SCALING:
        rows = ladders[per][ladders[per]["kind"] == kind]
        if rows.empty:
            continue
        groups = rows.groupby("group")["samples_per_s"].max().sort_values(ascending=False, kind="stable").index
        shown = groups if show_all else groups[:_GROUPS_SHOWN]
        say(console, f"\n{title}", style="bold")
        steps = [step for group in shown for step in _steps_up(rows[rows["group"] == group], per, varying)]
        print_table({header: [step[header] for step in steps] for header in steps[0]}, console=console)
        if len(groups) > len(shown):
            say(console, f"{count_of(len(groups) - len(shown), 'slower group')}: --all shows them")


def _steps_up(ladder: pd.DataFrame, per: str, varying: list[str]) -> list[dict[str, str]]:
    """From the smallest world of a group to each larger one: headers with their cells."""
    base = ladder.iloc[0]
    size = "workers" if per == "worker" else "hosts"
    shapes = [
        f"{batch} × {passes}" for batch, passes in zip(ladder["micro_batch"], ladder["accumulation"], strict=True)
    ]
    return [
        {
            "sync": _setting(row, varying),
            f"{per}s": f"{base[size]} → {row[size]}",
            "micro_batch ×\naccumulation": shape if shape == shapes[0] else f"{shapes[0]} → {shape}",
            "samples\n/s": rate(row["samples_per_s"]),
            "speed-\nup": f"{row['speed_up']:.2f}",
            "effi-\nciency": f"{row['efficiency']:.0%}",
        }
        for shape, (_, row) in zip(shapes[1:], ladder.iloc[1:].iterrows(), strict=True)
    ]


def _unmeasured(frame: pd.DataFrame) -> pd.DataFrame:
    """Count trials that are not ok by status and reason, the skipped ones last; with the first one's log."""
    groups = frame[frame["status"] != "ok"].groupby(["status", "reason"], dropna=False)
    rows = groups["log"].agg(count="size", log="first").reset_index()
    rows = rows.assign(skipped=rows["status"] == "skipped")
    rows = rows.sort_values(["skipped", "status", "count"], ascending=[True, True, False])
    return rows[["count", "status", "reason", "log"]]


def _print_unmeasured(frame: pd.DataFrame, *, console: Console, show_all: bool) -> None:
    import pandas as pd

    rows = _unmeasured(frame)
    if rows.empty:
        return
    say(console, "\nNot measured", style="bold")
    table = Table.grid(padding=(0, 2, 0, 0))
    for overflow in ("ignore", "ignore", "fold"):
        table.add_column(overflow=overflow, no_wrap=overflow == "ignore")
    shown = rows if show_all else rows.head(_REASONS_SHOWN)
    for count, status, reason, log in shown.itertuples(index=False):
        words = [reason if pd.notna(reason) else "no reason stored", f"log: {log}" if pd.notna(log) else ""]
        table.add_row(str(count), status, Text("\n".join(filter(None, words))))
    console.print(table)
    if len(rows) > len(shown):
        say(console, f"{count_of(len(rows) - len(shown), 'more reason')}: --all shows them")
