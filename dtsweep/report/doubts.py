"""Doubts that a report states before its tables: what to ignore, and what not to compare."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.canaries import drift_of
from dtsweep.analysis.interference import (
    INTERFERENCE_COLUMNS,
    Interference,
    interference_over,
)
from dtsweep.analysis.ladders import far_above_linear
from dtsweep.analysis.launches import has_caution, without_canaries
from dtsweep.analysis.objectives import MAXIMIZED, MINIMIZED
from dtsweep.analysis.study import Study, launch_sigma
from dtsweep.inference.power import MOST_LAUNCHES, launches_for, sigma_interval
from dtsweep.inference.selection import ASSUMED_SIGMA
from dtsweep.inference.spread import POINT
from dtsweep.report.labels import trial_label, varying_columns
from dtsweep.report.next_step import run_with_launches
from dtsweep.results.schema import IMPORTED
from dtsweep.text import (
    count_of,
    format_integers,
    format_number,
    in_percent,
    listed,
    percent_up,
)

if TYPE_CHECKING:
    import pandas as pd

_MACHINE_COLUMNS = (
    "devices",
    "backend",
    "torch_version",
    "ray_version",
    "python_version",
    "dtsweep_version",
    "hosts",
    "harness",
)
"""Columns of trials in which two environments may differ."""

_IMPLAUSIBLE_SHOWN = 8

_NAMED = 3
"""Points that a doubt names; others are counted."""

UNLIKE = 1.5
"""Factor between imported rows of one point, above which they may be of several machines."""

_DIFFERENCES = (0.02, 0.05, 0.10)
"""Differences of two points for which the needed launches are named."""

_MAY_BE_DRIFT = "may be drift"
"""Phrase of the sentence on a drift that canaries show."""

ONE_LAUNCH_SHOWS = 1.96 * 2**0.5 * ASSUMED_SIGMA
"""Smallest difference of two single launches that is more than their assumed noise."""


def doubts_on(study: Study, points: pd.DataFrame, *, varying: Sequence[str]) -> list[str]:
    """Write what to know before reading any number of a report.

    Args:
        study: of all trials.
        points: rows of `dtsweep.analysis.frontier`.
        varying: setting columns that have more than one value.

    Returns:
        One text per doubt; lines after its first explain it. Without points only that on imported
        rows that are not used.
    """
    not_used = _not_used_doubt(study.frame)
    if points.empty:
        return [*filter(None, [not_used])]
    measured = without_canaries(study.frame[study.frame["status"] == "ok"])
    drift = _drift_doubt(
        study.canaries,
        trials=int((measured["harness"] != IMPORTED).sum()),
        launches=int(points["launches"].max()),
    )
    doubts = (
        drift,
        _failed_canary_doubt(study.frame),
        _noise(study, points, is_drift_known=_MAY_BE_DRIFT in drift),
        _windows(measured, points),
        _implausible_doubt(measured, varying),
        not_used,
        _joined_doubt(measured),
        _environment_doubt(measured),
        _interference_doubt(study.frame, zone=study.zone),
    )
    return [*filter(None, doubts)]


def unsound_doubts(study: Study) -> list[str]:
    """Name the points that can't be recommended as sound, with the reason and what to do.

    Returns:
        One text per reason: workers that exchange nothing, workers that load the same samples,
        rates far above linear, imported rows that differ too much, and rates that are unknown.
    """
    points = study.points
    varying = varying_columns(points)
    doubts = []
    separate = points[points["semantics"] == "not_exchanged"]
    for reason, rows in separate.groupby("gradients_reason", dropna=False, sort=False):
        workers = _alternatives(sorted(rows["workers"].unique()))
        doubts.append(
            f"Nothing exchanged: the {workers}-worker runs train a separate model in each worker"
            f"{_because(reason)}. Start the process group in the script, and wrap the model "
            "(docs/own-loops.md). They are not recommended."
        )
    same = points[has_caution(points, ["same_batches"])]
    for reason, rows in same.groupby("gradients_reason", dropna=False, sort=False):
        doubts.append(
            f"Same samples: each step of {_names(rows, varying)} has fewer samples than are "
            f"counted{_because(reason)}. Not recommended."
        )
    doubts += [
        f"Too fast: {trial_label(row, varying)} has {row['times']:.3g} times the samples/s of "
        f"workers={row['base']}, far above {row['workers'] / row['base']:g} times. One of the two "
        "is wrong: check both before you use either."
        for row in far_above_linear(points).to_dict("records")
    ]
    doubts += _unlike_repeats(study.trials, varying)
    unknown = points[points["samples_per_s"].isna() & points["samples_reason"].notna()]
    for reason, rows in unknown.groupby("samples_reason", sort=False):
        doubts.append(f"samples/s is unknown of {_names(rows, varying)}{_because(reason)}.")
    return doubts


def _unlike_repeats(trials: pd.DataFrame, varying: Sequence[str]) -> list[str]:
    """Name imported rows of one point that differ by more than repeats on one machine do."""
    imported = trials[trials["harness"] == IMPORTED].dropna(subset=["samples_per_s"])
    doubts = []
    for _, rows in imported.groupby(list(POINT), dropna=False, sort=False):
        factor = rows["samples_per_s"].max() / rows["samples_per_s"].min()
        if factor > UNLIKE:
            doubts.append(
                f"Rows of {trial_label(rows.iloc[0], varying)} differ by {factor:.2g} times: are "
                "they of the same machine? If not, give the table a column that tells them apart."
            )
    return doubts


def _because(reason: object) -> str:
    """Give a stored reason as the end of a clause; empty without one."""
    if not isinstance(reason, str) or not reason:
        return ""
    return f": {reason.rstrip('.')}"


def _alternatives(sizes: Sequence[int]) -> str:
    """Write sizes as one word: "2- and 4"."""
    return "- and ".join(map(str, sizes))


def _names(rows: pd.DataFrame, varying: Sequence[str]) -> str:
    labels = [trial_label(row, varying) for row in rows.to_dict("records")]
    return listed(labels, most=_NAMED)


def _interference_doubt(rows: pd.DataFrame, *, zone: float) -> str:
    """State that trials slowed each other down by more than the indifference zone.

    Args:
        rows: of trials and canaries.
        zone: indifference zone, as a share.
    """
    frame = rows.reindex(columns=list(INTERFERENCE_COLUMNS))
    records = [dict(zip(INTERFERENCE_COLUMNS, row, strict=True)) for row in frame.to_numpy()]
    interference = interference_over(records, zone=zone)
    if interference is None:
        return ""
    return interference_words(interference, zone=zone)


def interference_words(interference: Interference, *, zone: float) -> str:
    """Say how much trials slowed each other down, and what to do."""
    return (
        f"Trials that ran at the same time, up to {interference.concurrent}, took "
        f"{in_percent(interference.share, digits=1)} longer than alone, more than the "
        f"indifference zone of {in_percent(zone, digits=1)}. Run fewer: "
        f"Resources(concurrent={interference.advised})."
    )


def _drift_doubt(canaries: pd.DataFrame, *, trials: int, launches: int) -> str:
    """State the size below which a difference may be due to the machine's drift.

    Canaries, which measure one point again and again, give that size.

    Args:
        canaries: rows of `dtsweep.analysis.canaries`.
        trials: how many were measured `ok`.
        launches: the most that a point has.
    """
    drifted = canaries[canaries["flagged"].fillna(value=False)]
    drift = drift_of(canaries)
    if drifted.empty or drift is None:
        return _unknown_drift_doubt(canaries, launches=launches)
    percent = percent_up(drift)
    concerned = int(drifted["trials"].sum())
    untested = ""
    if launches > 1:
        untested = ", unless a test over launches says otherwise"
    return (
        f"The machine drifted: the same point took up to {percent} longer at one time than at "
        "another, in sessions "
        f"with {concerned} of {count_of(trials, 'trial')}. Differences below {percent} "
        f"{_MAY_BE_DRIFT}{untested}."
    )


def _unknown_drift_doubt(canaries: pd.DataFrame, *, launches: int) -> str:
    """State the drift that canaries can't exclude, where it is larger than the noise."""
    unknown = canaries[canaries["flagged"].isna() & canaries["known_to"].notna()]
    if unknown.empty:
        return ""
    if launches == 1 and unknown["known_to"].max() <= ONE_LAUNCH_SHOWS:
        return ""
    percent = percent_up(unknown["known_to"].max())
    return (
        f"Whether the machine drifted by less than {percent} is not known: its canaries are too "
        "imprecise for that."
    )


