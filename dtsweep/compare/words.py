"""Comparison of two runs: its verdict in words, and its JSON values."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import setting_columns
from dtsweep.compare.compared_runs import RUNS_FROM, RunComparison
from dtsweep.compare.points import drift_notes
from dtsweep.compare.regressions import RUN_SIGMA
from dtsweep.compare.runs import Run
from dtsweep.inference.verdicts import Reason, RunVerdict, Verdict
from dtsweep.report.labels import trial_label
from dtsweep.report.records import records_of
from dtsweep.report.verdict_words import LONG_REASON_WORDS
from dtsweep.text import count_of, format_number, in_percent, percent_up

if TYPE_CHECKING:
    import pandas as pd

_PARTS = {
    "data_s": "Loading batches",
    "forward_s": "The forward passes",
    "backward_s": "The backward passes",
    "compress_s": "The compression",
    "sync_s": "The exchange between workers",
    "optimizer_s": "The optimizer",
    "loop_s": "The training loop without its loader",
}
"""Parts of a step, by their column."""

Row = Mapping[str, Any]
Rows = Sequence[Row]

_LISTS = (
    "grew",
    "rows",
    "broken",
    "only_base",
    "only_new",
    "software",
    "machine",
    "source",
    "notes",
    "base",
    "changes",
)
"""Keys of a comparison that are lists."""

_MOST_OF_IT, _ALL_OF_IT = 0.5, 0.8
"""Least shares of what a step grew by, for a part that is most of it, or all but noise."""


def comparison_json(compared: RunComparison, *, threshold: float) -> dict[str, Any]:
    """Give a comparison as JSON values: `docs/schemas/compare.json`."""
    labels = point_labels([*compared.base, compared.new])
    rows = [row | {"label": labels[row["point_id"]]} for row in records_of(compared.rows)]
    broken = records_of(compared.broken[["point_id", "status", "reason"]])
    tested = sum(row["p_value"] is not None for row in rows)
    return {
        "verdict": _code(compared, tested=tested),
        "words": _verdict(
            rows, broken, threshold=threshold, way=_way_to_tell([*compared.base, compared.new])
        ),
        "grew": _grew(compared, rows),
        "threshold": threshold,
        "comparisons": tested,
        "unit": "run" if compared.is_by_run else "launch",
        "rows": rows,
        "broken": [row | {"label": labels[row["point_id"]]} for row in broken],
        "only_base": _only(
            compared.base[-1], compared.new, labels, without=[row["point_id"] for row in broken]
        ),
        "only_new": _only(compared.new, compared.base[-1], labels),
        "software": list(compared.software),
        "machine": list(compared.machine),
        "source": list(compared.source),
        "notes": _notes(compared, rows, threshold=threshold),
        "base": [_facts(run) for run in compared.base],
        "new": _facts(compared.new),
        "changes": [],
    }


def _code(compared: RunComparison, *, tested: int) -> RunVerdict:
    if compared.is_regression:
        return RunVerdict.REGRESSION
    if tested:
        return RunVerdict.NO_REGRESSION
    return RunVerdict.UNKNOWN


def first_json(new: Run, *, threshold: float, words: str) -> dict[str, Any]:
    """Give the values of `comparison_json` for a run without an earlier one."""
    facts = {"verdict": RunVerdict.FIRST, "words": words, "threshold": threshold}
    draws = {"comparisons": 0, "unit": "launch"}
    return facts | draws | {name: [] for name in _LISTS} | {"new": _facts(new)}


def _grew(compared: RunComparison, rows: Rows) -> list[str]:
    """Name the part of the step that grew most in slower points, by the point where it grew most.

    A part is named if it is at least half of what the step grew by.
    """
    then, now = (_parts_of(runs) for runs in (compared.base, [compared.new]))
    named: dict[str, list[tuple[float, float, Row]]] = {}
    slower = {row["point_id"]: row for row in rows if row["is_regression"]}
    for point, row in slower.items():
        growth = now.loc[point] - then.loc[point]
        part = growth[list(_PARTS)].fillna(0).idxmax()
        share = growth[part] / growth["step_mean_s"]
        if growth["step_mean_s"] > 0 and share >= _MOST_OF_IT:
            named.setdefault(str(part), []).append((growth[part], share, row))
    sentences = []
    for part, points in named.items():
        _, share, row = max(points, key=lambda point: point[0])
        before, after = (
            format_number(means[part][row["point_id"]] * 1e3, digits=2) for means in (then, now)
        )
        extent = "most of "
        if share >= _ALL_OF_IT:
            extent = ""
        others = ""
        if len(points) > 1:
            others = f" and {count_of(len(points) - 1, 'more point')}"
        sentences.append(
            f"{_PARTS[part]} grew from {before} to {after} ms a step: that is {extent}the "
            f"difference ({row['label']}{others})."
        )
    return sentences


def _parts_of(runs: Sequence[Run]) -> pd.DataFrame:
    """Mean seconds of a step and of its parts by point; null where they were not measured."""
    import pandas as pd

    columns = ["step_mean_s", *_PARTS]
    launches = [run.launches.reindex(columns=["point_id", *columns]) for run in runs]
    rows = pd.concat(launches).astype(dict.fromkeys(columns, "float64"))
    return rows.groupby("point_id")[columns].mean()


def point_labels(runs: Sequence[Run]) -> dict[str, str]:
    """Names of points by what varies among those of all runs."""
    import pandas as pd

    frames = [run.tried[["point_id", *setting_columns(run.tried)]].astype(object) for run in runs]
    points = pd.concat(frames, ignore_index=True).drop_duplicates("point_id", keep="last")
    varying = [name for name in setting_columns(points) if points[name].nunique(dropna=False) > 1]
    return {str(row["point_id"]): trial_label(row, varying) for _, row in points.iterrows()}


def _only(
    run: Run, compared: Run, labels: Mapping[str, str], *, without: Sequence[str] = ()
) -> list[dict[str, str]]:
    """Points that one run measured and the compared one did not."""
    points = set(run.launches["point_id"]) - set(compared.launches["point_id"]) - set(without)
    return [
        {"point_id": name, "label": labels[name]} for name in sorted(points, key=labels.__getitem__)
    ]


def _facts(run: Run) -> dict[str, Any]:
    (newest,) = records_of(run.tried.iloc[-1:][["started_at", "git_commit", "env_id"]])
    return {"name": run.name, **newest, "trials": len(run.launches), "drift": run.drift}


def run_name(run: Run) -> str:
    """Name a run by the time of its newest trial and by its commit."""
    facts = _facts(run)
    time = str(facts["started_at"])[:16].replace("T", " ")
    return " ".join(filter(None, [time, facts["git_commit"]]))


def _way_to_tell(runs: Sequence[Run]) -> str:
    """Say what would show a difference, where each run has one launch of each point."""
    if all(run.tried["harness"].isin(["in_process"]).all() for run in runs):
        return (
            "Runs --in-process have one launch of each point: more of them in the same results "
            "(--rerun all) would show a difference."
        )
    return (
        "Measure(repeats=3) in both runs would show a difference, or more runs in the same results "
        "(--rerun all)."
    )


def _verdict(rows: Rows, broken: Sequence[Any], *, threshold: float, way: str) -> str:
    """State the verdict in a sentence or two; what was not tested is not called unchanged."""
    tested = [row for row in rows if row["p_value"] is not None]
    worse = [row for row in rows if row["is_regression"]]
    among = count_of(len(tested), "comparison")
    regressions = []
    if worse:
        points = count_of(len({row["point_id"] for row in worse}), "point")
        regressions.append(
            f"{points} slower by more than {share_in_percent(threshold)}, significant among {among}"
        )
    if broken:
        regressions.append(f"{count_of(len(broken), 'point')} ran before and failed now")
    untested = ""
    if len(tested) < len(rows):
        untested = f" {count_of(len(rows) - len(tested), 'comparison')} could not be tested."
    if regressions:
        return f"Regression: {'; '.join(regressions)}.{untested}"
    if not tested:
        reasons = list(dict.fromkeys(row["verdict_reason"] for row in rows))
        words = f"Nothing can be tested: {'; '.join(LONG_REASON_WORDS[code] for code in reasons)}."
        if Reason.ONE_LAUNCH_EACH in reasons:
            return f"{words} {way}"
        return words
    shares = [
        row["detectable_ratio"] - 1 if row["detectable_ratio"] is not None else math.inf
        for row in tested
    ]
    half_width = " to ".join(dict.fromkeys(map(share_in_percent, (min(shares), max(shares)))))
    by_point = ""
    if " to " in half_width:
        by_point = ", by point,"
    return (
        f"No regression found in {among}; a slowdown of {half_width}{by_point} would be found "
        f"with a probability of 80 %.{untested}"
    )


def share_in_percent(share: float) -> str:
    """Write a share in percent, in two digits; large ones as such.

    >>> share_in_percent(0.0234), share_in_percent(3.2)
    ('2.3 %', 'over 100 %')
    """
    if share < 0.995:
        return f"{share * 100:.2g} %"
    return "over 100 %"


def _notes(compared: RunComparison, rows: Rows, *, threshold: float) -> list[str]:
    """Write notes on how to read the comparison."""
    if not rows:
        return _differences(compared)
    runs = count_of(len(compared.base), "earlier run")
    tested = [row for row in rows if row["p_value"] is not None]
    if compared.is_by_run:
        notes = [f"Each of {runs} counts as one launch: how far runs differ is in the intervals."]
    else:
        notes = [
            f"{runs}: runs without a change are assumed to differ by {in_percent(RUN_SIGMA)} "
            "(standard deviation), which is in the intervals; it is measured from "
            f"{RUNS_FROM} earlier runs in the same results on. A point that is slower than the "
            "others of its run is found in any case."
        ]
    if len(tested) > 1:
        notes.append(
            f"Significant means: the risk of any wrong finding among {len(tested)} comparisons is "
            "at most 5 % (Holm)."
        )
    doubtful = [row for row in tested if row["verdict"] == Verdict.UNDECIDED and row["is_worse"]]
    if doubtful:
        notes.append(
            f"Worse by more than {share_in_percent(threshold)} by the means, but not "
            f"significantly: {count_of(len(doubtful), 'comparison')}."
        )
    return [*_drift(compared), *notes, *_differences(compared)]


def _drift(compared: RunComparison) -> list[str]:
    """Say which differences the machine's drift hides.

    With several earlier runs, the drift may instead be part of the spread between runs.
    """
    if not compared.is_by_run:
        return drift_notes(compared.drift or None)
    drift = max(run.drift or 0.0 for run in (*compared.base, compared.new))
    if compared.drift:
        return [
            f"The machine drifted: by up to {percent_up(drift)} within the new run, more than "
            "within any earlier one; a single run shows no difference below that."
        ]
    within = f"The machine drifted: by up to {percent_up(drift)} within a run"
    if not drift:
        return []
    return [f"{within}; that is in how far runs differ."]


def _differences(compared: RunComparison) -> list[str]:
    """Say how the software, the machine and the workload's source differ."""
    differs = {
        "Software differs": compared.software,
        "Machine differs": compared.machine,
        "Changed in the workload since the earlier run": compared.source,
    }
    return [f"{subject}: {'; '.join(changes)}." for subject, changes in differs.items() if changes]
