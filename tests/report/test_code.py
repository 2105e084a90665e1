"""The code of a recommendation names the same point, and the command starts it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtsweep import Point, Resources, Sweep, workloads
from dtsweep.analysis import GOALS, Study, recommend
from dtsweep.metrics.rows import point_row
from dtsweep.report.code import point_arguments, point_code, shell_command
from dtsweep.report.recommendation import as_json
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.compressions import COMPRESSION_FIELDS, COMPRESSIONS, reads_of
from dtsweep.sweep.modes import MODE_FIELDS, MODES, SERVING
from dtsweep.sweep.point import identity
from dtsweep.sweep.point_axes import AXES, DEFAULTS, Axis
from tests.analysis.test_recommend import launches
from tests.frames import trials
from tests.report.test_recommendation import said

POINTS = [
    Point(workers=2, micro_batch=4),
    Point(workers=2, micro_batch=4, accumulation=2, sync="zero1", optimizer="adamw"),
    Point(workers=2, micro_batch=4, bucket_bytes=2**20, clip_norm=0.1),
    Point(sync="local_sgd", sync_period=4),
    Point(compression="topk", compression_ratio=0.1),
]


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


def other_value(axis: str) -> Any:
    """A value of an axis that is not its default."""
    default, choices = DEFAULTS[axis], AXES[axis].choices
    if choices:
        return next(choice for choice in reversed(choices) if choice != default)
    if isinstance(default, bool):
        return not default
    return 0.5 if 1 in (AXES[axis].most, AXES[axis].below) else 3


def point_with(axis: str) -> Point:
    """A point that sets an axis, of a mode and a compression that read it."""
    fields: dict[str, Any] = {"workers": 2}
    if axis in MODE_FIELDS:
        modes = {**MODES, **SERVING}
        fields["sync"] = next(mode for mode in modes if axis in modes[mode].reads)
    if axis in COMPRESSION_FIELDS:
        fields["compression"] = next(name for name in COMPRESSIONS if axis in reads_of(name))
    return Point(**fields | {axis: other_value(axis)})


@pytest.mark.parametrize("point", POINTS)
def test_the_code_of_a_point_makes_the_same_point_in_a_narrow_terminal(point: Point) -> None:
    note = {"NOTE": "a long text that a terminal of eighty columns would break somewhere in it"}
    point = replace(point, environment=note)
    known: dict[str, Any] = {
        name: value for name, value in point.columns().items() if value is not None
    }
    text = said(launches("a", 100, **known | {"environment": json.dumps(note)}), width=80)
    made = eval(text.split("To use it: ")[1], {"Point": Point})
    assert identity(made) == identity(point)


def test_an_axis_that_nobody_has_written_code_for_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [row_of(Point(workers=2), label_smoothing=norm) for norm in (1.5, None)]
    monkeypatch.setitem(AXES, "label_smoothing", Axis(meaning="Share of other labels."))
    monkeypatch.setitem(DEFAULTS, "label_smoothing", None)
    assert [point_code(row) for row in rows] == [
        "Point(workers=2, label_smoothing=1.5)",
        "Point(workers=2)",
    ]


def test_the_code_has_the_value_of_every_axis() -> None:
    for axis in AXES:
        row = row_of(point_with(axis))
        assert f"{axis}={point_arguments(row)[axis]!r}" in point_code(row)


def test_variables_and_fields_of_the_workload_are_in_the_code_and_secrets_are_named() -> None:
    token = "hf_abcdefgh"
    axes = {"workers": 2, "env.NCCL_ALGO": "Ring", "workload.width": 64}
    row = row_of_sweep(axes, HF_TOKEN=token, OMP_DYNAMIC="true")
    variables = {"NCCL_ALGO": "Ring", "OMP_DYNAMIC": "true"}
    assert point_arguments(row) == {"workers": 2, "environment": variables}
    code = point_code(row)
    assert eval(code, {"Point": Point}) == Point(workers=2, environment=variables)
    secret = "# variable HF_TOKEN is secret and stored as a hash: set it yourself"
    assert secret in code.splitlines()
    assert token not in code
    assert "hidden:" not in code
    words = code.replace("\n# ", " ")
    assert "of the workload Gpt, workload.layers=2, workload.width=64, " in words


# The command that starts a script at a point without dtsweep

TRAIN = """
import json
import os
import sys

import torch

torch.distributed.init_process_group("gloo")
total = torch.ones(1)
torch.distributed.all_reduce(total)
names = ("WORLD_SIZE", "OMP_NUM_THREADS", "SPOKEN")
variables = {name: os.environ[name] for name in names}
with open(os.environ["RANK"] + ".json", "w") as file:
    json.dump({"arguments": sys.argv[1:], "workers": total.item(), **variables}, file)
torch.distributed.barrier()
# A thread of gloo that still holds a tensor when Python ends aborts the process.
os._exit(0)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a script."""
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def row_of_script(
    axes: dict[str, Any], *arguments: str, variables: dict[str, str] | None = None, **columns: Any
) -> pd.Series[Any]:
    """The row of the only point of a script's sweep, as it is stored, with measured columns."""
    sweep = Sweep(
        workload=workloads.Script("train.py", arguments=arguments),
        axes={name: [value] for name, value in axes.items()},
        resources=Resources(environment=variables or {}, cpus_per_worker=columns.pop("cpus", None)),
    )
    (candidate,) = candidates(sweep)
    return pd.Series(point_row(sweep, candidate.point) | {"hosts": 1} | columns, dtype=object)


