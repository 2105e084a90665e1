"""Rows are points and repeats by their settings and values, whatever their tables are called."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import dtsweep
from dtsweep.foreign_tables import Imported, import_tables
from dtsweep.foreign_tables.map_file import read_map
from tests.foreign_tables.maps import columns_of, write_map

COLUMNS = {
    "workers": "gpus",
    "micro_batch": "batch",
    "step_mean_s": "step_s",
    "samples_per_s": "rate",
    "backend": "backend",
    "model_parallel": "tensor",
}
SETTINGS = {"lr": "lr", "commit": "commit"}
CONSTANTS = ["accumulation=1", "sync=ddp", "source=lab"]


def stored(folder: Path, text: str, *, name: str = "runs.csv") -> tuple[Imported, pd.DataFrame]:
    """Import a table; lines are separated by spaces."""
    (folder / name).write_text("\n".join(text.split()) + "\n")
    header = text.split(maxsplit=1)[0].split(",")
    parts = f"[columns]\n{columns_of(COLUMNS, header)}\n[settings]\n{columns_of(SETTINGS, header)}"
    table_map = read_map(str(write_map(folder, parts)), CONSTANTS)
    done = import_tables([folder / name], table_map, results=folder / "results")
    return done, dtsweep.load(folder / "results")


def steps(frame: pd.DataFrame) -> list[Any]:
    return sorted(frame["step_mean_s"])


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("backend", ("nccl", "gloo")),
        ("tensor", ("1", "2")),
        ("commit", ("12e9999", "77e4321")),
        ("commit", ("5e00", "5.0")),
        ("commit", ("1.2.3e5", "1.2.3e6")),
    ],
)
def test_rows_that_differ_in_a_setting_are_two_points(
    name: str, values: tuple[str, str], tmp_path: Path
) -> None:
    rows = " ".join(f"2,8,0.1,{value}" for value in values)
    done, frame = stored(tmp_path, f"gpus,batch,step_s,{name} {rows}")
    assert done.points == 2
    assert frame["repeat"].tolist() == [1, 1]


def test_whole_numbers_are_equal_however_they_are_written(tmp_path: Path) -> None:
    done, frame = stored(tmp_path, "gpus,batch,step_s,lr 2,8,0.1,1 2,8,0.11,1.0 2,8,0.12,2.5")
    assert done.points == 2
    assert frame["repeat"].tolist() == [1, 2, 1]


def test_tables_of_other_names_are_added_and_renamed_ones_are_not(tmp_path: Path) -> None:
    stored(tmp_path, "gpus,batch,step_s 2,8,0.1 2,8,0.11", name="one.csv")
    done, frame = stored(tmp_path, "gpus,batch,step_s 2,8,0.2 2,8,0.3", name="two.csv")
    assert done.added == 2
    assert steps(frame) == [0.1, 0.11, 0.2, 0.3]
    assert sorted(frame["repeat"]) == [1, 2, 3, 4]
    done, _ = stored(tmp_path, "gpus,batch,step_s 2,8,0.3 2,8,0.2", name="three.csv")
    assert done.added == 0
    # A changed row is a further repeat; equal rows of one table are all kept, once.
    for added in (2, 0):
        done, frame = stored(tmp_path, "gpus,batch,step_s 2,8,0.4 2,8,0.4", name="two.csv")
        assert done.added == added
    assert steps(frame) == [0.1, 0.11, 0.2, 0.3, 0.4, 0.4]
