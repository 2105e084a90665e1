"""`dtsweep predict`, as a user runs it."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from dtsweep import load
from dtsweep.analysis import Study
from dtsweep.errors import SweepError
from dtsweep.report.predictions import predictions_of, print_predictions
from tests import frames
from tests.cli.called import as_json, called
from tests.pages import ROOT

SAMPLE = str(ROOT / "notebooks" / "samples" / "campaign")


def test_rows_have_intervals_and_a_distance() -> None:
    study = Study(load(SAMPLE, canaries=True))
    predictions = predictions_of(study, ["workers=2,64 micro_batch=8,16 sync=ddp"])
    written = io.StringIO()
    print_predictions(predictions, console=Console(file=written, width=80))
    assert max(map(len, written.getvalue().splitlines())) <= 80
    said = " ".join(written.getvalue().split())
    assert said.startswith("Predicted by 8 measured points:")
    for part in (
        "± and ranges are 90 % intervals",
        " near ",
        "$ per M samples",
        "ddp workers=64 micro_batch=8: unsupported: measured up to 2 workers; predictions reach 8.",
        "Settings that were not given are those of ddp workers=2 micro_batch=16 (",
    ):
        assert part in said


def test_nodes_are_a_setting_and_a_column_where_they_vary() -> None:
    rows = [
        {"workers": 4, "micro_batch": batch, "hosts": hosts, "samples_per_s": 100.0 * batch}
        for batch in (4, 16)
        for hosts in (1, 2)
    ]
    study = Study(frames.trials(*rows))
    (found,) = predictions_of(study, ["nodes=1,2 micro_batch=8 workers=4"])
    assert found.table["nodes"].tolist() == [1, 2]
    written = io.StringIO()
    print_predictions([found], console=Console(file=written, width=100))
    assert " nodes " in written.getvalue()
    with pytest.raises(SweepError, match="nodes=8 must be a whole number from 1 to the 4 workers"):
        predictions_of(study, ["nodes=8 workers=4"])


def test_json_has_the_same_numbers() -> None:
    (found,) = as_json("predict", SAMPLE, "micro_batch=8 sync=ddp")
    assert found["measured_points"] == 8
    (row,) = found["predictions"]
    assert row["samples_per_s_low"] < row["samples_per_s"] < row["samples_per_s_high"]
    assert (row["micro_batch"], row["workers"], row["sync"]) == (8, 2, "ddp")
    assert (row["where"], row["reason"]) == ("near", None)


def test_trials_without_a_micro_batch_predict_nothing() -> None:
    study = Study(frames.trials({"micro_batch": None, "samples_per_s": 10.0}))
    with pytest.raises(SweepError, match="no trial that ended ok has a rate, workers and a micro"):
        predictions_of(study, ["workers=4"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([SAMPLE], "predict needs settings: add 'workers=8 micro_batch=16' in quotes"),
        ([SAMPLE, "wrkers=8"], "setting 'wrkers' is unknown; did you mean 'workers'"),
        ([SAMPLE, "workers=8 workers=4"], "workers is set twice"),
    ],
)
def test_mistakes_are_one_line(arguments: list[str], message: str) -> None:
    with pytest.raises(SweepError, match=f"^{re.escape(message)}.*$"):
        called("predict", *arguments)
