"""Commands that read results, as a user calls them.

`tests/test_readme.py` starts each of them in a process with imports of its own.
"""

from __future__ import annotations

import io
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dtsweep import load
from dtsweep.analysis import Study
from dtsweep.cli.predictions import predictions_of, print_predictions
from dtsweep.errors import SweepError
from tests import frames
from tests.cli.called import as_json, called, in_one_line
from tests.pages import ROOT, make_study


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Results of batchsize.py, one launch of each point."""
    folder = tmp_path_factory.mktemp("study")
    make_study(folder)
    return folder / "results" / "batchsize"


def test_recommend_gives_the_answer_and_the_code(study: Path) -> None:
    said = in_one_line("recommend", study)
    assert said.startswith("For now take ddp workers=2 micro_batch=64 accumulation=1: best of 10")
    assert "Likely the best: it leads by more than launches of a point differ" in said
    assert "Next: run the same command again: it continues." in said
    assert "Point(workers=2, micro_batch=64" in said


def test_recommend_keeps_to_a_condition_and_prints_json(study: Path) -> None:
    where = "latency_s <= 50ms and workers < 2"
    (found,) = as_json("recommend", study, "--maximize", "samples_per_s", "--where", where)
    goal: dict[str, object] = {"maximize": "samples_per_s", "minimize": None, "where": where}
    training = {"target": None, "train_samples": None, "longest_s": 600.0}
    assert found["goal"] == goal | training | {"allow": [], "least_rate": 0.0}
    point = found["point"]
    assert (point["latency_s"] <= 0.05, point["workers"], "row" in point) == (True, 1, False)
    assert (found["settings"], found["drift"]) == ({"micro_batch": 16}, None)
    assert found["code"]["point"].splitlines()[0] == "Point(micro_batch=16)"
    assert "workload.width=64" in found["code"]["point"]
    assert found["code"]["command"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["recommend", "--where", "latncy_s <= 1"], "did you mean 'latency_s'"),
        (
            ["recommend", "--goal", "cost", "--maximize", "mfu"],
            "leave --maximize and --minimize out",
        ),
        (["recommend", "--allow", "local;stale"], "allow some of lossy, stale, local"),
        (["report", "--with-hosts"], "add --html FILE"),
        (["report", "--html", "/no/a.html"], "/no/a.html can't be written"),
        (["predict"], "predict needs settings: add 'workers=8 micro_batch=16' in quotes"),
    ],
)
def test_a_question_without_an_answer_is_refused_in_one_line(
    arguments: list[str], said: str, study: Path
) -> None:
    with pytest.raises(SweepError, match=said) as refused:
        called(*arguments, study)
    assert "\n" not in str(refused.value)


@pytest.mark.slow
def test_a_condition_holds_for_the_whole_report(study: Path) -> None:
    asked = ("--where", "workers<=1")
    told = as_json("report", study, *asked)
    assert {row["workers"] for row in told["frontier"] if row["on_frontier"]} == {1}
    assert told["scaling"] == told["worthwhile"] == []
    said = in_one_line("report", study, *asked)
    assert "workers<=1" in said


# Predictions

SAMPLE = str(ROOT / "notebooks" / "samples" / "campaign")


def printed(predictions: list[Any], *, width: int = 80) -> str:
    written = io.StringIO()
    print_predictions(predictions, console=Console(file=written, width=width))
    assert max(map(len, written.getvalue().splitlines())) <= width
    return " ".join(written.getvalue().split())


def test_rows_have_intervals_and_a_distance() -> None:
    study = Study(load(SAMPLE, canaries=True))
    said = printed(predictions_of(study, ["workers=2,64 micro_batch=8,16 sync=ddp"]))
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
    rows: list[dict[str, Any]] = [
        {"micro_batch": batch, "hosts": hosts, "samples_per_s": 100.0 * batch}
        for batch, hosts in product((4, 16), (1, 2))
    ]
    study = Study(frames.trials(*rows, workers=4))
    (found,) = predictions_of(study, ["nodes=1,2 micro_batch=8 workers=4"])
    assert found.table["nodes"].tolist() == [1, 2]
    assert " nodes " in printed([found], width=100)
    with pytest.raises(SweepError, match="nodes=8 must be a whole number from 1 to the 4 workers"):
        predictions_of(study, ["nodes=8 workers=4"])
    # Trials without a micro batch predict nothing.
    study = Study(frames.trials({"micro_batch": None, "samples_per_s": 10.0}))
    with pytest.raises(SweepError, match="no trial that ended ok has a rate, workers and a micro"):
        predictions_of(study, ["workers=4"])
