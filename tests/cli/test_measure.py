"""Commands that measure, as a program calls them: with --json there is nothing else on stdout."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from dtsweep import Sweep, run
from dtsweep.cli.commands import cli
from dtsweep.errors import SweepError
from dtsweep.metrics.rows import task_row
from dtsweep.provenance.sources import sources_of
from dtsweep.provenance.versions import versions
from dtsweep.results.store import Results
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.task import task_of
from dtsweep.sweep.values import column_types
from dtsweep.workloads import Gpt
from tests.cli.called import as_json, called, in_one_line
from tests.conftest import Command
from tests.pages import ROOT
from tests.schemas import check_output

OWN_MODEL = ROOT / "sweeps" / "own_model.py"


def test_a_run_prints_its_report_as_json(tmp_path: Path, forked_command: Command) -> None:
    sweep = [OWN_MODEL, "--set", "workload.width=16", "--results", "here"]
    done = forked_command("run", *sweep, "--in-process", "--json", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    check_output("run", report)
    assert report["statuses"]["ok"] == 1
    assert as_json("report", tmp_path / "here") == report


def test_ctrl_c_while_the_sweep_file_is_read_is_exit_code_130_and_a_line(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "mine.py").write_text("import signal\nsignal.raise_signal(signal.SIGINT)\n")
    done = forked_command("run", "mine.py", folder=tmp_path)
    assert (done.returncode, done.stderr) == (130, "dtsweep: interrupted\n")


def test_a_limit_before_the_first_trial_is_exit_code_3_and_no_mistake(
    tmp_path: Path, forked_command: Command
) -> None:
    run = ("run", OWN_MODEL, "--in-process")
    done = forked_command(*run, "--price", "1", "--max-cost", "1e-9", folder=tmp_path)
    assert (done.returncode, done.stdout) == (3, "")
    assert "goes on" in done.stderr.splitlines()[-1]
    done = forked_command(*run, "--max-hours", "0", folder=tmp_path)
    assert done.returncode == 3
    last = done.stderr.splitlines()[-1]
    assert last.startswith("dtsweep: --max-hours 0 ")
    assert last.endswith("; the same command goes on")


ONE_WORKER = """
from dtsweep import Measure, Sweep, workloads

sweep = Sweep(
    workload=workloads.Gpt(),
    axes={"workers": [1], "micro_batch": [1, 2, 4, 64]},
    measure=Measure(repeats=1),
)
"""


def test_a_plan_says_what_a_gpu_has_no_memory_for_and_try_all_measures_it(tmp_path: Path) -> None:
    file = tmp_path / "one_worker.py"
    file.write_text(ONE_WORKER)
    sweep, candidates = read_sweep(file)
    on_gpu = {"device_free_bytes": 32 * 2**30}
    for point in (candidate.point for candidate in candidates[:3]):
        row = task_row(sweep, point, task_of(sweep, point))
        row |= {**versions(), **sources_of(sweep.workload, file=file).columns(row), **on_gpu}
        row |= {"harness": "ray", "status": "ok", "started_at": datetime.now(UTC)}
        row["memory_peak_bytes"] = point.micro_batch * 2**30
        Results(tmp_path / "r").commit(row, workload_types=column_types(sweep.workload))
    command = ["plan", file, "--results", tmp_path / "r"]
    said = in_one_line(*command)
    assert "0 trials to run, 3 done, 1 skipped" in said
    assert "will not fit (needs about 64 GiB of 32); --try-all measures it" in said
    assert "1 trial to run, 3 done, 0 skipped" in in_one_line(*command, "--try-all")


# Options that can not be meant


@pytest.mark.parametrize("value", ["nan", "-inf", "1e999"])
@pytest.mark.parametrize(
    "options", [["run", "sweep.py", "--node-timeout"], ["compare", "base", "new", "--threshold"]]
)
def test_a_number_that_is_not_finite_is_refused(options: list[str], value: str) -> None:
    done = CliRunner().invoke(cli, [*options, value])
    assert done.exit_code == 2
    assert f"Invalid value for '{options[-1]}'" in done.output


def test_empty_results_are_refused() -> None:
    for options in (
        *(["run", OWN_MODEL, "--results"], ["run", OWN_MODEL, "--in-process", "--results"]),
        *(["plan", OWN_MODEL, "--results"], ["report"], ["recommend"]),
    ):
        with pytest.raises(SweepError, match="results '' is not a place; give a folder or a URI"):
            called(*options, "")
    with pytest.raises(SweepError, match="results '' is not a place"):
        run(Sweep(workload=Gpt(), axes={"workers": [1]}), "", in_process=True)
