"""The report in the terminal: the frontier and the scaling, with what to know before trusting them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import canaries, difference, frontier, scaling, setting_columns, without_canaries
from dtsweep.report.notes import flag_counts, print_caveats, print_unmeasured, unmeasured
from dtsweep.report.tables import axis, batch_cells, figure_cells, setting, share_cells
from dtsweep.report.text import count_of, fits, print_table, rate, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_UPDATES = {
    "exact": "exact updates",
    "lossy": "lossy updates",
    "stale": "stale updates, a step is one worker's push",
    "local": "local updates, latency is the mean step",
}
_SCALING = (
    ("worker", "weak", "Weak scaling by workers, same micro_batch and accumulation"),
    ("worker", "strong", "Strong scaling by workers, same global_batch, fastest micro_batch × accumulation"),
    ("node", "weak", "Weak scaling by nodes, same micro_batch and accumulation"),
    ("node", "strong", "Strong scaling by nodes, same global_batch, fastest micro_batch × accumulation"),
)
_GROUPS_SHOWN = 8


def print_report(frame: pd.DataFrame, *, console: Console, show_all: bool = False) -> None:
    """Print what is worth running, how it scales, and what was not measured.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.
        console: where to; its width decides how close the columns stand.
        show_all: also dominated points, every scaling group and every reason.
    """
    trials = without_canaries(frame)
    if trials.empty:
        say(console, "No trials in these results.")
        return
    points = frontier(frame)
    say(console, _headline(trials), style="bold")
    if points.empty:
        say(console, "No trial ended ok, so there is no frontier.")
    else:
        varying = [c for c in setting_columns(points) if points[c].nunique(dropna=False) > 1]
        say(console, _constants(points, varying=varying))
        _print_frontiers(trials, points, varying=varying, console=console, show_all=show_all)
        print_caveats(frame, points, console=console)
        _print_scaling(trials, varying=varying, console=console, show_all=show_all)
    print_unmeasured(trials, console=console, show_all=show_all)


def report_json(frame: pd.DataFrame) -> dict[str, Any]:
    """Give the content of the report as JSON values, every point included; unknown is None.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.

    Returns:
        `trials` (count), `statuses` and `flags` (count of each), `frontier`, `scaling`, `scaling_per_node` and
        `canaries` (rows of the functions of `dtsweep.analysis`), `differences` (rows of `difference` between the
        highest throughput and the runner-up of each frontier, `point_a` and `point_b`), `unmeasured` (count,
        status, reason, log of trials that are not ok). Canaries are in `canaries` alone.
    """
    trials = without_canaries(frame)
    points = frontier(frame)
    return {
        "trials": len(trials),
        "statuses": {str(status): int(count) for status, count in trials["status"].value_counts().items()},
        "flags": flag_counts(trials),
        "frontier": _records(points),
        "differences": _differences(trials, points),
        "scaling": _records(scaling(frame)),
        "scaling_per_node": _records(scaling(frame, per="node")),
        "canaries": _records(canaries(frame)),
        "unmeasured": _records(unmeasured(trials)),
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
    return "In all points: " + ", ".join(f"{axis(c)}={value}" for c, value in known.items())


def _differences(trials: pd.DataFrame, points: pd.DataFrame) -> list[dict[str, Any]]:
    """Of all frontiers, as JSON values."""
    frontiers = points[points["on_frontier"]].groupby(["semantics", "env_id"], sort=False, dropna=False)
    return [
        {"semantics": semantics} | record
        for (semantics, _), best in frontiers
        for record in _records(_best_two(trials, best))
    ]


def _best_two(trials: pd.DataFrame, best: pd.DataFrame) -> pd.DataFrame:
    """Compare the highest throughput of a frontier with the runner-up; empty where there is none."""
    import pandas as pd

    ranked = best.sort_values("samples_per_s", ascending=False, kind="stable")["point_id"]
    if len(ranked) < 2:
        return ranked.head(0).to_frame()
    env_id, a, b = best["env_id"].iloc[0], ranked.iloc[0], ranked.iloc[1]
    there = trials["env_id"].isna() if pd.isna(env_id) else trials["env_id"] == env_id
    return difference(trials[there], a, b).assign(point_a=a, point_b=b)


def _verdict(row: pd.Series[Any]) -> str:
    """Say what the first row of `difference`, the one of throughput, leaves to say."""
    said = f"Highest throughput: {row['ratio']:.3f} times the runner-up's"
    if row["method"] == "none":
        which = "one launch each" if row["launches_a"] == row["launches_b"] == 1 else "too few launches"
        return f"{said}, by {which}: whether launches differ by as much, repeats tell."
    return f"{said} ({row['ratio_low']:.3f}–{row['ratio_high']:.3f}), {row['verdict']}."


def _print_frontiers(
    trials: pd.DataFrame, points: pd.DataFrame, *, varying: list[str], console: Console, show_all: bool
) -> None:
    environments = points["env_id"].nunique(dropna=False)
    for (semantics, env_id), rows in points.groupby(["semantics", "env_id"], sort=False, dropna=False):
        settings = rows.apply(setting, axis=1, varying=varying)
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
            keys = {} if alike else {"sync": settings[part.index].to_list()}
            keys |= batch_cells(part, varying=varying)
            if style:
                say(console, f"{count_of(len(part), 'dominated point')}:", style=style)
            figures, shares = figure_cells(part, varying=varying), share_cells(part)
            one_table = keys | figures | shares
            tables = [one_table] if fits(one_table, console=console) else [keys | figures, keys | shares]
            for cells in tables:
                print_table(cells, console=console, style=style)
        if len(dominated) and not show_all:
            say(console, f"{count_of(len(dominated), 'dominated point')}: --all shows them")
        for _, row in _best_two(trials, best).head(1).iterrows():
            say(console, _verdict(row))


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
            "sync": setting(row, varying),
            f"{per}s": f"{base[size]} → {row[size]}",
            "micro_batch ×\naccumulation": shape if shape == shapes[0] else f"{shapes[0]} → {shape}",
            "samples\n/s": rate(row["samples_per_s"]),
            "speed-\nup": f"{row['speed_up']:.2f}",
            "effi-\nciency": f"{row['efficiency']:.0%}",
        }
        for shape, (_, row) in zip(shapes[1:], ladder.iloc[1:].iterrows(), strict=True)
    ]
