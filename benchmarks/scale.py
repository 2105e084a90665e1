"""Cost of ten thousand trials: to plan, store, resume, merge, look at, report, and run untrained.

Each part runs in a process of its own, whose wall time and peak of resident memory are given.
`resume` is a plan of trials that are all done, each in files of its own, as many kills would leave
them; `resume_merged` is the same after `compact`. The stored attempts are copies of a real one
under the names of the plan's trials. `run` goes through Ray Tune; its trials train next to nothing.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from benchmarks.log_entry import ROOT, heading, table
from dtsweep.metrics.rows import point_row
from dtsweep.plan.plan import make_plan
from dtsweep.provenance.sources import sources_of
from dtsweep.results.store import Results
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.values import column_types

PARTS = ("plan", "store", "resume", "compact", "resume_merged", "status", "report", "run")

SWEEP = """
from dtsweep import Measure, Resources, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(layers=1, width=32, sequence=16),
    axes={{"workers": [1], "learning_rate": [1e-3 + index * 1e-7 for index in range({points})]}},
    measure=Measure(
        repeats=1, half_width=None, warmup_steps=1, min_steps=5, min_seconds=0, canary=False
    ),
    resources=Resources(cpus_per_worker=1, gpus_per_worker=0),
)
"""
"""The sweep file of each part."""

LAUNCHER = """
import resource, subprocess, sys
subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=True)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""
"""Runs a command and prints its peak of resident memory.

A fork of this process would begin with this one's peak.
"""

POINTS_PER_TRIAL = 10
"""A plan is looked at with so many more points."""


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a part took."""

    part: str
    trials: int
    seconds: float
    peak_bytes: int | None
    files: str = ""


def main() -> None:
    """Run the parts and print an entry for docs/log/."""
    options = _options()
    folder = Path(
        tempfile.mkdtemp(prefix="dtsweep-scale-") if options.folder is None else options.folder
    )
    folder.mkdir(parents=True, exist_ok=True)
    costs = [PART_RUNS[part](folder, options.trials) for part in PARTS if part in options.only]
    rows = [
        [
            cost.part,
            f"{cost.trials:,}",
            f"{cost.seconds:.1f}",
            f"{cost.seconds / cost.trials * 1e3:.2f}",
            "" if cost.peak_bytes is None else f"{cost.peak_bytes / 2**20:.0f}",
            cost.files,
        ]
        for cost in costs
    ]
    headers = [
        "part",
        "trials",
        "s",
        "ms a trial",
        "peak of its process, MiB",
        "files: trials, ranks, steps",
    ]
    print(heading("What do ten thousand trials cost?"), table(headers, rows), sep="\n\n")


def _plan(folder: Path, trials: int) -> Cost:
    points = trials * POINTS_PER_TRIAL
    file = _sweep_file(folder / "many.py", points)
    return _command(
        "plan --json", points, ["plan", str(file), "--json", "--results", str(folder / "none")]
    )


def _store(folder: Path, trials: int) -> Cost:
    """Commit copies of a real attempt, one for each trial of the plan."""
    file, results = _sweep_file(folder / "all.py", trials), Results(folder / "all")
    sweep, found = read_sweep(file)
    made = make_plan(sweep, found, [])
    row, ranks, steps = _real_attempt(folder)
    types, sources = column_types(sweep.workload), sources_of(sweep.workload, file=sweep.file)
    began = time.perf_counter()
    for trial in made.to_run:
        own = {
            **row,
            **point_row(sweep, trial.point),
            "trial_id": trial.trial_id,
            "attempt_id": uuid.uuid4().hex,
        }
        own |= {
            "repeat": trial.repeat,
            "harness": "ray",
            "started_at": datetime.now(UTC),
            **sources.columns(own),
        }
        results.commit(own, ranks=ranks, steps=steps, workload_types=types)
    seconds = time.perf_counter() - began
    return Cost(
        part="store", trials=trials, seconds=seconds, peak_bytes=None, files=_files(folder / "all")
    )


def _real_attempt(folder: Path) -> tuple[dict[str, Any], list[dict[str, Any]], dict[str, Any]]:
    """What one real trial stores: its row, its ranks' and its steps."""
    file, where = _sweep_file(folder / "one.py", 1), folder / "one"
    _run(["run", str(file), "--in-process", "--results", str(where)])
    stored = Results(where)
    ids = ["attempt_id", "trial_id"]
    (row,) = stored.attempts()
    steps = stored.table("steps").drop_columns(ids)
    return (
        row,
        stored.table("ranks").drop_columns(ids).to_pylist(),
        {n: steps[n].to_pylist() for n in steps.column_names},
    )


