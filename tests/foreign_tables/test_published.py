"""Published tables give the frontier, speed-ups and efficiencies that their own columns give."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest

import dtsweep
from dtsweep.analysis import Study, frontier, scaling
from dtsweep.foreign_tables import import_tables
from dtsweep.foreign_tables.map_file import read_map
from tests.foreign_tables.maps import write_map
from tests.foreign_tables.published import JOBS, LADDER, MAP, folder_of, rows_of

pytestmark = pytest.mark.slow

POINT = ["workers", "hosts", "uneven", "local_bsz"]


@pytest.fixture(scope="module", params=JOBS)
def job(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def study(job: str, tmp_path_factory: pytest.TempPathFactory) -> Study:
    folder = tmp_path_factory.mktemp(job)
    results = folder / "results"
    rows_of(job).drop(columns="rate").to_csv(folder / "rows.csv", index=False)
    table_map = read_map(str(write_map(folder, MAP)))
    imported = import_tables([folder / "rows.csv"], table_map, results=results)
    assert imported.rows == imported.kept == imported.added == len(rows_of(job))
    return Study(dtsweep.load(results))


def test_the_frontier_is_that_of_brute_force_over_the_columns(job: str, study: Study) -> None:
    # By the logarithmic means over launches, no other point is as good in both and better in one.
    rows = rows_of(job)
    rows = rows.assign(log_step=np.log(rows["step_time"]), log_rate=np.log(rows["rate"]))
    points = rows.groupby(POINT)[["log_step", "log_rate"]].mean().reset_index()
    step, rate = (points[name].to_numpy()[:, None] for name in ("log_step", "log_rate"))
    no_worse = (step + 1e-12 >= step.T) & (rate - 1e-12 <= rate.T)
    better = (step - 1e-12 > step.T) | (rate + 1e-12 < rate.T)
    best = points[~(no_worse & better).any(axis=1)]
    expected = {*best[["workers", "hosts", "local_bsz"]].itertuples(index=False, name=None)}

    computed = frontier(study)
    assert len(computed) == len(points)
    unbeaten = computed[computed["standing"] == "frontier"]
    columns = ["workers", "hosts", "micro_batch"]
    assert {*unbeaten[columns].itertuples(index=False, name=None)} == expected
    assert 5 < len(unbeaten) == len(best) < len(points) / 2
    # A point that is beaten by less than noise is undecided, and no point is lost.
    assert set(computed["standing"]) == {"frontier", "undecided", "dominated"}


def test_efficiency_of_the_published_ladder_is_the_published_one(tmp_path: Path) -> None:
    table = folder_of("ladder") / "resnet50_v100.csv"
    import_tables([table], read_map(str(write_map(tmp_path, LADDER))), results=tmp_path / "r")
    computed = scaling(dtsweep.load(tmp_path / "r")).set_index("workers")["efficiency"]
    known = pd.read_csv(table).set_index("gpus")["published_efficiency"]
    # Its authors cut the fourth digit: 47,195 / (64 × 872) is 0.8457, and 0.845 in the table.
    assert dict(np.floor(computed * 1000) / 1000) == {1: 1.0, **known.dropna()}
    rates = pd.read_csv(table).set_index("gpus")["images_per_s"]
    assert dict(dtsweep.load(tmp_path / "r").set_index("workers")["samples_per_s"]) == dict(rates)
