"""The example sweeps: each asks one question and can be planned."""

from __future__ import annotations

from io import StringIO
from itertools import product
from pathlib import Path

import pytest
from rich.console import Console

from dtsweep.cli.plan_table import print_plan
from dtsweep.driver.progress import short_name
from dtsweep.plan.plan import make_plan
from dtsweep.sweep.compressions import COMPRESSIONS
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Sweep

FOLDER = Path(__file__).parents[1] / "sweeps"
FILES = sorted(FOLDER.glob("*.py"))


def possible(name: str) -> tuple[Sweep, list[Point]]:
    """A sweep, and its points that are not skipped."""
    sweep, found = read_sweep(FOLDER / name)
    return sweep, [candidate.point for candidate in found if candidate.reason is None]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_asks_one_question_and_has_points(file: Path) -> None:
    question = file.read_text("utf-8").splitlines()[0]
    assert question.startswith('"""')
    assert question.removesuffix('"""').endswith("?")
    assert question.count("?") == 1
    assert possible(file.name)[1]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_an_example_fits_on_two_cores(file: Path) -> None:
    sweep, points = possible(file.name)
    workers = max(point.workers for point in points)
    assert workers * (sweep.resources.cpus_per_worker or 1) <= 2


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_the_plan_of_an_example_names_its_points_whole_on_a_narrow_terminal(file: Path) -> None:
    sweep, found = read_sweep(file)
    plan = make_plan(sweep, found, [])
    text = StringIO()
    print_plan(plan, None, console=Console(file=text, width=80), where="results", axes=sweep.axes)
    words = {word for trial in plan.to_run for word in short_name(trial.point, sweep.axes).split()}
    assert words <= set(text.getvalue().split())


def test_sync_modes_has_all_modes_and_goes_from_exact_to_unbounded() -> None:
    _, points = possible("sync_modes.py")
    # Workers that share memory need another placement.
    apart = {name for name, mode in MODES.items() if not mode.shares_memory}
    assert {point.sync for point in points} == apart
    servers = [point for point in points if point.sync == "parameter_server"]
    bounds = {(point.staleness, point.shards) for point in servers}
    assert bounds == {*product((0, 2, None), (1, 2))}
    periods = {point.sync_period for point in points if point.sync == "local_sgd"}
    assert periods == {2, 8, 32}
    assert {point.semantics for point in points} == {"exact", "stale", "local"}


def test_compression_has_every_compression_in_every_mode_that_it_lists_and_none_beside_it() -> None:
    sweep, points = possible("compression.py")
    pairs = {(point.sync, point.compression) for point in points}
    assert pairs == {(sync, name) for sync in sweep.axes["sync"] for name in (None, *COMPRESSIONS)}


def test_own_model_is_a_class_of_ones_own_in_30_lines() -> None:
    assert len((FOLDER / "own_model.py").read_text("utf-8").splitlines()) <= 30
    sweep, _ = possible("own_model.py")
    assert not type(sweep.workload).__module__.startswith("dtsweep.")
