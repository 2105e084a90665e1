"""A script without a sweep file: the file that is written and run, and mistakes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from dtsweep import SweepError
from dtsweep.cli.commands import cli
from tests.conftest import Command
from tests.driver.test_own_script import TRAIN

SHORT = ("--measure", "half_width=none", "--measure", "min_seconds=0.1")


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working directory with a script."""
    (tmp_path / "train.py").write_text(TRAIN)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def call(*arguments: str) -> None:
    """Call `dtsweep` in this process."""
    cli([*arguments], standalone_mode=False)


def planned(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, Any]]:
    capsys.readouterr()
    call(arguments[0], "--json", *arguments[1:])
    trials: list[dict[str, Any]] = json.loads(capsys.readouterr().out)["trials"]
    return trials


COMMANDS = {
    "axes": ("--axis", "workers=1,2", "--axis", "args.batch-size=8,16,32"),
    "nothing": (),
    "fixed arguments": ("--axis", "workers=1,2", "--", "--epochs", "3", 'it\'s \\ "so"', "$HOME"),
    "one argument": ("--", "--epochs=3"),
    "kinds of values": (
        *("--axis", "args.amp=true,false", "--axis", "args.lr=1e-3,0.5"),
        *("--axis", "args.name=none,007,nan", "--axis", "env.NCCL_ALGO=Ring,Tree"),
    ),
    "names": (
        *("--axis", "micro_batch=4,8", "--axis", "global_batch=32"),
        *("--name", "micro_batch=batch-size", "--name", "accumulation=--grad-accum"),
    ),
    "a grid as torchtitan names it": (
        *("--axis", "workers=2,4", "--axis", "args.--parallelism.tensor_parallel_degree=1,2"),
        *("--name", "tensor_parallel=parallelism.tensor_parallel_degree"),
    ),
    "data loaders": (
        *("--axis", "loader.num_workers=0,2", "--axis", "loader.prefetch_factor=none,4"),
        *("--axis", "loader.pin_memory=false"),
    ),
    "samples by arguments": (
        *("--axis", "args.batch=4,8", "--axis", "args.passes=1,2"),
        *("--samples-per-step", "args.batch,--passes"),
    ),
    "a goal": (
        *("--axis", "workers=1,2", "--goal", "fast-validation", "--where", "memory <= 2GiB"),
        *("--indifference", "5%", "--confidence", "0.9", "--max-launches", "4"),
    ),
    "the frontier": ("--goal", "frontier", "--max-launches", "2"),
    "settings": (
        *("--measure", "repeats=2", "--measure", "half_width=none", "--samples-per-step", "64"),
        *("--axis", "args.width=" + ",".join(map(str, range(1, 40)))),
    ),
}


