"""What to know before trusting a report: intervals, windows, flags, canaries, environments, and what is missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from dtsweep.analysis import canaries, without_canaries
from dtsweep.analysis.canaries import WORLD
from dtsweep.report.text import count_of, say
from dtsweep.results.statuses import FLAG_MEANINGS

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_MACHINE = ("devices", "backend", "torch_version", "ray_version", "python_version", "dtsweep_version", "hosts")
"""Columns of trials that may tell what two environments differ in."""

_REASONS_SHOWN = 8


def print_caveats(frame: pd.DataFrame, points: pd.DataFrame, *, console: Console) -> None:
    """Print how sure the frontier is.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it, canaries included.
        points: what `frontier` made of it, not empty.
        console: where to.
    """
    trials = without_canaries(frame)
    windows = trials.loc[trials["status"] == "ok", "stop_reason"].value_counts()
    said = [_intervals(points), _environments(trials[trials["status"] == "ok"])]
    if len(windows):
        said.append("Windows: " + ", ".join(f"{count} {reason}" for reason, count in windows.items()) + ".")
    said.append(_canaries(frame))
    flags = flag_counts(trials)
    if flags:
        named = ", ".join(f"{flag} on {count_of(count, 'trial')}" for flag, count in flags.items())
        said.append(f"Flags: {named}.")
        said += [f"  {flag}: {FLAG_MEANINGS[flag]}" for flag in flags if flag in FLAG_MEANINGS]
    said = [*filter(None, said)]
    if said:
        say(console, "\n" + "\n".join(said))


def flag_counts(trials: pd.DataFrame) -> dict[str, int]:
    """Count the trials that have each flag, the most frequent first."""
    return {str(flag): int(count) for flag, count in trials["flags"].explode().value_counts().items()}


def _intervals(points: pd.DataFrame) -> str:
    known = points[points["latency_s_low"].notna()]
    if known.empty:
        return ""
    one = int((known["interval"] == "launch").sum())
    within = "" if one == len(known) else f" for {one} of {count_of(len(known), 'point')}, else over launches"
    kind = f"; intervals are within one launch{within}." if one else " over launches."
    assumed = int(((known["interval"] == "pooled") & (known["launches"] == 1)).sum())
    more = f" {count_of(assumed, 'point')} with one launch: widened by the spread between launches of the others."
    return f"± is half of the 95 % interval{kind}" + (more if assumed else "")


def _environments(trials: pd.DataFrame) -> str:
    """Name the columns that have one value in each environment, but not the same in all."""
    groups = trials.groupby("env_id", dropna=False)
    if groups.ngroups < 2:
        return ""
    said = f"Measured in {groups.ngroups} environments (env_id): never compared with each other. "
    telling = [
        c for c in _MACHINE if groups[c].nunique(dropna=False).max() == 1 and trials[c].nunique(dropna=False) > 1
    ]
    if not telling:
        return said + "What differs is in the column machine of the table of ranks."
    values = {c: "; ".join(f"{env_id}: {group[c].iloc[0]}" for env_id, group in groups) for c in telling}
    return said + "They differ in " + ", ".join(f"{c} ({value})" for c, value in values.items()) + "."


def _canaries(frame: pd.DataFrame) -> str:
    found = canaries(frame)
    if found.empty:
        return ""
    worlds = found.drop_duplicates(list(WORLD))
    said = f"Canary: {count_of(len(found), 'session')} of {count_of(len(worlds), 'world')}, "
    drift = found["drift"].abs().max()
    said += f"largest drift inside a session {drift:.1%}." if found["drift"].notna().any() else "no second canary."
    off = found[found["flagged"].fillna(value=False)]
    if len(off):
        trials = count_of(int(off["trials"].sum()), "trial")
        named = ", ".join(off["session"].astype(str))
        said += f" Drifted more than 2 %: {count_of(len(off), 'session')} with {trials}: {named}."
    return said


def unmeasured(trials: pd.DataFrame) -> pd.DataFrame:
    """Count trials that are not ok by status and reason, the skipped ones last; with the first one's log."""
    groups = trials[trials["status"] != "ok"].groupby(["status", "reason"], dropna=False)
    rows = groups["log"].agg(count="size", log="first").reset_index()
    rows = rows.assign(skipped=rows["status"] == "skipped")
    rows = rows.sort_values(["skipped", "status", "count"], ascending=[True, True, False])
    return rows[["count", "status", "reason", "log"]]


def print_unmeasured(trials: pd.DataFrame, *, console: Console, show_all: bool) -> None:
    """Print why trials have no numbers; the reasons after the first few are counted, or shown on request."""
    import pandas as pd

    rows = unmeasured(trials)
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
