"""The code of a recommendation names the same point, trains, and names what it lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from dtsweep import Point, Resources, Sweep, workloads
from dtsweep.metrics.rows import point_row
from dtsweep.report.code import point_code, settings_of
from dtsweep.report.program import EXPRESSED, PROGRAMS, training_code, why_no_training
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.compressions import COMPRESSION_FIELDS, COMPRESSIONS, reads_of
from dtsweep.sweep.modes import MODE_FIELDS, MODES
from dtsweep.sweep.point import AXES, DEFAULTS, Axis, identity
from tests.analysis.test_recommend import launches
from tests.ranks import free_ports, spawn, torchrun_variables
from tests.report.test_recommendation import said

POINTS = [
    Point(workers=2, micro_batch=4),
    Point(workers=2, micro_batch=4, accumulation=3, optimizer="momentum", learning_rate=0.1),
    Point(
        workers=2,
        micro_batch=4,
        accumulation=2,
        sync="zero1",
        optimizer="adamw",
        learning_rate=0.001,
    ),
    Point(
        workers=2, micro_batch=4, accumulation=2, sync="fsdp", precision="bf16", learning_rate=0.5
    ),
    Point(workers=2, micro_batch=4, sync="fsdp_grad", optimizer="adam"),
    Point(workers=2, micro_batch=4, bucket_bytes=2**20, clip_norm=0.1),
    Point(workers=2, micro_batch=4, sync="fsdp", accumulation=2, clip_norm=0.1),
]

GIVEN = """\
import torch

model = torch.nn.Linear(3, 1)
batches = [torch.ones(4, 3)]
loss_of = lambda model, batch: model(batch).mean()
"""
"""What a program asks for."""

TELL = """\
import json
import os

with open(os.environ["RANK"] + ".json", "w") as file:
    json.dump({name: os.environ[name] for name in ("OMP_NUM_THREADS", "SPOKEN")}, file)
torch.distributed.barrier()
# A thread of gloo that still holds a tensor when Python ends aborts the process.
os._exit(0)
"""
"""Tells what a training process has of its environment."""


def printed(point: Point) -> str:
    """The code as `recommend` prints it in a terminal of 80 columns."""
    code = said(launches("a", 100, **point.columns()), width=80).partition("In plain PyTorch:\n\n")[
        2
    ]
    return textwrap.dedent(code)


def row_of(point: Point, **columns: Any) -> pd.Series[Any]:
    return pd.Series({**point.columns(), **columns}, dtype=object)


def row_of_sweep(axes: dict[str, Any], **variables: str) -> pd.Series[Any]:
    """The row of the only point of a sweep, as it is stored."""
    sweep = Sweep(
        workload=workloads.Gpt(layers=2, sequence=64),
        axes={name: [value] for name, value in axes.items()},
        resources=Resources(environment=variables),
    )
    (candidate,) = candidates(sweep)
    return pd.Series(point_row(sweep, candidate.point), dtype=object)


def text_of(row: pd.Series[Any]) -> str:
    """The program of a row, or why there is none."""
    code, reason = training_code(row), why_no_training(row)
    assert (code is None) == (reason is not None)
    return f"{code}{reason}"


def other_value(axis: str) -> Any:
    """A value of an axis that is not its default."""
    default, choices = DEFAULTS[axis], AXES[axis].choices
    if choices:
        return next(choice for choice in reversed(choices) if choice != default)
    if isinstance(default, bool):
        return not default
    return 0.5 if 1 in (AXES[axis].most, AXES[axis].below) else 3


def point_with(axis: str, *, workers: int) -> Point:
    """A point that sets an axis, of a mode and a compression that read it."""
    fields: dict[str, Any] = {"workers": workers}
    if axis in MODE_FIELDS:
        fields["sync"] = next(mode for mode in MODES if axis in MODES[mode].reads)
    if axis in COMPRESSION_FIELDS:
        fields["compression"] = next(name for name in COMPRESSIONS if axis in reads_of(name))
    return Point(**fields | {axis: other_value(axis)})


@pytest.mark.parametrize(
    "point",
    [
        *POINTS,
        Point(sync="local_sgd", sync_period=4),
        Point(compression="topk", compression_ratio=0.1),
    ],
)
def test_the_code_of_a_point_makes_the_same_point(point: Point) -> None:
    made = eval(point_code(row_of(point)), {"Point": Point})
    assert identity(made) == identity(point)


def given(batches: list[Tensor]) -> dict[str, Any]:
    """What a program finds."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 1))
    return {
        "model": model,
        "blocks": [model[0]],
        "batches": batches,
        "loss_of": lambda model, batch: model(batch).square().mean(),
    }


