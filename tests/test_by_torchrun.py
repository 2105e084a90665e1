"""The command that measures a point without Ray, and the row that it prints."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import distributed

from benchmarks.by_torchrun import _places, main
from dtsweep.hardware.gpu_place import shared_gpu
from dtsweep.results.schema import TRIALS
from tests.linear import CLASS
from tests.ranks import free_ports, spawn, torchrun_variables
from tests.stand_in_nvml import GPU, StandInNvml, install_nvml, show_a_gpu

ROOT = Path(__file__).parents[1]

SWEEP = f"""{CLASS}
from torch import distributed


@dataclass(frozen=True)
class Fails(Linear):
    fails_on: int = -1

    def loss(self, model, batch):
        if distributed.get_rank() == self.fails_on:
            raise ValueError("not on this rank")
        return super().loss(model, batch)


sweep = Sweep(
    workload=Fails(),
    axes={{
        "workers": [1, 2],
        "sync": ["ddp", "local_sgd", "parameter_server"],
        "workload.fails_on": [-1],
    }},
    measure=Measure(half_width=None, min_steps=128, min_seconds=0.1),
)
"""


@pytest.fixture
def sweep_file(tmp_path: Path) -> Path:
    path = tmp_path / "line.py"
    path.write_text(SWEEP)
    return path


def torchrun(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    options = ("--standalone", "--nproc-per-node", "2", "-m", "benchmarks.by_torchrun")
    return subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", *options, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
    )


def be_rank(rank: int, arguments: list[str], folder: Path, port: int) -> None:
    """Do as a process of `torchrun` does, and keep what it prints and returns."""
    os.environ |= torchrun_variables(rank, workers=2, port=port)
    with (folder / f"{rank}.out").open("w") as out, contextlib.redirect_stdout(out):
        code = main(arguments)
    (folder / f"{rank}.code").write_text(str(code))


def printed(folder: Path, *arguments: str | Path) -> dict[str, Any]:
    """The row that two ranks print."""
    (port,) = free_ports(1)
    spawn(be_rank, args=([*map(str, arguments)], folder, port), nprocs=2)
    assert [(folder / f"{rank}.code").read_text() for rank in range(2)] == ["0", "0"]
    (line,) = [line for rank in range(2) for line in (folder / f"{rank}.out").open()]
    return dict(json.loads(line))


def test_a_point_under_torchrun_prints_the_row_of_a_trial(sweep_file: Path) -> None:
    # In a file as well: other output, as NCCL's with NCCL_DEBUG=INFO, can't come between there.
    file = sweep_file.parent / "row.json"
    row = printed(sweep_file.parent, sweep_file, "workers=2", "--row", file, "sync=local_sgd")
    assert json.loads(file.read_text()) == row
    own = {f"workload_{name}" for name in ("inputs", "outputs", "fails_on")}
    assert row.keys() - {column.name for column in TRIALS} == own
    assert (row["status"], row["reason"], row["workers"], row["sync_period"]) == ("ok", None, 2, 8)
    assert row["measured_steps"] % 8 == 0
    assert row["comm_method"] == "wait"
    for rate in ("exchange_share", "pass_s", "exchange_isolated_s", "mfu", "samples_per_s"):
        assert row[rate] > 0, rate
    assert row["rank_skew"] >= row["rank_skew_low"] >= 0
    assert (row["backend"], row["harness"]) == ("gloo", "torchrun")
    assert row["implausible"] is row["question"] is None


@pytest.mark.slow
def test_a_rank_that_fails_under_torchrun_ends_the_run_with_its_row(sweep_file: Path) -> None:
    file = sweep_file.parent / "row.json"
    done = torchrun(sweep_file, "workers=2", "sync=ddp", "workload.fails_on=1", f"--row={file}")
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    row = json.loads(line)
    assert json.loads(file.read_text()) == row
    number = SWEEP.partition("raise ValueError")[0].count("\n") + 1
    reason = f"rank 1: ValueError: not on this rank (line.py:{number})"
    assert (row["status"], row["reason"]) == ("user_error", reason)
    assert row["harness"] == "torchrun"
    assert "samples_per_s" not in row


SCRIPT_SWEEP = """
from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Script(PATH),
    axes={"workers": [2], "args.fails-on": [-1]},
    measure=Measure(half_width=None, min_seconds=0, min_steps=5, max_seconds=20),
)
"""

TRAIN = """
import argparse, os, sys
import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

