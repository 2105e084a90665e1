"""An experiment of Ray Tune, as Ray 2.60 left it on disk, becomes results."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import dtsweep
from dtsweep.analysis import Study
from dtsweep.foreign_tables import import_tables
from dtsweep.foreign_tables.map_file import read_map
from tests.conftest import Command
from tests.pages import ROOT

TOY = ROOT / "tests" / "data" / "ray_tune" / "toy"


def test_a_trial_is_a_row_with_its_configuration_and_seeds_are_repeats(tmp_path: Path) -> None:
    done = import_tables([TOY], read_map("ray-tune"), results=tmp_path)
    assert (done.source, done.rows, done.points) == ("toy", 12, 6)
    frame = dtsweep.load(tmp_path)
    assert frame["status"].value_counts().to_dict() == {"ok": 10, "user_error": 2}
    assert set(frame["workload_optimizer.lr"]) == {0.1}
    assert "workload_seed" not in frame
    assert "workload_batch_size" not in frame
    points = Study(frame).points
    assert set(points["launches"]) == {2}
    shapes = points[["workers", "micro_batch"]].itertuples(index=False, name=None)
    assert set(shapes) == {(1, 16), (1, 32), (1, 64), (2, 16), (2, 32)}


def test_a_step_is_the_mean_time_between_reports_after_the_first(tmp_path: Path) -> None:
    import_tables([TOY], read_map("ray-tune"), results=tmp_path)
    frame = dtsweep.load(tmp_path).set_index("imported_from")
    for name, row in frame[frame["status"] == "ok"].iterrows():
        lines = (TOY / str(name) / "result.json").read_text().splitlines()
        seconds = [json.loads(line)["time_this_iter_s"] for line in lines][1:]
        assert row["step_mean_s"] == pytest.approx(sum(seconds) / len(seconds))
        assert row["samples_per_s"] == pytest.approx(row["global_batch"] / row["step_mean_s"])


def test_a_trial_that_failed_says_why(tmp_path: Path) -> None:
    import_tables([TOY], read_map("ray-tune"), results=tmp_path)
    frame = dtsweep.load(tmp_path)
    failed = frame[frame["status"] == "user_error"]
    assert set(failed["reason"]) == {"RuntimeError: out of luck"}


def test_one_trial_can_be_imported_by_its_reports(tmp_path: Path) -> None:
    trial = sorted(TOY.iterdir())[0]
    done = import_tables([trial / "result.json"], read_map("ray-tune"), results=tmp_path)
    assert (done.rows, done.kept, done.source) == (1, 1, "toy")
    # The same trial among all of them is not another one.
    assert import_tables([TOY], read_map("ray-tune"), results=tmp_path).added == 11


def test_a_trial_that_never_reported_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "experiment" / "one").mkdir(parents=True)
    (tmp_path / "experiment" / "one" / "params.json").write_text('{"batch_size": 4}')
    done = import_tables(
        [tmp_path / "experiment"], read_map("ray-tune"), results=tmp_path / "results"
    )
    assert dict(done.skipped) == {"its status is to be skipped": ["one"]}
    assert done.added == 0


def test_the_command_says_what_became_of_the_rows(tmp_path: Path, forked_command: Command) -> None:
    command = ["import", TOY, "--map", "ray-tune", "--results", "results"]
    done = forked_command(*command, folder=tmp_path)
    assert done.stdout.splitlines() == [
        "toy · 12 rows: 12 kept (6 points), 0 flagged, 0 skipped",
        "12 rows added to results. Next: dtsweep report results",
    ]
    again = forked_command(*command, folder=tmp_path)
    assert again.stdout.splitlines()[-1] == "Nothing new: results has all of them."
    report = forked_command("report", "results", folder=tmp_path)
    assert report.returncode == 0, report.stderr
    text = " ".join(report.stdout.split())
    assert "Next: import a table with more rows of these points" in text
    assert "2 user_error RuntimeError: out of luck" in text
    assert "canar" not in text.lower()
