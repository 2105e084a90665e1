"""Results of made-up sweeps as a run stores them, with steps, for pages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from dtsweep.analysis.load import trials_in
from dtsweep.report.of_results import content_in
from dtsweep.results.parquet import arrow_table, encode
from dtsweep.results.store import Results
from dtsweep.show.page import page_of_content
from tests.frames import trials
from tests.hostile import write_rows
from tests.report.study import MODES, measured

STEPS = 240
"""Steps of a trial, 10 of them warm-up."""

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
    return page_of_content(content, store)


def store_study(folder: Path) -> Path:
    """Write 64 trials, two launches of 32 points, a failed one and a skipped one."""
    return store(folder, [*_launches(shapes=(4, 8), rates=(0.01,), launches=2)])


def store_campaign(folder: Path) -> Path:
    """Write 1,000 measured trials, two launches of 500 points."""
    rates = tuple(0.01 * (1 + number / 100) for number in range(21))
    return store(folder, [*_launches(shapes=(4, 8, 16), rates=rates, launches=2)][:1000])


def store(folder: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write trials with their ranks and steps, and a failed and a skipped one."""
    names = [{"attempt_id": f"attempt{n}", "trial_id": f"trial{n}"} for n in range(len(rows))]
    frame = trials(
        *({**row, **name} for row, name in zip(rows, names, strict=True)),
        FAILED | {"attempt_id": "failed", "point_id": "failed"},
        SKIPPED | {"attempt_id": "skipped", "point_id": "skipped"},
        dtsweep_version="0.1",
        torch_version="2.9",
    )
    kept = [row | {"row_number": number} for number, row in enumerate(plain(frame))]
    _write_steps(folder, names, [row["step_p50_s"] for row in rows])
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


def _write_steps(
    folder: Path, names: Sequence[Mapping[str, str]], seconds: Sequence[float]
) -> None:
    step = np.arange(STEPS)
    rng = np.random.default_rng(0)
    times = np.outer(seconds, 1 + 0.5 * (step < 10)) * rng.normal(1, 0.02, (len(names), STEPS))
    columns = {
        "attempt_id": np.repeat([name["attempt_id"] for name in names], STEPS),
        "trial_id": np.repeat([name["trial_id"] for name in names], STEPS),
        "rank": np.zeros(times.size, np.int64),
        "step": np.tile(step, len(names)),
        "warmup": np.tile(step < 10, len(names)),
        "part": np.tile(np.where(step < 10, "warmup", "window"), len(names)),
        "start_s": (np.cumsum(times, axis=1) - times).ravel(),
        "step_s": times.ravel(),
    }
    table = arrow_table("steps", columns)
    name, data = encode(table, stem=f"part-{len(names)}-steps")
    (folder / "steps").mkdir(parents=True, exist_ok=True)
    (folder / "steps" / name).write_bytes(data)


def plain(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a frame as they are stored, with None for what is null."""
    return [
        {str(key): None if value != value else value for key, value in row.items()}  # noqa: PLR0124
        for row in frame.to_dict("records")
    ]
