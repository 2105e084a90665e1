"""An experiment of Ray Tune, as Ray 2.60 left it on disk, becomes results."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import dtsweep
from dtsweep.analysis import Study
from dtsweep.errors import SweepError
from dtsweep.foreign_tables import import_tables
from dtsweep.foreign_tables.map_file import read_map
from dtsweep.foreign_tables.table import MOST_BYTES
from tests.conftest import Command
from tests.pages import ROOT

TOY = ROOT / "tests" / "data" / "ray_tune" / "toy"
RAY_TUNE = read_map("ray-tune").with_constants(["accumulation=1"])


def test_a_trial_is_a_row_with_its_configuration_and_seeds_are_repeats(tmp_path: Path) -> None:
    done = import_tables([TOY], RAY_TUNE, results=tmp_path)
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
    import_tables([TOY], RAY_TUNE, results=tmp_path)
    frame = dtsweep.load(tmp_path).set_index("imported_from")
    for name, row in frame[frame["status"] == "ok"].iterrows():
        lines = (TOY / str(name) / "result.json").read_text().splitlines()
        seconds = [json.loads(line)["time_this_iter_s"] for line in lines][1:]
        assert row["step_mean_s"] == pytest.approx(sum(seconds) / len(seconds))
        assert row["samples_per_s"] == pytest.approx(row["global_batch"] / row["step_mean_s"])


def test_one_trial_can_be_imported_by_its_folder(tmp_path: Path) -> None:
    trial = sorted(TOY.iterdir())[0]
    table_map = RAY_TUNE.with_constants(["source=toy", "workload=toy"])
    done = import_tables([trial], table_map, results=tmp_path)
    assert (done.rows, done.kept, done.source) == (1, 1, "toy")
    # The same trial among all of them is not another one.
    assert import_tables([TOY], RAY_TUNE, results=tmp_path).added == 11


def test_a_trial_that_never_reported_is_skipped(tmp_path: Path) -> None:
    (tmp_path / "experiment" / "one").mkdir(parents=True)
    (tmp_path / "experiment" / "one" / "params.json").write_text('{"num_workers": 4}')
    done = import_tables([tmp_path / "experiment"], RAY_TUNE, results=tmp_path / "results")
    assert dict(done.skipped) == {"its status is to be skipped": ["one"]}
    assert done.added == 0


def experiment(folder: Path, configuration: dict[str, Any], reports: str) -> Path:
    trial = folder / "experiment" / "one"
    trial.mkdir(parents=True)
    (trial / "params.json").write_text(json.dumps(configuration))
    (trial / "result.json").write_text(reports)
    return folder / "experiment"


REPORTS = '{"step_time": 0.1}\n{"step_time": 0.2}\n'


def test_workers_are_those_of_ray_train(tmp_path: Path) -> None:
    configuration = {
        "scaling_config": {"num_workers": 4},
        "train_loop_config": {"batch_size": 8, "gradient_accumulation_steps": 2},
    }
    folder = experiment(tmp_path, configuration, REPORTS)
    import_tables([folder], read_map("ray-tune"), results=tmp_path / "results")
    (trial,) = dtsweep.load(tmp_path / "results").to_dict("records")
    assert (trial["workers"], trial["micro_batch"], trial["accumulation"]) == (4, 8, 2)


def test_a_configuration_without_workers_is_refused(tmp_path: Path) -> None:
    folder = experiment(tmp_path, {"batch_size": 8}, REPORTS)
    with pytest.raises(SweepError, match=r"gives workers; add --set workers=1"):
        import_tables([folder], RAY_TUNE, results=tmp_path / "results")


@pytest.mark.parametrize("kind", ["pipe", "link", "size"])
def test_a_configuration_that_is_not_a_small_file_is_refused(kind: str, tmp_path: Path) -> None:
    folder = experiment(tmp_path, {"num_workers": 2}, REPORTS)
    (file,) = folder.rglob("params.json")
    if kind == "size":
        file.write_text(" " * (MOST_BYTES + 1))
    else:
        file.unlink()
    if kind == "pipe":
        os.mkfifo(file)
    if kind == "link":
        (tmp_path / "own.json").write_text("{}")
        file.symlink_to(tmp_path / "own.json")
    with pytest.raises(SweepError, match=r"experiment.* can't be read: it (is a|has) "):
        import_tables([folder], RAY_TUNE, results=tmp_path / "results")


def test_a_report_that_a_killed_trial_cut_is_left_out(tmp_path: Path) -> None:
    folder = experiment(tmp_path, {"num_workers": 2}, REPORTS + '{"step_ti')
    import_tables([folder], RAY_TUNE, results=tmp_path / "results")
    assert dtsweep.load(tmp_path / "results")["step_mean_s"].tolist() == [0.2]


def test_the_command_says_what_became_of_the_rows(tmp_path: Path, forked_command: Command) -> None:
    command = ["import", TOY, "--map", "ray-tune", "--results", "results"]
    command += ["--set", "accumulation=1"]
    done = forked_command(*command, folder=tmp_path)
    assert done.stdout.splitlines() == [
        "toy · 12 rows: 12 kept (6 points), 0 flagged, 0 skipped",
        "12 rows added to results, 0 in place of earlier ones. Next: dtsweep report results",
    ]
    again = forked_command(*command, folder=tmp_path)
    assert again.stdout.splitlines()[-1] == "Nothing new: results has all of them."
    report = forked_command("report", "results", folder=tmp_path)
    assert report.returncode == 0, report.stderr
    text = " ".join(report.stdout.split())
    assert "Over 100 more launches of each would be needed." in text
    assert "2 user_error RuntimeError: out of luck" in text
    assert "canar" not in text.lower()