@pytest.mark.usefixtures("folder")
def test_the_words_are_those_of_the_trial_and_the_threads_those_of_a_worker() -> None:
    axes = {"workers": 4, "args.batch-size": 16, "args.amp": True, "args.resume": False}
    row = row_of_script(axes | {"args.0": "run 1"}, "--data", "$HOME/x", cpus=2)
    assert shell_command(row) == (
        "OMP_NUM_THREADS=2 torchrun --nproc-per-node 4 train.py "
        "--data '$HOME/x' 'run 1' --batch-size 16 --amp"
    )


@pytest.mark.usefixtures("folder")
def test_a_text_is_a_text_and_a_flag_is_a_flag_among_values_of_several_types() -> None:
    sweep = Sweep(
        workload=workloads.Script("train.py"), axes={"args.size": [True, "true", 1, "a b", None]}
    )
    commands = [
        shell_command(pd.Series(point_row(sweep, item.point), dtype=object))
        for item in candidates(sweep)
    ]
    begin = "torchrun --nproc-per-node 1 train.py"
    words = (" --size", " --size true", " --size 1", " --size 'a b'", "")
    assert commands == [f"{begin}{each}" for each in words]


@pytest.mark.usefixtures("folder")
def test_several_nodes_meet_at_the_first_one() -> None:
    command = str(shell_command(row_of_script({"workers": 16, "args.lr": 0.1}, hosts=2)))
    *comments, line = command.splitlines()
    words = " ".join(comments).replace(" # ", " ")
    assert words == (
        "# on each of 2 nodes: NODE_RANK is its number from 0, HOST the address of node 0"
    )
    assert line == (
        "torchrun --nnodes 2 --nproc-per-node 8 --node-rank $NODE_RANK --rdzv-backend c10d "
        "--rdzv-endpoint $HOST:29500 train.py --lr 0.1"
    )
    unequal = str(shell_command(row_of_script({"workers": 3}, hosts=2)))
    assert "WORKERS_HERE its share of 3 workers" in unequal.replace("\n# ", " ")
    assert "--nproc-per-node $WORKERS_HERE " in unequal


@pytest.mark.usefixtures("folder")
def test_variables_stand_in_front_and_secrets_are_named_without_their_values() -> None:
    variables = {"HF_TOKEN": "hf_abcdefgh", "SPOKEN": "a b", "OMP_NUM_THREADS": "3"}
    row = row_of_script({"workers": 1, "env.NCCL_ALGO": "Ring"}, variables=variables, cpus=1)
    *comments, line = str(shell_command(row)).splitlines()
    assert comments == ["# variable HF_TOKEN is secret and stored as a hash: set it yourself"]
    assert line.startswith("OMP_NUM_THREADS=3 NCCL_ALGO=Ring SPOKEN='a b' torchrun ")
    assert "hidden" not in line


def test_a_script_elsewhere_has_its_whole_path(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    row = row_of_script({"workers": 1})
    monkeypatch.chdir("/")
    assert f" {folder}/train.py" in f" /{str(shell_command(row)).split(' ')[-1].lstrip('/')}"
    (folder / "inner").mkdir()
    monkeypatch.chdir(folder / "inner")
    assert str(shell_command(row)).endswith(f" {folder}/train.py")


@pytest.mark.usefixtures("folder")
def test_a_recommendation_prints_the_command_in_place_of_code_and_json_has_it() -> None:
    rows = launches("a", 100, **row_of_script({"workers": 2, "args.x": 1}))
    text = said(rows, width=80)
    line = "torchrun --nproc-per-node 2 train.py --x 1"
    assert f"To use it without dtsweep:\n\n    {line}\n" in text
    assert "Point(" not in text
    for own, command in ((rows, line), (launches("a", 100, workers=2), None)):
        (found,) = recommend(Study(trials(*own)), GOALS["throughput"])
        assert as_json(found, [])["code"]["command"] == command


@pytest.mark.slow
def test_the_printed_command_starts_the_workers(folder: Path) -> None:
    spoken = "it's \\ $HOME\n\t“so”"
    axes = {"workers": 2, "args.batch-size": 16, "args.amp": True, "env.SPOKEN": spoken}
    row = row_of_script(axes, "--note", spoken, "a b", cpus=1)
    text = said(launches("a", 100, **row), width=80)
    command = text.partition("To use it without dtsweep:\n\n")[2]
    # Options of torchrun may be variables: a free port in the place of its usual one.
    environment = os.environ | {"PET_STANDALONE": "1", "CUDA_VISIBLE_DEVICES": ""}
    environment["PATH"] = f"{Path(sys.executable).parent}:{environment['PATH']}"
    shell = ["bash", "-c", command]
    done = subprocess.run(
        shell, cwd=folder, env=environment, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stderr
    for rank in range(2):
        told = json.loads((folder / f"{rank}.json").read_text())
        assert told["arguments"] == ["--note", spoken, "a b", "--batch-size", "16", "--amp"]
        assert told["workers"] == 2
        assert (told["WORLD_SIZE"], told["OMP_NUM_THREADS"], told["SPOKEN"]) == ("2", "1", spoken)
