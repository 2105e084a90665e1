"""Grids that arguments of a script promise: legal ones, samples by grid, and refused values."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from dtsweep import Sweep, SweepError, workloads
from dtsweep.sweep.arguments import bare
from dtsweep.sweep.axes import Candidate, candidates
from dtsweep.sweep.mode_info import Grid

NAMES = {
    "tensor_parallel": "tp",
    # Axes have the form `--pp=2`, as torchtitan's parser takes it.
    "pipeline_parallel": "pp",
    "context_parallel": "cp",
    "expert_parallel": "ep",
}


def listed(folder: Path, axes: dict[str, Any], **script: Any) -> list[Candidate]:
    (folder / "train.py").touch()
    given = {bare(axis.removeprefix("args.")) for axis in axes}
    used = {name for name in NAMES if NAMES[name] in given}
    names = {name: NAMES[name] for name in used} | script.pop("names", {})
    workload = workloads.Script(str(folder / "train.py"), names=names, **script)
    return candidates(Sweep(workload=workload, axes=axes))


def test_workers_are_a_multiple_of_tensor_times_pipeline_times_context(tmp_path: Path) -> None:
    axes = {"workers": [4, 8, 12], "args.tp": [1, 2, 3], "args.--pp": [1, 2], "args.cp": [1, 2]}
    for candidate in listed(tmp_path, axes):
        point = candidate.point
        model = point.args["tp"] * point.args["--pp"] * point.args["cp"]  # type: ignore[operator]  # whole numbers
        assert (candidate.reason is None) == (point.workers % model == 0), candidate
        if candidate.reason is None:
            assert point.grid == Grid(data=point.workers // model, model=model)
    (one,) = listed(tmp_path, {"workers": [4], "args.tp": [3], "args.--pp": [2]})
    assert one.reason == (
        "args.tp=3 × args.pp=2 needs a multiple of 6 workers, and there are workers=4; use "
        "workers=6 or a multiple, or smaller numbers"
    )


@pytest.mark.parametrize(
    ("workers", "pp", "ep", "reason"),
    [
        # Experts may take the ranks of tensor parallelism: 8 workers, 4 of a stage.
        (8, 2, 4, None),
        (8, 2, 8, "args.ep=8 does not divide the 4 workers of a pipeline stage (workers=8); use a"),
        (6, 1, 4, "args.ep=4 does not divide the 6 workers of a pipeline stage (workers=6); use a"),
    ],
)
def test_experts_are_divided_over_the_workers_of_a_pipeline_stage(
    workers: int, pp: int, ep: int, reason: str | None, tmp_path: Path
) -> None:
    axes = {"workers": [workers], "args.tp": [2], "args.--pp": [pp], "args.ep": [ep]}
    (candidate,) = listed(tmp_path, axes)
    assert str(candidate.reason).startswith(str(reason))


def test_a_global_batch_is_that_of_the_data_parallel_groups(tmp_path: Path) -> None:
    axes = {"workers": [8], "args.tp": [4], "micro_batch": [4], "global_batch": [16, 20]}
    names = {"micro_batch": "batch-size", "accumulation": "passes"}
    whole, odd = listed(tmp_path, axes, names=names)
    assert (whole.point.accumulation, whole.point.global_batch) == (2, 16)
    assert odd.reason == "global_batch 20 is not a multiple of 8 samples per pass"
    alone = {"workers": [8], "args.tp": [4], "global_batch": [6, 7]}
    whole, odd = listed(tmp_path, alone, names={"global_batch": "batch"})
    assert (whole.point.micro_batch, whole.point.global_batch) == (3, 6)
    assert odd.reason == "global_batch 7 is not a multiple of 2 groups of 4 workers"


@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True, None])
def test_a_number_of_workers_is_a_whole_number_of_at_least_1(value: Any, tmp_path: Path) -> None:
    refused = f"args.tp={value!r} is tensor_parallel by names, which must be a whole number"
    with pytest.raises(SweepError) as error:
        listed(tmp_path, {"args.tp": [value]})
    assert str(error.value).startswith(refused)


def test_the_value_of_an_argument_with_a_meaning_has_to_be_known(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="names has 'tp', which is not an argument by name; give"):
        listed(tmp_path, {"workers": [2]}, names={"tensor_parallel": "tp"})
    names = {"tensor_parallel": "tp", "pipeline_schedule": "schedule"}
    args = {"tp": 2, "schedule": "1f1b"}
    (one,) = listed(tmp_path, {"workers": [2]}, names=names, args=args)
    assert (one.point.grid, one.reason) == (Grid(data=1, model=2), None)
