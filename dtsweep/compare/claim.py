"""Claim of a point: its numbers, and what others need to measure it again, as JSON values.

A claim is published, so it has no host, no user, no path and no secret.
"""

from __future__ import annotations

import json
import os
import re
import socket
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.analysis import launch_sigma, recommend
from dtsweep.analysis.canaries import significant_drift
from dtsweep.analysis.naming import find_point
from dtsweep.analysis.settings import axis_name, settings_of_rows
from dtsweep.compare.runs import Run, load_run
from dtsweep.errors import SweepError
from dtsweep.escape import changed_texts
from dtsweep.inference.spread import POINT, of_environment
from dtsweep.report.code import point_code, shell_command
from dtsweep.report.labels import trial_label
from dtsweep.report.records import records_of
from dtsweep.results.frames import frame_of
from dtsweep.results.schema import IMPORTED
from dtsweep.results.statuses import UNSOUND
from dtsweep.results.store import Results
from dtsweep.secret import hidden, without_homes, without_secrets
from dtsweep.sweep.values import python_value
from dtsweep.text import count_of, format_rate

if TYPE_CHECKING:
    import pandas as pd

Claim = Mapping[str, Any]
"""JSON values as docs/schemas/claim.json describes them."""

FORMAT = 1

TESTED = ("samples_per_s", "latency_s")
"""Figures that a check compares."""

_FIGURES = (*TESTED, "step_mean_s", "step_p99_s")

_ENDS = {"value": "", "low": "_low", "high": "_high"}

_TOP = ("dtsweep_version", "model_digest", "parameters", "git_commit", "memory_peak_bytes")

_MACHINE = ("hosts", "harness", "backend", "cpus_per_worker", "gpus_per_worker")

_RATES = ("sm_clock_hz", "power_limit_w", "matmul_flops_per_s", "moved_bytes_per_s")

_PLACE = re.compile(
    r"""\w+://[^\s'"]+|(?<![\w.])(?:~|\.\.|[A-Za-z]:)?[/\\][^\s'"]+"""
    r"""|(?<![\w.])\d{1,3}(?:\.\d{1,3}){3}(?![\w.])"""
    r"""|(?<![\w:])[0-9a-fA-F]{1,4}(?::[0-9a-fA-F]{0,4}){3,7}(?![\w:])"""
    r"""|[\w.-]+@[\w-][\w.-]*|(?:[\w-]+\.)+[A-Za-z][\w-]*:\d+"""
)
"""URIs, paths that begin above the folder, and addresses of hosts and of people."""

_OWN_WORDS = re.compile(r"harness|backend|device|cpu|cpu_capability|parallel|blas|\w+_version")
"""Facts of a machine with words of libraries and makers, which may be names of users, too."""


def make_claim(store: Results, point: str | None) -> tuple[Claim, str]:
    """Claim the numbers of a point, as one machine measured them.

    Args:
        store: the results.
        point: as `find_point` takes it; None is the recommended one.

    Returns:
        The claim, and a line of Markdown about it.

    Raises:
        SweepError: there is no such point, there are several, or its numbers can't be true.
    """
    run = load_run(store)
    row = _point_of(run, point)
    cautions = row["caution"].split()
    unsound = ", ".join(flag for flag in cautions if flag in UNSOUND)
    if unsound or row["harness"] == IMPORTED:
        reason = unsound or "it was imported, not measured"
        raise SweepError(f"no claim of {row['point_id']}: {reason}; name another --point")
    is_same = run.launches[list(POINT)].eq(row[list(POINT)]).fillna(value=False).all(axis=1)
    launches = run.launches[is_same]
    newest = records_of(launches.tail(1))[0] | records_of(row.to_frame().T)[0]
    ranks = frame_of(store.table("ranks", attempts=launches["attempt_id"].tolist()))
    rates = ranks[list(_RATES)].astype("float64").mean().to_frame().T
    machine = {name: newest[name] for name in _MACHINE if newest[name] is not None}
    machine["variables"] = newest["environment"] or {}
    sources = json.loads(newest["sources"] or "{}")
    spread = launch_sigma(run.study).reindex([row["env_id"]])
    claim = {
        "dtsweep_claim": FORMAT,
        "made": f"{datetime.now(UTC):%Y-%m-%d}",
        **{name: newest[name] for name in _TOP},
        "settings": _settings(row),
        "code": shell_command(row) or point_code(row),
        # Versions are facts of the machine.
        "sources": {name: sources[name] for name in sources if not name.startswith("package ")},
        "measure": json.loads(newest["measure"]),
        "figures": {
            name: {end: newest[f"{name}{of}"] for end, of in _ENDS.items()} for name in _FIGURES
        },
        "interval": newest["interval"],
        "launches": records_of(
            launches[[f"{name}{of}" for name in TESTED for of in ("", "_error")]]
        ),
        "attempts": launches["attempt_id"].tolist(),
        "noise": {
            **records_of(spread[["launch_sigma", "spread", "degrees"]])[0],
            "drift": significant_drift(of_environment(run.study.canaries, row["env_id"])),
        },
        "cautions": cautions,
        "rates": records_of(rates)[0],
        "machines": [{**kind, **machine} for kind in run.machines.get(row["env_id"], [{}])],
    }
    values = json.loads(json.dumps(claim, default=python_value))
    values["line"] = _line_on(row, values["settings"])
    claim = _public(values, hosts=ranks["node"].dropna().unique())
    return claim, claim.pop("line")