def _noise(study: Study, points: pd.DataFrame, *, is_drift_known: bool) -> str:
    """State how much launches of a point differ, and the launches that differences take."""
    if len(points) < 2:
        return ""
    if points["launches"].max() == 1 and is_drift_known:
        return f"Noise: every point was started once; {run_with_launches(study)} measures it."
    if points["launches"].max() == 1:
        return (
            "Noise: every point was started once. Differences below "
            f"{in_percent(ONE_LAUNCH_SHOWS)} may be noise: two starts may differ by that much, if "
            f"one varies by an assumed {in_percent(ASSUMED_SIGMA)}. Next: "
            f"{run_with_launches(study)}, which "
            "measures it."
        )
    spreads = launch_sigma(study)
    spreads = spreads[(spreads["degrees"] > 0) & (spreads["spread"] > 0)]
    return "\n".join(
        _noise_of(row, f" in env_id {env_id}" if len(spreads) > 1 else "")
        for env_id, row in spreads.iterrows()
    )


def _noise_of(row: pd.Series[Any], where: str) -> str:
    """State the noise between launches of one environment, a row of `launch_sigma`."""
    sigma = float(row["spread"])
    low, high = sigma_interval(sigma, int(row["degrees"]))
    needed = [launches_for(sigma, share) for share in _DIFFERENCES]
    least, *larger = [
        (in_percent(share), count or f"over {MOST_LAUNCHES}")
        for share, count in zip(_DIFFERENCES, needed, strict=True)
    ]
    others = "".join(f"; of {share}, {count}" for share, count in larger)
    launches = "launch" if least[1] == 1 else "launches"
    low_words, high_words = in_percent(low, digits=1), in_percent(high, digits=1)
    return (
        f"Noise{where}: samples/s of one point differ by {in_percent(sigma, digits=1)} between "
        f"launches (standard deviation, {low_words} to {high_words}). To show a difference of "
        f"{least[0]}, each point needs {least[1]} {launches}{others}."
    )


