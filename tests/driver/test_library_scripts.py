"""Scripts of the libraries that people train with, by `dtsweep script`, against their own clocks.

Each script notes the time after each of its steps itself: the same steps by another clock of the
same process, whatever else the machine does.
"""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
import pytest

from tests.conftest import Command
from tests.pages import ROOT

pytestmark = pytest.mark.ray

WORKERS, MICRO, ACCUMULATION = 2, 4, 2

BY_NAME = (
    *("--axis", f"micro_batch={MICRO}", "--axis", f"accumulation={ACCUMULATION}"),
    *("--name", "micro_batch=micro", "--name", "accumulation=accumulation"),
)
TITAN = (
    *("--axis", f"args.--training.local_batch_size={MICRO}"),
    *("--axis", f"args.--training.gradient_accumulation_steps={ACCUMULATION}"),
    *("--axis", "args.--parallelism.tensor_parallel_degree=1,2"),
    *("--name", "tensor_parallel=parallelism.tensor_parallel_degree"),
    *("--samples-per-step", "training.local_batch_size,training.gradient_accumulation_steps"),
)


class Case(NamedTuple):
    """A script, and what its rows have to say."""

    library: str
    options: tuple[str, ...]
    wrapper: str | None
    """What exchanges gradients; None if it is not torch."""
    points: tuple[str, ...] = ("1",)
    """Value of each point in its only other axis, which is part of the names of its times."""
    column: str = "accumulation"
    folder: str = "--times"
    """Argument that names the folder of the times."""


CASES = {
    "zero": Case(
        "deepspeed", (*BY_NAME, "--axis", "args.stage=1,2"), None, ("1", "2"), "workload_args.stage"
    ),
    "fit": Case("lightning", BY_NAME, "DistributedDataParallel"),
    "accelerated": Case("accelerate", BY_NAME, "fully_shard"),
    "titan": Case(
        "torch", TITAN, "fully_shard", ("1", "2"), "model_parallel", "--metrics.save_folder"
    ),
}


@pytest.mark.parametrize("name", list(CASES))
def test_steps_are_those_of_the_scripts_own_clock_and_samples_are_counted(
    name: str, ray_address: str, tmp_path: Path, dtsweep_command: Command
) -> None:
    case = CASES[name]
    if find_spec(case.library) is None:
        pytest.skip(f"{case.library} is not installed; .ci/run has the command")
    for file in (f"{name}.py", "laps.py"):
        shutil.copy(ROOT / "tests" / "loops" / "scripts" / file, tmp_path)
    times = tmp_path / "times"
    times.mkdir()
    measure = {"repeats": 1, "min_steps": 24, "min_seconds": 0.5, "max_seconds": 6, "canary": False}
    options = [
        part for setting in measure.items() for part in ("--measure", "=".join(map(str, setting)))
    ]
    done = dtsweep_command(
        *("script", f"{name}.py", "--axis", f"workers={WORKERS}", *case.options, *options),
        *("--address", ray_address, "--", case.folder, times),
        folder=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    trials, steps = (
        pd.read_parquet(tmp_path / "results" / name / data) for data in ("trials", "steps")
    )
    assert trials["status"].tolist() == ["ok"] * len(case.points)
    for number, (_, row) in enumerate(trials.sort_values(case.column).iterrows()):
        models = row["workers"] / row["model_parallel"]
        assert row["global_batch"] == MICRO * ACCUMULATION * models
        assert row["samples_per_s"] == pytest.approx(row["global_batch"] / row["step_mean_s"])
        assert (row["semantics"], row["optimizer_class"]) == ("exact", "AdamW")
        assert case.wrapper in (None, row["loop_wrapper"])
        window = steps[(steps["attempt_id"] == row["attempt_id"]) & (steps["part"] == "window")]
        for rank, own in window[~window["warmup"]].groupby("rank"):
            # The first step, which ends the start, has no number. After the last one, dtsweep's
            # own work follows before the script's note.
            laps = np.diff(np.loadtxt(times / f"{case.points[number]}-{rank}.txt"))
            taken = own.sort_values("step")[:-1]
            noted = laps[taken["step"].to_numpy()]
            ratio = taken["step_s"].mean() / noted.mean()
            print(
                f"{name} {case.points[number]}, rank {rank}: {len(noted)} steps, ratio {ratio:.4f}"
            )
            assert ratio == pytest.approx(1, abs=0.02)