def _point_of(run: Run, point: str | None) -> pd.Series[Any]:
    """Row of the point that is meant; of its newest machine."""
    points = run.study.points
    if points.empty:
        ends = run.trials["status"] + ": " + run.trials["reason"].fillna("no reason stored")
        raise SweepError(f"no launch ended ok: {'; '.join(ends.tail(1))}")
    if point is not None:
        return points[points["point_id"] == find_point(points, point)].iloc[-1]
    recommended = recommend(run.study)
    if len(recommended) > 1:
        raise SweepError(
            f"these results recommend {len(recommended)} points, one for each model and machine; "
            "name one: --point POINT"
        )
    return recommended[0].point


def _settings(row: pd.Series[Any]) -> dict[str, Any]:
    """Settings of a point by the names of axes; the variables of workers are facts of machines."""
    (settings,) = settings_of_rows(row.drop(["hosts", "environment"]).to_frame().T)
    named = {axis_name(name): value for name, value in settings.items() if value is not None}
    texts = {name: value for name, value in named.items() if isinstance(value, str)}
    # Null where steps are each worker's own.
    (batch,) = records_of(row[["global_batch"]].to_frame().T)
    return named | hidden(texts) | batch


def _public(claim: Any, *, hosts: Iterable[str]) -> Any:
    """Leave secrets, places, hosts and users out of all texts."""
    users = [os.environ.get("USER", ""), Path("~").expanduser().name]
    names = [*hosts, socket.gethostname(), *users]
    words = {word for name in names for word in (name, name.partition(".")[0]) if len(word) > 1}
    longest_first = sorted(map(re.escape, words), key=len, reverse=True)
    named = rf"(?i)(?<![a-z0-9])(?:{'|'.join(longest_first)})(?![a-z0-9])"

    def hide(text: str) -> str:
        return re.sub(named, "[hidden]", hide_places(text))

    def hide_places(text: str) -> str:
        return _PLACE.sub("[hidden]", without_homes(without_secrets(text)))

    def public(name: str, value: Any) -> Any:
        if name in ("sources", "variables"):
            return changed_texts(value, hide)
        if isinstance(value, dict):
            return {hide_places(key): public(key, inner) for key, inner in value.items()}
        if isinstance(value, list):
            return [public(name, inner) for inner in value]
        return changed_texts(value, hide_places if _OWN_WORDS.fullmatch(name) else hide)

    return public("", claim)


def _line_on(row: pd.Series[Any], settings: Mapping[str, Any]) -> str:
    """Write a claim in a line, as code in Markdown."""
    import pandas as pd

    rate = format_rate(*(row[f"samples_per_s{end}"] for end in _ENDS.values()))
    point = trial_label(row, ["workload", "workers", "micro_batch", "accumulation"])
    given = [f"{name}={value}" for name, value in settings.items() if name.startswith("args.")]
    launches = count_of(row["launches"], "launch")
    if pd.notna(row["samples_per_s_low"]):
        launches += ", 95 %"
    words = [
        f"{rate} samples/s",
        " ".join([point, *given]),
        row["devices"],
        launches,
        "claim.json",
    ]
    return f"`{' · '.join(words)}`"