def trained(code: str, batches: list[Tensor]) -> list[Tensor]:
    names = given(batches)
    exec(code, names)
    whole = [
        each.full_tensor() if isinstance(each, DTensor) else each
        for each in names["model"].parameters()
    ]
    return [each.detach() for each in whole]


def train(rank: int, codes: list[tuple[str, str, float, int]]) -> None:
    """Train by each code of two workers, on half of each batch, and by one worker's on all of it.

    Each code makes a group of its own, from the variables that `torchrun` sets.
    """
    torch.set_num_threads(1)
    whole = list(torch.rand(6, 8, 3, generator=torch.Generator().manual_seed(1)))
    half = [batch[4 * rank : 4 * rank + 4] for batch in whole]
    for code, code_of_one, error, port in codes:
        os.environ |= torchrun_variables(rank, workers=2, port=port)
        found = trained(code, half)
        distributed.destroy_process_group()
        expected = trained(code_of_one, whole)
        torch.testing.assert_close(found, expected, rtol=0, atol=error)
        before = given(whole)["model"].parameters()
        moved = [(each - other).abs().max() for each, other in zip(expected, before, strict=True)]
        assert max(moved) > 10 * error


def test_the_code_trains_as_it_is_printed_and_as_that_of_one_worker_on_all_samples() -> None:
    """The next test runs a code by `torchrun`."""
    alone = [replace(point, workers=1, micro_batch=8) for point in POINTS]
    errors = [0.005 if point.precision == "bf16" else 1e-5 for point in POINTS]
    ports = free_ports(len(POINTS))
    codes = [
        (printed(two), printed(one), *rest)
        for two, one, *rest in zip(POINTS, alone, errors, ports, strict=True)
    ]
    assert "distributed" not in "".join(code_of_one for _, code_of_one, _, _ in codes)
    spawn(train, args=(codes,), nprocs=2)


@pytest.mark.parametrize("workers", [1, 2])
def test_code_of_a_point_that_was_measured_on_gpus_trains_there(workers: int) -> None:
    code = str(training_code(row_of(Point(workers=workers, precision="bf16")).copy()))
    assert "cuda" not in code
    row = pd.concat(
        [row_of(Point(workers=workers, precision="bf16")), pd.Series({"backend": "nccl"})]
    )
    code = str(training_code(row))
    assert "model = model.cuda()" in code
    assert 'torch.autocast("cuda", torch.bfloat16)' in code
    assert ("torch.cuda.set_device" in code) == (workers > 1)
    compile(code, "code", "exec")


@pytest.mark.parametrize(
    "point",
    [
        Point(workers=2, sync="ring"),
        Point(sync="local_sgd"),
        Point(compression="int8"),
        Point(workers=2, overlap=False),
    ],
)
def test_what_torch_has_not_has_no_training_code(point: Point) -> None:
    assert training_code(row_of(point)) is None


