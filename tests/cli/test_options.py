"""Options that can't be meant are refused in a line, before anything is read or started."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from dtsweep import Sweep, SweepError, run
from dtsweep.cli.commands import cli
from dtsweep.workloads import Gpt
from tests.cli.called import called
from tests.pages import ROOT

OWN_MODEL = str(ROOT / "sweeps" / "own_model.py")


@pytest.mark.parametrize("value", ["nan", "-inf", "1e999"])
@pytest.mark.parametrize(
    "options", [["run", "sweep.py", "--node-timeout"], ["compare", "base", "new", "--threshold"]]
)
def test_a_number_that_is_not_finite_is_refused(options: list[str], value: str) -> None:
    done = CliRunner().invoke(cli, [*options, value])
    assert done.exit_code == 2
    assert f"Invalid value for '{options[-1]}'" in done.output


@pytest.mark.parametrize(
    "options",
    [
        *(["run", OWN_MODEL, "--results"], ["run", OWN_MODEL, "--in-process", "--results"]),
        *(["plan", OWN_MODEL, "--results"], ["report"], ["recommend"]),
    ],
)
def test_empty_results_are_refused(options: list[str]) -> None:
    with pytest.raises(SweepError, match="results '' is not a place"):
        called(*options, "")


def test_a_program_may_not_give_empty_results() -> None:
    with pytest.raises(SweepError, match="results '' is not a place"):
        run(Sweep(workload=Gpt(), axes={"workers": [1]}), "", in_process=True)