def _resume(folder: Path, trials: int) -> Cost:
    return _command(
        "resume",
        trials,
        ["plan", str(folder / "all.py"), "--results", str(folder / "all")],
        folder / "all",
    )


def _resume_merged(folder: Path, trials: int) -> Cost:
    return replace(_resume(folder, trials), part="resume, merged")


def _compact(folder: Path, trials: int) -> Cost:
    code = f"from dtsweep.results.store import Results; Results({str(folder / 'all')!r}).compact()"
    return _measured("compact", trials, [sys.executable, "-c", code], folder / "all")


def _status(folder: Path, trials: int) -> Cost:
    return _command("status --json", trials, ["status", str(folder / "all"), "--json"])


def _report(folder: Path, trials: int) -> Cost:
    return _command("report --json", trials, ["report", str(folder / "all"), "--json"])


def _run_all(folder: Path, trials: int) -> Cost:
    file, where = _sweep_file(folder / "run.py", trials), folder / "run"
    return _command(
        "run", trials, ["run", str(file), "--results", str(where), "--address", "local"], where
    )


PART_RUNS: dict[str, Callable[[Path, int], Cost]] = dict(
    zip(
        PARTS,
        [_plan, _store, _resume, _compact, _resume_merged, _status, _report, _run_all],
        strict=True,
    )
)


def _sweep_file(path: Path, points: int) -> Path:
    path.write_text(SWEEP.format(points=points))
    return path


def _command(part: str, trials: int, arguments: Sequence[str], results: Path | None = None) -> Cost:
    return _measured(part, trials, [sys.executable, "-m", "dtsweep", *arguments], results)


def _measured(part: str, trials: int, command: Sequence[str], results: Path | None = None) -> Cost:
    began = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-c", LAUNCHER, *command], cwd=ROOT, stdout=subprocess.PIPE, check=True
    )
    seconds = time.perf_counter() - began
    files = "" if results is None else _files(results)
    return Cost(
        part=part, trials=trials, seconds=seconds, peak_bytes=int(ended.stdout) * 1024, files=files
    )


def _run(arguments: Sequence[str]) -> None:
    subprocess.run(
        [sys.executable, "-m", "dtsweep", *arguments], cwd=ROOT, check=True, capture_output=True
    )


def _files(results: Path) -> str:
    return ", ".join(
        str(len(list((results / name).glob("*.parquet")))) for name in ("trials", "ranks", "steps")
    )


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.scale", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--trials", type=int, default=10_000, help="how many (default 10000)")
    parser.add_argument(
        "--only",
        type=_parts,
        default=PARTS,
        metavar="PART,…",
        help=f"parts to run: {','.join(PARTS)}",
    )
    parser.add_argument(
        "--folder", help="where files go and stay, for parts that follow another; else a new one"
    )
    return parser.parse_args()


def _parts(text: str) -> tuple[str, ...]:
    parts = tuple(text.split(","))
    if unknown := sorted(set(parts) - set(PARTS)):
        raise argparse.ArgumentTypeError(
            f"no parts {', '.join(unknown)}; there are {', '.join(PARTS)}"
        )
    return parts


if __name__ == "__main__":
    main()