@pytest.mark.parametrize(
    "axes", [{"sync": "ring"}, {"overlap": False}, {"sync": "hsdp", "node_size": 1}]
)
def test_one_worker_needs_no_exchange_and_has_a_program(axes: dict[str, Any]) -> None:
    code, plain = (
        str(training_code(row_of(Point(**chosen)))).splitlines() for chosen in (axes, {})
    )
    named = [
        f"# one worker exchanges nothing: {name}={value!r} is not needed"
        for name, value in axes.items()
    ]
    assert sorted(set(code) - set(plain)) == sorted(named)
    assert set(plain) <= set(code)


def test_the_reason_for_no_program_names_first_what_torch_lacks() -> None:
    row = row_of(Point(workers=2, sync="local_sgd", sync_period=4, placement="spread"))
    assert why_no_training(row) == (
        "torch alone does not have sync='local_sgd', sync_period=4; "
        "not expressed either: placement='spread'"
    )


def test_a_long_point_is_printed_as_code_that_runs_in_a_narrow_terminal() -> None:
    note = {"NOTE": "a long text that a terminal of eighty columns would break somewhere in it"}
    point = Point(workers=2, micro_batch=4, environment=note)
    text = said(
        launches("a", 100, environment=json.dumps(note), micro_batch=4, workers=2), width=80
    )
    code = text.split("To use it: ")[1].split("No program")[0].split("In plain PyTorch")[0]
    assert identity(eval(code, {"Point": Point})) == identity(point)


def test_an_optimizer_of_the_workload_is_left_to_it_with_its_learning_rate() -> None:
    code = str(training_code(row_of(replace(POINTS[0], learning_rate=0.5), optimizer=None)))
    assert "make_optimizer(parameters, learning_rate)" in code
    assert "optimizer = make_optimizer(model.parameters(), 0.5)" in code


def test_a_workload_that_weighs_its_batches_is_named() -> None:
    words = "# not expressed here: weight(batch) of the workload"
    for is_weighted, is_named in ((True, True), (False, False), (None, False), (pd.NA, False)):
        code = str(training_code(row_of(POINTS[0], is_weighted=is_weighted)))
        assert (words in code) == is_named


def test_zero1_shards_the_state_of_an_optimizer_of_the_workload() -> None:
    point = Point(workers=2, sync="zero1", learning_rate=0.5)
    code = str(training_code(row_of(point, optimizer=None)))
    assert "lambda parameters, **_: make_optimizer(parameters, 0.5)" in code
    assert "make_optimizer" not in str(training_code(row_of(point)))


IN_PROGRAM = {
    "workers": "torchrun --nproc-per-node 3 ",
    "micro_batch": "# 3 samples on each worker",
    "accumulation": "loss_of(model, batch) / 3",
    "optimizer": "torch.optim.AdamW(",
    "learning_rate": "lr=3.0",
    "clip_norm": "torch.nn.utils.clip_grad_norm_(model.parameters(), 3.0)",
    "precision": "torch.bfloat16",
}
"""How programs express the values of `other_value`."""


def test_every_axis_that_is_declared_to_be_expressed_is_looked_for() -> None:
    assert tuple(IN_PROGRAM) == EXPRESSED
    of_modes = {axis for mode in PROGRAMS.values() for axis in mode.expresses}
    assert of_modes == {"sync", "bucket_bytes"}
    buckets = row_of(Point(workers=2, bucket_bytes=123456789))
    assert "DistributedDataParallel(model, bucket_cap_mb=123456789 / 2**20)" in text_of(buckets)


@pytest.mark.parametrize("workers", [1, 2])
@pytest.mark.parametrize("axis", AXES)
def test_the_code_has_the_value_of_every_axis_or_names_it(axis: str, workers: int) -> None:
    row = row_of(point_with(axis, workers=workers))
    named = f"{axis}={settings_of(row)[axis]!r}"
    assert named in point_code(row)
    default = text_of(row_of(Point(workers=workers)))
    lines = [line for line in text_of(row).splitlines() if line not in default.splitlines()]
    expressed = IN_PROGRAM.get(axis, named)
    if axis == "bucket_bytes" and workers > 1:
        expressed = "bucket_cap_mb=3 / 2**20"
    assert expressed in "\n".join(lines)


