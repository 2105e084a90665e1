"""What the benchmarks share: runs that have to succeed, and the parts of an entry of docs/log/."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

import dtsweep
from dtsweep import Measure, Sweep
from dtsweep.hardware.fingerprint import cpu
from dtsweep.provenance.versions import versions

if TYPE_CHECKING:
    import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
"""The repository, from which the benchmarks run."""


def heading(question: str) -> str:
    """Start an entry: date and question, what ran, where."""
    names = {f"{package}_version": package for package in ("torch", "ray", "python")}
    software = ", ".join(f"{name} {versions()[column]}" for column, name in names.items())
    command = " ".join(["python -m", f"benchmarks.{Path(sys.argv[0]).stem}", *sys.argv[1:]])
    return "\n".join(
        [
            f"## {datetime.now(UTC):%Y-%m-%d}: {question}",
            "",
            f"- **What ran**: `{command}`, {_commit()}",
            f"- **Where**: {cpu()['cpu']}, {os.cpu_count()} cores, {_devices()}; {software}",
            "- **Numbers**:",
        ]
    )


def settings(measure: Measure) -> str:
    """Say with which settings of `Measure` the figures below were made.

    >>> settings(Measure(min_steps=5))
    'Settings: `Measure(min_steps=5)`, all else as by default.'
    """
    usual = asdict(Measure())
    given = {name: value for name, value in asdict(measure).items() if value != usual[name]}
    words = ", ".join(f"{name}={value!r}" for name, value in given.items())
    return f"Settings: `Measure({words})`, all else as by default."


def table(headers: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Make a Markdown table."""
    lines = [headers, ["---"] * len(headers), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def quartiles(values: Sequence[float] | NDArray[np.float64], *, form: str) -> str:
    """Give the median, and the lower and upper quartile behind it.

    >>> quartiles([1, 2, 3, 4, 5], form=".0f")
    '3 (2–4)'
    """
    low, middle, high = np.quantile(values, [0.25, 0.5, 0.75])
    return f"{middle:{form}} ({low:{form}}–{high:{form}})"


def torchrun(*arguments: str, workers: int, before: Sequence[str] = ()) -> str:
    """Run a module under torchrun, from the repository; return its stdout.

    Args:
        arguments: the module and its own.
        workers: how many ranks.
        before: words of a command that starts it.

    Raises:
        subprocess.CalledProcessError: it failed; its stderr was shown.
    """
    command = [
        *before,
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        "--nproc-per-node",
        str(workers),
    ]
    ended = subprocess.run(
        [*command, "-m", *arguments],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=1800,
    )
    return ended.stdout


def run(sweep: Sweep, results: str) -> pd.DataFrame:
    """Run a sweep on a private Ray; return one row per trial, the oldest first.

    Raises:
        SystemExit: a trial that was not skipped ended otherwise than `ok`.
    """
    frame = dtsweep.run(sweep, results, address="local")
    if set(frame["status"]) - {"ok", "skipped"}:
        ends = frame[["status", "reason"]].drop_duplicates().to_dict("records")
        raise SystemExit(f"not all trials are ok: {ends}")
    return frame


def _commit() -> str:
    def git(*arguments: str) -> str:
        return subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.strip()

    changed = (
        " with uncommitted changes"
        if git("status", "--porcelain", "--", "dtsweep", "benchmarks")
        else ""
    )
    return f"commit {git('rev-parse', '--short', 'HEAD')}{changed}"


def _devices() -> str:
    import torch

    count = torch.cuda.device_count()
    return f"{count} × {torch.cuda.get_device_name(0)}" if count else "no GPU"