def _windows(trials: pd.DataFrame, points: pd.DataFrame) -> str:
    """State the steps and seconds that the intervals within one launch speak of."""
    windows = trials[["measured_steps", "window_s"]].dropna()
    if windows.empty:
        return ""
    steps = _span(format_integers(_ends(windows["measured_steps"])))
    seconds = _span([format_number(end, digits=3) for end in _ends(windows["window_s"])])
    slower = ""
    if points["launches"].min() == 1:
        slower = "; with one launch it does not cover slower changes"
    return (
        f"Each trial was timed for {steps} steps ({seconds} s). ± is half of a 95 % interval"
        f"{slower}."
    )


def _ends(column: pd.Series[Any]) -> pd.Series[Any]:
    return column.sort_values().iloc[[0, -1]]


def _span(ends: Sequence[str]) -> str:
    """Join two ends, or give one where they are equal."""
    return " to ".join(dict.fromkeys(ends))


def _implausible_doubt(trials: pd.DataFrame, varying: Sequence[str]) -> str:
    """Name the numbers that can't all be true, for the first trials that have such numbers."""
    implausible = trials[trials["implausible"].notna()]
    if implausible.empty:
        return ""
    shown = implausible.head(_IMPLAUSIBLE_SHOWN)
    lines = [f"  {trial_label(row, varying)}: {row['implausible']}" for _, row in shown.iterrows()]
    hidden = len(implausible) - len(shown)
    if hidden:
        lines.append(f"  {count_of(hidden, 'more trial')}: the column implausible has them")
    count = count_of(len(implausible), "trial")
    first = f"Implausible: numbers of {count} can't all be true."
    return "\n".join([first, *lines])


