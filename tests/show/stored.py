"""Results of made-up sweeps as a run stores them, for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from dtsweep.analysis.load import trials_in
from dtsweep.report.of_results import content_in
from dtsweep.results.store import Results
from dtsweep.show.page import page_of_content
from tests.frames import trials
from tests.hostile import write_rows
from tests.report.study import MODES, measured

FAILED = {
    "status": "oom_device",
    "reason": "OutOfMemoryError: 2 GiB",
    "log": "logs/s1/0.log",
}
SKIPPED = {"status": "skipped", "reason": "over 512 samples a step"}


def page_of(results: Results, *, with_hosts: bool = False) -> str:
    """Make the page of some results, as `dtsweep report --html` does."""
    store = results.snapshot()
    content = content_in(store, trials_in(store, canaries=True), with_hosts=with_hosts)
    return page_of_content(content, place=str(store))


def store_study(folder: Path) -> Path:
    """Write 64 trials, two launches of 32 points, a failed one and a skipped one."""
    return store(folder, [*_launches(shapes=(4, 8), rates=(0.01,), launches=2)])


def store_campaign(folder: Path) -> Path:
    """Write 1,000 measured trials, two launches of 500 points."""
    rates = tuple(0.01 * (1 + number / 100) for number in range(21))
    return store(folder, [*_launches(shapes=(4, 8, 16), rates=rates, launches=2)][:1000])


def store(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write trials with their ranks, and a failed and a skipped one."""
    names = [{"attempt_id": f"attempt{n}", "trial_id": f"trial{n}"} for n in range(len(rows))]
    frame = trials(
        *({**row, **name} for row, name in zip(rows, names, strict=True)),
        FAILED | {"attempt_id": "failed", "point_id": "failed"},
        SKIPPED | {"attempt_id": "skipped", "point_id": "skipped"},
        **{"exchange_share": 0.2, "exchange_share_low": 0.19, "exchange_share_high": 0.21},
        dtsweep_version="0.1",
        torch_version="2.9",
    )
    kept = [row | {"row_number": number} for number, row in enumerate(plain(frame))]
    ranks = [name | {"rank": 0, "node": "node-7", "machine": "{}"} for name in names]
    write_rows(folder, "ranks", ranks)
    write_rows(folder, "trials", kept, workload_types={"layers": int})
    return folder


def _launches(
    *, shapes: Sequence[int], rates: Sequence[float], launches: int
) -> list[dict[str, Any]]:
    """Rows of all modes, worlds, shapes and learning rates; launches differ by half a percent."""
    rows = []
    points = [
        (mode, workers, shape, accumulation, rate)
        for rate in rates
        for mode in MODES
        for workers in (1, 2)
        for shape in shapes
        for accumulation in (1, 2)
    ]
    for number, (mode, workers, shape, accumulation, rate) in enumerate(points):
        row = measured(mode, workers=workers, micro_batch=shape, accumulation=accumulation)
        row |= {"point_id": f"point{number}", "learning_rate": rate}
        for launch in range(1, launches + 1):
            factor = 1 + 0.005 * (-1) ** launch
            scaled = {
                name: value * factor
                for name, value in row.items()
                if name.startswith(("samples_per_s", "step_"))
            }
            rows.append(row | scaled | {"repeat": launch, "session": f"s{launch}"})
    return rows


def plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame as they are stored, with None for what is null."""
    return [
        {str(key): None if value != value else value for key, value in row.items()}  # noqa: PLR0124
        for row in frame.to_dict("records")
    ]