@pytest.mark.parametrize("options", COMMANDS.values(), ids=COMMANDS)
def test_the_saved_sweep_file_is_a_sweep(
    options: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    call("script", "train.py", "--save", "sweep.py", *options)
    said = capsys.readouterr().err
    assert said == "wrote sweep.py\nto measure it: dtsweep sweep.py\n"
    assert planned(capsys, "plan", "sweep.py")


def test_values_of_arguments_are_numbers_flags_or_texts_as_the_script_gets_them(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    axis = "args.x=8,-2,0.5,1e-3,true,False,none,007,1_0,nan,a b"
    call("script", "train.py", "--save", "sweep.py", "--axis", axis)
    values = [trial["workload_args.x"] for trial in planned(capsys, "plan", "sweep.py")]
    expected = [8, -2, 0.5, 0.001, True, False, "none", "007", "1_0", "nan", "a b"]
    assert sorted(map(repr, values)) == sorted(map(repr, expected))


MISTAKES = {
    (): r"Missing argument 'SCRIPT.py'; write dtsweep script train.py --axis workers=1,2",
    ("trian.py",): r"there is no script '.*/trian.py'; did you mean 'train.py'\?",
    ("nowhere.py",): r"there is no script '.*/nowhere.py'; give its path from the working dir",
    ("train.py", "--axis", "workers"): r"--axis 'workers' has no values; write axis=value",
    ("train.py", "--axis", "workers=1,"): r"'workers' has an empty value; write workers=value,",
    ("train.py", "--axis", "workers=1", "--axis", "workers=2"): (
        r"--axis has 'workers' twice; give all its values at once: --axis workers=value,value"
    ),
    ("train.py", "--axis", "wrokers=1"): r"axis 'wrokers' is not a field .*did you mean 'workers'",
    ("train.py", "--axis", "batch-size=8"): (
        r"'batch-size' is not a field .*for an argument of the training loop write 'args.batch-size"
    ),
    ("train.py", "--axis", "micro_batch=8"): (
        r"axis 'micro_batch' has no effect on .*; give it to an argument of the script by "
    ),
    ("train.py", "--axis", "args.x=8,", "16"): r"Got unexpected extra argument \(16\); write dtswe",
    ("train.py", "--batch-size", "8"): (
        r"no option --batch-size; arguments of the script stand after --, or are axes: "
        r"--axis args.batch-size=…"
    ),
    ("train.py", "--axsi", "workers=1"): r"no option --axsi \(did you mean --axis\?\)",
    ("train.py", "--name", "sync=mode"): r"names has 'sync', which is not one of micro_batch",
    ("train.py", "--measure", "repaets=3"): r"Measure has no setting 'repaets'; did you mean 'rep",
    ("train.py", "--measure", "repeats=1,2"): r"--measure 'repeats' has 2 values; give one",
    ("train.py", "--measure", "repeats=x"): r"repeats='x' must be a whole number",
    ("train.py", "--samples-per-step", "0"): r"--samples-per-step '0' is neither a number from 1",
    ("train.py", "--samples-per-step", "size"): r"samples_per_step has 'size', which is not an arg",
    ("train.py", "--in-process", "--address", "auto"): r"--in-process uses no Ray",
    ("train.py", "--save", "sweep"): r"--save 'sweep' is not the name of a sweep file",
    ("train.py", "--save", "train.py"): r"there is a file 'train.py' of another sweep; change it",
    ("train.py", "--save", "no/s.py"): r"'no/s.py' can't be written: No such file or directory",
    ("train.py", "--", "--hf-token", "hf_abcdefgh"): r"'--hf-token' has a name that marks a secret",
}


@pytest.mark.parametrize(("arguments", "message"), MISTAKES.items())
def test_a_mistake_is_said_in_a_line_with_the_next_step(
    arguments: tuple[str, ...], message: str, folder: Path
) -> None:
    with pytest.raises(SweepError, match=message) as refused:
        call("script", *arguments)
    assert "\n" not in str(refused.value)
    assert [file.name for file in folder.iterdir()] == ["train.py"]


def test_a_mistake_ends_with_exit_code_2(folder: Path, forked_command: Command) -> None:
    done = forked_command("script", "train.py", "--axis", "workers", folder=folder)
    assert (done.returncode, done.stdout, len(done.stderr.splitlines())) == (2, "", 1)
    done = forked_command("script", "--help", folder=folder)
    assert "script [OPTIONS] SCRIPT.py [-- ARGUMENTS]" in done.stdout


@pytest.mark.slow
def test_the_same_command_and_its_file_go_on_with_the_results(
    folder: Path, forked_command: Command
) -> None:
    command = ("script", "train.py", "--axis", "args.batch-size=4,8", *SHORT)
    fixed = ("--", "--epochs", "999")
    done = forked_command(*command, "--in-process", *fixed, folder=folder)
    assert done.returncode == 0, done.stderr
    assert "wrote sweeps/train.py" in done.stderr
    assert "2 trials to run, 0 done" in done.stderr
    again = forked_command(*command, "--in-process", *fixed, folder=folder)
    assert "0 trials to run, 2 done" in again.stderr
    file = forked_command("run", "sweeps/train.py", "--in-process", folder=folder)
    assert "0 trials to run, 2 done" in file.stderr
    words = forked_command("recommend", "results/train-in-process", folder=folder).stdout
    assert "torchrun --nproc-per-node 1 train.py --epochs 999 --batch-size " in words


def test_a_file_of_another_sweep_is_never_overwritten(folder: Path) -> None:
    (folder / "sweeps").mkdir()
    (folder / "sweeps" / "train.py").write_text("mine")
    with pytest.raises(SweepError, match=r"there is a file .* of another sweep; change it"):
        call("script", "train.py", "--axis", "workers=1,2")
    assert (folder / "sweeps" / "train.py").read_text() == "mine"