def test_a_mode_that_one_worker_does_not_need_is_named() -> None:
    code = str(training_code(row_of(Point(sync="zero1", bucket_bytes=8))))
    for setting in ("sync='zero1'", "bucket_bytes=8"):
        assert f"# one worker exchanges nothing: {setting} is not needed" in code.splitlines()


def test_an_axis_that_nobody_has_written_code_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row_of(Point(workers=2), label_smoothing=norm) for norm in (1.5, None)]
    monkeypatch.setitem(AXES, "label_smoothing", Axis(meaning="Share of other labels."))
    monkeypatch.setitem(DEFAULTS, "label_smoothing", None)
    assert [point_code(row) for row in rows] == [
        "Point(workers=2, label_smoothing=1.5)",
        "Point(workers=2)",
    ]
    clipped, default = (str(training_code(row)).splitlines() for row in rows)
    lines = [line for line in clipped if line not in default]
    assert lines == ["# not expressed here: label_smoothing=1.5"]


def test_variables_and_fields_of_the_workload_are_in_the_code_and_secrets_are_named() -> None:
    token = "hf_abcdefgh"
    axes = {"workers": 2, "env.NCCL_ALGO": "Ring", "workload.width": 64}
    row = row_of_sweep(axes, HF_TOKEN=token, OMP_DYNAMIC="true")
    point, code = point_code(row), str(training_code(row))
    made = eval(point, {"Point": Point})
    assert made == Point(workers=2, environment={"NCCL_ALGO": "Ring", "OMP_DYNAMIC": "true"})
    assert {"# export NCCL_ALGO=Ring", "# export OMP_DYNAMIC=true"} <= set(code.splitlines())
    secret = "# variable HF_TOKEN is secret and stored as a hash: set it yourself"
    for text in (point, code):
        assert secret in text.splitlines()
        assert token not in text
        assert "hidden:" not in text
        words = text.replace("\n# ", " ")
        assert "of the workload Gpt, workload.layers=2, workload.width=64, " in words


def test_settings_are_what_the_point_is_made_of() -> None:
    row = row_of_sweep({"workers": 2, "env.OMP_DYNAMIC": "true"}, HF_TOKEN="hf_abcdefgh")
    assert settings_of(row) == {"workers": 2, "environment": {"OMP_DYNAMIC": "true"}}


def test_the_reason_for_no_program_is_printed_with_the_axes() -> None:
    point = Point(workers=2, compression="topk", compression_ratio=0.1)
    text = said(launches("a", 100, **point.columns()))
    reason = "torch alone does not have compression='topk', compression_ratio=0.1"
    assert f"No program in plain PyTorch: {reason}.\n" in text


def test_variables_of_the_printed_code_reach_every_training_process(tmp_path: Path) -> None:
    spoken = "it's \\ $HOME\n\t“so”"
    variables = {"OMP_NUM_THREADS": "3", "SPOKEN": spoken}
    point = Point(workers=2).columns() | {"environment": json.dumps(variables)}
    text = said(launches("a", 100, **point), width=80)
    code = textwrap.dedent(text.partition("In plain PyTorch:\n\n")[2])
    asked = [line.removeprefix("# ") for line in code.splitlines() if line.startswith("# ")]
    exports = [line for line in asked if line.startswith("export ")]
    (command,) = [line.partition(",")[0] for line in asked if line.startswith("torchrun ")]
    (tmp_path / "FILE.py").write_text(f"{GIVEN}\n{code}\n{TELL}")
    run = command.replace("torchrun", f"{sys.executable} -m torch.distributed.run --standalone")
    done = subprocess.run(
        ["bash", "-c", "\n".join(["set -eu", *exports, run])],
        cwd=tmp_path,
        env={**os.environ, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(2)]
    assert told == [variables, variables]