parser = argparse.ArgumentParser()
parser.add_argument("--fails-on", type=int)
fails_on = parser.parse_args().fails_on
print(os.environ["MASTER_PORT"], file=sys.stderr)
distributed.init_process_group("gloo")
model = DistributedDataParallel(nn.Linear(2, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
if distributed.get_rank() == fails_on:
    raise ValueError("not on this rank")
while True:
    model(torch.ones(8, 2)).sum().backward()
    optimizer.step()
"""


@pytest.mark.slow
def test_a_training_script_under_torchrun_has_a_group_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    sweep_file = tmp_path / "sweep.py"
    sweep_file.write_text(SCRIPT_SWEEP.replace("PATH", repr(str(tmp_path / "train.py"))))
    row = printed(tmp_path, sweep_file, "workers=2")
    assert (row["status"], row["reason"], row["semantics"]) == ("ok", None, "exact")
    done = torchrun(sweep_file, "workers=2", "args.fails-on=1")
    assert done.returncode == 1
    (line,) = done.stdout.splitlines()
    reason = "rank 1: ValueError: not on this rank (train.py:15)"
    assert (json.loads(line)["status"], json.loads(line)["reason"]) == ("user_error", reason)


def losing(text: str, number: str) -> str:
    """A sweep file whose loss is this expression."""
    loss = f"return model(batch).sum() * 0 + int({number})"
    return text.replace("return super().loss(model, batch)", loss)


@pytest.mark.slow
def test_libraries_see_the_variables_of_a_point_when_they_are_loaded(sweep_file: Path) -> None:
    openmp = "\nOPENMP = ctypes.CDLL(next(Path(torch.__file__).parent.glob('lib/libgomp*')))\n"
    text = SWEEP.replace("\n@dataclass", f"{openmp}\n@dataclass", 1)
    text = losing(text, "OPENMP.omp_get_dynamic()")
    sweep_file.write_text(f"import ctypes\nfrom pathlib import Path\n{text}")
    for value, seen in (("true", 1), ("false", 0)):
        done = torchrun(sweep_file, "workers=2", "sync=ddp", f"env.OMP_DYNAMIC={value}")
        (line,) = done.stdout.splitlines()
        row = json.loads(line)
        assert (row["status"], row["loss_last"]) == ("ok", seen)


@pytest.mark.parametrize(("gpus", "is_hidden"), [(0, 1), (None, 0)])
def test_ranks_that_use_no_gpu_see_none(sweep_file: Path, gpus: int | None, is_hidden: int) -> None:
    text = losing(SWEEP, "os.environ.get('CUDA_VISIBLE_DEVICES') == ''")
    resources = f"resources=Resources(gpus_per_worker={gpus}),"
    text = text.replace("sweep = Sweep(", f"sweep = Sweep({resources}")
    sweep_file.write_text(f"import os\n{text}")
    row = printed(sweep_file.parent, sweep_file, "workers=2", "sync=ddp")
    assert (row["status"], row["loss_last"]) == ("ok", is_hidden)


@pytest.mark.slow
def test_a_value_that_changes_with_each_reading_of_the_file_is_refused(sweep_file: Path) -> None:
    changing = '"env.NCCL_DEBUG_SUBSYS": [os.urandom(8).hex()],'
    text = SWEEP.replace('"workload.fails_on": [-1],', changing)
    sweep_file.write_text(f"import os\n{text}")
    done = torchrun(sweep_file, "workers=2", "sync=ddp")
    assert done.returncode
    assert "the value of NCCL_DEBUG_SUBSYS changes each time" in done.stderr


def compare_gpus(rank: int, folder: Path, port: int) -> None:
    """Find the places of two ranks that both have the stand-in's GPU."""
    os.environ |= torchrun_variables(rank, workers=2, port=port)
    show_a_gpu()
    distributed.init_process_group("gloo")
    (folder / f"{rank}.shared").write_text(str(shared_gpu(_places(GPU))))
    distributed.destroy_process_group()


def test_two_ranks_with_one_gpu_see_it_before_they_exchange(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    spawn(compare_gpus, args=(tmp_path, port), nprocs=2)
    text, other = ((tmp_path / f"{rank}.shared").read_text() for rank in range(2))
    assert text == other
    assert text.startswith("ranks 0 and 1 on ")
    assert "have the same GPU (" in text


Refused = Callable[..., str]


@pytest.fixture
def refused_line(
    sweep_file: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Refused:
    """The line in which the first rank of a world refuses these arguments."""

    def refused(workers: int, *arguments: str) -> str:
        for name, value in {"RANK": "0", "WORLD_SIZE": f"{workers}", "LOCAL_RANK": "0"}.items():
            monkeypatch.setenv(name, value)
        assert main([str(sweep_file), *arguments]) == 2
        said = capsys.readouterr()
        (line,) = said.err.splitlines()
        assert line.startswith("dtsweep: ")
        assert said.out == ""
        return line

    return refused


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["workers=2", "sync=parameter_server"], "parameter_server needs Ray"),
        (["workers=1", "sync=ddp"], "workers=1, but torchrun started 2"),
        (["workers=2", "sync=dpp"], "'ddp'"),
        (["workers"], "workers"),
        (["workers=2", "--row"], "--row"),
        (["workers=2", "--row", "no/such/folder/row.json"], "no folder no/such/folder for --row"),
    ],
)
def test_what_can_not_be_measured_without_ray_is_refused_in_a_line(
    arguments: list[str], message: str, refused_line: Refused
) -> None:
    assert message in refused_line(2, *arguments)


def test_a_gpu_that_torch_can_not_use_is_refused_in_a_line(
    refused_line: Refused, monkeypatch: pytest.MonkeyPatch
) -> None:
    install_nvml(StandInNvml(), monkeypatch)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    line = refused_line(1, "workers=1", "sync=ddp")
    assert line.startswith(f"dtsweep: torch {torch.__version__}, built ")
    assert "whose driver is 570.1; " in line


def test_without_torchrun_the_command_says_how_it_is_run(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("RANK", raising=False)
    assert main(["sweeps/batchsize.py"]) == 2
    assert "torchrun --nproc-per-node N -m benchmarks.by_torchrun" in capsys.readouterr().err