def _not_used_doubt(frame: pd.DataFrame) -> str:
    """Name imported rows whose numbers can't all be true: they are not used."""
    is_imported = frame["harness"] == IMPORTED
    rows = frame[is_imported & (frame["status"] != "ok") & frame["implausible"].notna()]
    if rows.empty:
        return ""
    shown = rows.head(_IMPLAUSIBLE_SHOWN)
    lines = [
        f"  {place}: {words}"
        for place, words in zip(shown["imported_from"], shown["implausible"], strict=True)
    ]
    if hidden := len(rows) - len(shown):
        lines.append(f"  {count_of(hidden, 'more row')}: the column implausible has them")
    first = f"Not used: {count_of(len(rows), 'imported row')} with numbers that can't all be true."
    return "\n".join([first, *lines])


def _joined_doubt(trials: pd.DataFrame) -> str:
    """Say that imported rows count as measured in the environment of measured ones."""
    imported = trials[trials["harness"] == IMPORTED]
    measured = trials[trials["harness"] != IMPORTED]
    if not set(imported["env_id"]) & set(measured["env_id"]):
        return ""
    return (
        f"{count_of(len(imported), 'imported row')} count as measured in env_id "
        f"{imported['env_id'].iloc[0]}, by --with-imported: whether they are of such a machine is "
        "not known."
    )


def _failed_canary_doubt(frame: pd.DataFrame) -> str:
    """Say why canaries that ran did not end `ok`: for each status, by the first of them."""
    ran = frame[frame["role"].isin(["canary"]) & (frame["status"] != "cancelled")]
    failed = ran[ran["status"] != "ok"]
    if failed.empty:
        return ""
    lines = [
        f"Canary: {len(failed)} of {len(ran)} did not end ok, so less is known of whether the "
        "machine drifted."
    ]
    for status, rows in failed.groupby("status"):
        reason, log = rows[["reason", "log"]].astype("object").fillna("").iloc[0]
        lines.append(
            f"  {len(rows)} {status}: {reason or 'no reason stored'}"
            + (f" (log: {log})" if log else "")
        )
    return "\n".join(lines)


def _environment_doubt(trials: pd.DataFrame) -> str:
    """Name the columns that have one value in each environment, but not the same in all."""
    groups = trials.groupby("env_id", dropna=False)
    if groups.ngroups < 2:
        return ""
    note = f"Measured in {groups.ngroups} environments (env_id): never compared with each other. "
    constant = [name for name in _MACHINE_COLUMNS if groups[name].nunique(dropna=False).max() == 1]
    differing = [name for name in constant if trials[name].nunique(dropna=False) > 1]
    if not differing:
        return note + "What differs is in the columns machine and threads of the table of ranks."
    values = {
        name: "; ".join(
            f"{env_id}: {value}"
            for env_id, value in groups[name].first().astype("object").fillna("unknown").items()
        )
        for name in differing
    }
    listed = ", ".join(f"{name} ({value})" for name, value in values.items())
    return f"{note}They differ in {listed}."


def conditions_on(
    points: pd.DataFrame, where: str, *, minimize: Sequence[str], maximize: Sequence[str]
) -> list[str]:
    """State the objectives and the condition of frontiers, if they are not the default.

    The sentences count the points that are left out, and the points for which a value is unknown.
    """
    sentences = []
    if (*minimize, *maximize) != (*MINIMIZED, *MAXIMIZED):
        parts = [f"{name} small" for name in minimize] + [f"{name} large" for name in maximize]
        missing = int((points["standing"].isna() & points["meets"].fillna(value=False)).sum())
        unknown = ""
        if missing:
            unknown = (
                f" Not all of these were measured of {count_of(missing, 'point')}: on no frontier."
            )
        sentences.append(
            f"Frontiers are of {', '.join(parts)}; the plot shows step time and "
            f"throughput.{unknown}"
        )
    if where and len(points):
        unmet = int((~points["meets"].fillna(value=True)).sum())
        unknown_count = int(points["meets"].isna().sum())
        counts = [
            f"{count_of(unmet, 'point')} left out" if unmet else "none left out",
            f"of {count_of(unknown_count, 'point')} it is not known, neither in nor out"
            if unknown_count
            else "",
        ]
        sentences.append(
            f"Only points where {where}: {', '.join(filter(None, counts))}; trials are counted of "
            "all."
        )
    return sentences
