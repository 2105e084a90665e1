"""The README and docs/ as tests see them: blocks, tables, and a folder to run commands in."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from dtsweep.metrics.rows import task_row
from dtsweep.results.store import Results
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.task import task_of
from dtsweep.sweep.values import column_types

ROOT = Path(__file__).parents[1]
DOCS = """
    README sweep-files own-loops commands sync-modes compression measuring estimation results plots
    monitoring clusters doctor agents
"""
PAGES = [ROOT / "README.md", *(ROOT / "docs" / f"{name}.md" for name in DOCS.split())]


class Block(NamedTuple):
    """A fenced block of a page."""

    page: str
    line: int
    language: str
    text: str

    def __str__(self) -> str:
        """Where it stands."""
        return f"{self.page}:{self.line}"


def blocks(language: str) -> list[Block]:
    """All blocks of a language, in the order of the pages."""
    return [block for page in PAGES for block in _blocks(page) if block.language == language]


def _blocks(page: Path) -> Iterator[Block]:
    text = page.read_text("utf-8")
    for found in re.finditer(r"^```(\w+)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield Block(page.name, text.count("\n", 0, found.start()) + 1, found[1], found[2])


def commands() -> list[str]:
    """All command lines of the pages."""
    return [line for block in blocks("bash") for line in block.text.splitlines()]


def tables(page: str, *, first: str) -> list[dict[str, str]]:
    """Rows of the tables of a page whose first column has this header; backquotes are taken off."""
    text = "\n".join(path.read_text("utf-8") for path in PAGES if path.name == page)
    rows: list[dict[str, str]] = []
    header: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split(" | ")]
        if not line.startswith("|"):
            header = []
        elif not header:
            header = cells
        elif not line.startswith("|---") and header[0] == first:
            rows.append(dict(zip(header, cells, strict=True)))
    return rows


def make_study(folder: Path) -> None:
    """Put the example sweeps into a folder, with results of batchsize.py as a run leaves them."""
    shutil.copytree(
        ROOT / "sweeps", folder / "sweeps", ignore=shutil.ignore_patterns("__pycache__")
    )
    make_results(folder, "batchsize")


def make_results(folder: Path, name: str) -> None:
    """Put results of another run of batchsize.py next to the sweeps of `make_study`."""
    sweep, found = read_sweep(folder / "sweeps" / "batchsize.py")
    results, start = Results(folder / "results" / name), datetime(2026, 1, 1, tzinfo=UTC)
    points = [candidate.point for candidate in found if candidate.reason is None]
    for number, point in enumerate(points):
        task = task_of(sweep, point)
        rate = 100.0 * point.workers * point.micro_batch**0.5
        step_s = point.global_batch / rate
        measured: dict[str, Any] = dict.fromkeys(("step_mean_s", "step_p50_s", "latency_s"), step_s)
        measured |= {"samples_per_s": rate, "env_id": "a1b2", "flags": []}
        where: dict[str, Any] = {"status": "ok", "hosts": 1, "devices": "CPU"}
        where |= {"started_at": start + timedelta(minutes=number)}
        ranks = np.repeat(np.arange(point.workers), 4)
        steps: dict[str, Any] = {"rank": ranks, "step": ranks * 0, "warmup": ranks > 0}
        results.commit(
            task_row(sweep, point, task) | measured | where,
            ranks=[{"rank": rank, "node": "a"} for rank in range(point.workers)],
            steps=steps | {"step_s": step_s + ranks * 0.0},
            workload_types=column_types(sweep.workload),
        )
    results.compact()
