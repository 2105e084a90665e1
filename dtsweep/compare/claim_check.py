"""Check of a claim: the sweep of its point, and the verdict on what was measured."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dtsweep.compare.claim import FORMAT, TESTED, Claim
from dtsweep.compare.regressions import RUN_SIGMA, regressions
from dtsweep.compare.runs import machine_changes, software_changes
from dtsweep.errors import SweepError, one_line, quoted
from dtsweep.escape import changed_texts
from dtsweep.inference.verdicts import Verdict
from dtsweep.report.records import records_of
from dtsweep.report.verdict_words import LONG_REASON_WORDS
from dtsweep.sweep.axes import narrow
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.point_axes import AXES, DEFAULTS
from dtsweep.sweep.settings import Measure, Resources, Sweep, of_one_launch
from dtsweep.sweep.values import OF_LOOPS, is_own_loop
from dtsweep.text import percent, percent_up
from dtsweep.workloads import WORKLOADS, Script

if TYPE_CHECKING:
    import pandas as pd

HOLDS, DIFFERS, UNTOLD = "holds", "does_not_hold", "cannot_tell"
"""Verdicts: all intervals within the zone; one outside of it; neither."""

_MOST_BYTES = 1 << 20

_LEFT_OUT = re.compile(r"\[hidden\]|\[secret\]|hidden:[0-9a-f]{4}")
"""Marks of what a claim does not give away."""

_JSON_FIELDS = ("overrides", "arguments", "names", "samples_per_step")
"""Fields of workloads that results have as JSON."""

_EXPLAINING = [
    "backend",
    "network",
    "topology",
    "nccl",
    "gpu",
    "hosts",
    "device",
    "power_limit_w",
    "sm_clock_hz",
    "moved_bytes_per_s",
    "matmul_flops_per_s",
    "cpus_per_worker",
    "threads",
    "cpus",
    "cores",
    "smt",
    "governor",
    "process",
    "variables",
    "environment",
    "torch",
]
"""Facts that may differ; the first explains most."""

_SAME_RATE = 1.1
"""Ratio up to which two rates of devices count as equal."""


def read_claim(path: str, source: str | None) -> tuple[Claim, Sweep]:
    """Read a claim, and make the sweep of its point.

    Args:
        path: of the claim.
        source: a sweep file, or the script of a claimed script; None for our own workloads.

    Returns:
        The claim, its texts in single lines; and a plain grid of one point, launched once.

    Raises:
        SweepError: it is not a claim, its workload needs a file, or the file lacks such a point.
    """
    try:
        with Path(path).open("rb") as file:
            claim: Any = changed_texts(json.loads(file.read(_MOST_BYTES)), one_line)
        if claim["dtsweep_claim"] != FORMAT:
            raise SweepError(f"{quoted(path)} has another format; use the dtsweep that made it")
        figures = [value for launch in claim["launches"] for value in launch.values()]
        if any(not 0 < value < math.inf for value in figures if value is not None):
            raise ValueError("figures of launches are positive and finite")
        # What can be compared with itself can be compared with others.
        judge(claim, {**claim, "attempts": []}, zone=1.0)
        return claim, _sweep_of(claim, source)
    except OSError as error:
        raise SweepError(f"{quoted(error.filename)} can't be read: {error.strerror}") from None
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise SweepError(
            f"{quoted(path)} is not a claim ({type(error).__name__}: {error}); make one: "
            "dtsweep claim RESULTS"
        ) from None


def _sweep_of(claim: Claim, source: str | None) -> Sweep:
    settings = claim["settings"]
    is_script = source is not None and settings["workload"] == "Script"
    if is_script:
        is_script = b"Sweep(" not in Path(str(source)).read_bytes()
    if source is not None and not is_script:
        sweep, _ = read_sweep(source)
    else:
        names = ("cpus_per_worker", "gpus_per_worker")
        resources = Resources(**{name: claim["machines"][0].get(name) for name in names})
        sweep = Sweep(workload=_workload(claim, source), axes={}, resources=resources)
    is_own = is_own_loop(sweep.workload)
    asked = {*sweep.axes, *getattr(sweep.workload, "names", ())}
    if "global_batch" in asked and not is_own:
        # It follows from the others.
        asked = asked - {"global_batch"} | {"accumulation"}
    settable = ("workers", "placement") if is_own else AXES
    asked |= {name for name in settable if settings.get(name, DEFAULTS[name]) != DEFAULTS[name]}
    variables = {f"env.{name}": value for name, value in claim["machines"][0]["variables"].items()}
    values = {
        name: [value]
        for name, value in (settings | variables).items()
        if (name in asked or name.startswith(OF_LOOPS)) and not _LEFT_OUT.search(str(value))
    }
    measure = Measure(**{**claim["measure"], "repeats": 1})
    return replace(of_one_launch(narrow(sweep, values)), measure=measure)


def _workload(claim: Claim, script: str | None) -> Any:
    """Make one of our own workloads, or that of a script, with the claimed fields."""
    settings = claim["settings"]
    name = settings["workload"]
    kinds = WORKLOADS | ({"Script": Script} if script else {})
    fields = [key for key in settings if key.startswith("workload.")]
    unknown = [key for key in fields if _LEFT_OUT.search(str(settings[key]))]
    # A claim of someone else sets no variables of processes here.
    unknown += [f"env.{key}" for key in claim["machines"][0]["variables"]]
    if name not in kinds or unknown:
        file = "sweep file: dtsweep claim check CLAIM.json SWEEP.py"
        if name == "Script":
            file = "script: dtsweep claim check CLAIM.json SCRIPT.py"
        raise SweepError(
            f"the claim alone can't set {', '.join(unknown) or f'the workload {name}'}; give its "
            f"{file}"
        )
    values = {key.removeprefix("workload."): settings[key] for key in fields}
    values |= {key: json.loads(values[key]) for key in _JSON_FIELDS if key in values}
    if script:
        values["path"] = script
    return kinds[name](**values)


def judge(claimed: Claim, measured: Claim, *, zone: float) -> dict[str, Any]:
    """Compare a claim with what was measured.

    Args:
        claimed: by someone, somewhere.
        measured: the claim of the results here.
        zone: indifference zone, as a share.

    Returns:
        JSON values: `verdict` and `words`; `is_open`, if more launches may decide; `rows` of
        `dtsweep.compare.regressions`; `differences`, a line each, the one that explains most first.

    Raises:
        SweepError: both have the same launches.
    """
    if {*claimed["attempts"]} & {*measured["attempts"]}:
        raise SweepError("these results are those of the claim; measure into other --results")
    drift = max(one["noise"]["drift"] or 0.0 for one in (claimed, measured))
    sides = map(_launches, (claimed, measured))
    rows = records_of(
        regressions(*sides, of=TESTED, threshold=zone, drift=drift, run_sigma=RUN_SIGMA)
    )
    verdict, reason = UNTOLD, f"an interval reaches beyond {percent(zone)}"
    if drift and min(len(one["launches"]) for one in (claimed, measured)) == 1:
        reason += f" (the machine drifted by {percent_up(drift)})"
    others = _other_job(claimed, measured)
    untested = [row["verdict_reason"] for row in rows if row["verdict"] == Verdict.UNKNOWN]
    if others:
        reason = f"another job was measured: {', '.join(others)}"
    elif any(_is_far(row, zone) for row in rows):
        verdict = DIFFERS
    elif untested:
        reason = LONG_REASON_WORDS[untested[0]]
    elif all(1 / (1 + zone) <= row["ratio_low"] <= row["ratio_high"] <= 1 + zone for row in rows):
        verdict = HOLDS
    openings = {
        HOLDS: f"Holds within {percent(zone)}",
        DIFFERS: "Does not hold",
        UNTOLD: f"Can't be told, because {reason}. Measured",
    }
    return {
        "verdict": verdict,
        "words": f"{openings[verdict]}: {'; '.join(map(_words_on, rows))}.",
        "is_open": verdict == UNTOLD and not others,
        "rows": rows,
        "differences": _differences(claimed, measured),
    }


def _launches(claim: Claim) -> pd.DataFrame:
    """Launches of a claim as rows of one point: machines are facts that may differ."""
    import pandas as pd

    frame = pd.DataFrame(claim["launches"]).astype("float64")
    names, caution = [str(number) for number in frame.index], " ".join(claim["cautions"])
    return frame.assign(point_id="claimed", env_id="any", hosts=1, launch=names, caution=caution)


def _is_far(row: Mapping[str, Any], zone: float) -> bool:
    """True for a figure that differs significantly, with its whole interval outside of the zone."""
    if row["verdict"] not in (Verdict.SLOWER, Verdict.FASTER):
        return False
    return bool(row["ratio_low"] > 1 + zone or row["ratio_high"] < 1 / (1 + zone))


def _words_on(row: Mapping[str, Any]) -> str:
    if row["ratio_low"] is None:
        return f"{row['of']} is not known well enough"
    return (
        f"{row['of']} is {row['ratio']:.3f} times the claimed one ({row['ratio_low']:.3f}–"
        f"{row['ratio_high']:.3f}; {row['launches_base']} and {row['launches_new']} launches)"
    )


def _other_job(claimed: Claim, measured: Claim) -> list[str]:
    """Say why the rate of what was measured is no check of a claim."""
    then, now = (one["settings"] | {"model": one["model_digest"]} for one in (claimed, measured))
    others = [
        f"{name} {now.get(name)}, claimed {then.get(name)}"
        for name in {**then, **now}
        if then.get(name) != now.get(name)
        # A script may have another name; its digest is one of the sources.
        and not (name == "workload.path" and then["workload"] == "Script")
        and not _LEFT_OUT.search(f"{then.get(name)} {now.get(name)}")
    ]
    # A module that one side alone has loaded is none of the workload's.
    digests = measured["sources"]
    return others + [
        f"{name} differs"
        for name, digest in claimed["sources"].items()
        if digests.get(name, digest) != digest
    ]


def _differences(claimed: Claim, measured: Claim) -> list[str]:
    """Name the facts that differ, a line each, the one that explains most first."""
    kinds = claimed["machines"], measured["machines"]
    lines = [*machine_changes(*kinds), *software_changes(*kinds)]
    for name, then in claimed["rates"].items():
        now = measured["rates"].get(name)
        if then and now and max(then, now) > _SAME_RATE * min(then, now):
            lines.append(f"{name} {then:.3g} → {now:.3g}")
    return sorted(lines, key=_place)


def _place(line: str) -> int:
    """Place of a difference among those that explain; of others the last one."""
    name = re.split("[. ]", line)[0]
    if name in _EXPLAINING:
        return _EXPLAINING.index(name)
    return len(_EXPLAINING)
