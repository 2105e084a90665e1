"""Training loops of the user in a sweep: arguments as axes, and what has no effect on them."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from dtsweep import Sweep, SweepError, workloads
from dtsweep.metrics.rows import point_row
from dtsweep.provenance.sources import sources_of
from dtsweep.report.code import point_code, shell_command
from dtsweep.results.store import Results
from dtsweep.sweep.arguments import check_arguments, command_line
from dtsweep.sweep.axes import candidates, narrow
from dtsweep.sweep.point import Point, identity
from dtsweep.sweep.task import task_of
from dtsweep.sweep.values import column_types, stored_fields, workload_fields
from tests.hostile import write_rows


@pytest.fixture
def script(tmp_path: Path) -> str:
    path = tmp_path / "train.py"
    path.write_text("")
    return str(path)


def sweep_of(script: str, axes: dict[str, Any], **fields: Any) -> Sweep:
    return Sweep(workload=workloads.Script(script, **fields), axes=axes)


PRODUCT = {"samples_per_step": ("batch", "passes")}


def test_arguments_are_axes_and_fields_of_their_own(script: str) -> None:
    axes = {"workers": [1, 2], "args.batch-size": [8, 16], "args.amp": [True, None]}
    sweep = sweep_of(script, axes, arguments=("--data", "x"), args={"lr": 0.1})
    points = [candidate.point for candidate in candidates(sweep)]
    assert len({identity(point) for point in points}) == 8
    assert {point.sync for point in points} == {"as_written"}
    last = points[-1]
    assert dict(last.workload.args) == {"lr": 0.1, "batch-size": 16, "amp": None}
    assert stored_fields(last.workload)["workload_args.batch-size"] == 16
    kinds = column_types(sweep.workload)
    assert (kinds["args.batch-size"], kinds["args.amp"]) == (int, bool)
    task = task_of(sweep, last)
    assert workload_fields(task.point_of(sweep.workload).workload) == workload_fields(last.workload)


def test_arguments_of_several_types_are_stored_as_json(script: str) -> None:
    sweep = sweep_of(script, {"args.size": [1, "large"]})
    assert column_types(sweep.workload)["args.size"] is dict
    assert stored_fields(candidates(sweep)[1].point.workload)["workload_args.size"] == '"large"'


@pytest.mark.parametrize(
    ("axes", "fields", "message"),
    [
        (
            {"micro_batch": [1]},
            {},
            r"'micro_batch' has no effect on .*Script\(names={'micro_batch': 'ARGUMENT'}\)",
        ),
        ({"global_batch": [8]}, {}, "axis 'global_batch' has no effect"),
        ({"args.": [1]}, {}, "axis 'args.' has no name"),
        ({"args.api-key": ["x"]}, {}, "marks a secret"),
        ({"args.a\nb": [1]}, {}, r"axis 'args\.a\\nb' can't be a column of the results; use at"),
        ({f"args.{'x' * 400}": [1]}, {}, "can't be a column of the results; use at most 300"),
        # Where it has no axis.
        ({}, {"args": {"a\tb": 1}}, r"field 'args\.a\\tb' of workload Script can't be a column"),
        ({"args.batch": [4]}, PRODUCT, r"'passes', which is not an argument by name.*axis args\."),
    ],
)
def test_axes_and_names_that_mean_nothing_are_refused(
    script: str, axes: dict[str, Any], fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(SweepError, match=message):
        sweep_of(script, axes, **fields)


SHORT = ("lr[0]", "batch size", "it's", "a,b", "%d", "größe", "+lr", "lr|x", "~x", "$(x)")
NAMES = (*SHORT, "x" * 290)


def test_each_name_that_a_sweep_takes_is_read_back_and_quoted(script: str, tmp_path: Path) -> None:
    axes = {f"args.{name}": [1] for name in NAMES}
    [candidate] = candidates(sweep_of(script, axes))
    fields = stored_fields(candidate.point.workload)
    row = {"attempt_id": "a", "trial_id": "t", "point_id": "p", "status": "ok", "workers": 2}
    row |= {"workload": "Script", "row_number": 0, **fields}
    types = column_types(candidate.point.workload)
    write_rows(tmp_path / "results", "trials", [row], workload_types=types)
    results = Results(tmp_path / "results")
    [stored] = results.attempts()
    assert results.quarantined == []
    assert {name: stored[name] for name in fields} == fields
    code = point_code(pd.Series(stored))
    assert code.startswith("Point(workers=2)\n# ")
    assert all(line.startswith("# ") for line in code.splitlines()[1:])
    command = {"command": json.dumps(["train.py", *command_line([], dict.fromkeys(NAMES, 1))])}
    words = shlex.split(shell_command(pd.Series(stored | command)) or "")
    assert [word for word in words if word.startswith("--") and word[2:] in NAMES] == [
        f"--{name}" for name in NAMES if name[0] != "+"
    ]


def test_axes_of_dtsweep_drive_the_arguments_that_are_named(script: str) -> None:
    axes = {"workers": [1, 2], "micro_batch": [4], "global_batch": [16]}
    names = {"micro_batch": "batch-size", "accumulation": "grad-accum", "learning_rate": "lr"}
    points = [item.point for item in candidates(sweep_of(script, axes, names=names))]
    passes = [{"batch-size": 4, "grad-accum": passes} for passes in (4, 2)]
    assert [point.workload.values(point) for point in points] == passes
    sweep = sweep_of(script, axes, names=names)
    row = point_row(sweep, points[0])
    assert (row["micro_batch"], row["accumulation"], row["learning_rate"]) == (4, 4, None)
    # A sweep that is narrowed still knows all names.
    again = narrow(sweep, {"learning_rate": [0.5]})
    assert candidates(again)[0].point.workload.values(candidates(again)[0].point)["lr"] == 0.5


def test_a_global_batch_is_divided_among_workers_where_passes_are_not_known(script: str) -> None:
    axes = {"workers": [1, 2, 3], "global_batch": [8]}
    listed = candidates(sweep_of(script, axes, names={"global_batch": "total-batch"}))
    values = [item.point.workload.values(item.point) for item in listed[:2]]
    assert values == [{"total-batch": 8}] * 2
    assert listed[2].reason == "global_batch 8 is not a multiple of 3 workers"


def test_a_function_reads_axes_and_arguments() -> None:
    def fine_tune(point: Point) -> None:
        """Train."""

    axes = {"micro_batch": [4, 8], "args.layers": [2]}
    sweep = Sweep(workload=workloads.Loop(fine_tune, args={"width": 16}), axes=axes)
    point = candidates(sweep)[1].point
    assert type(point.workload).__name__ == "fine_tune"
    assert (point.micro_batch, point.args) == (8, {"width": 16, "layers": 2})
    row = point_row(sweep, point)
    assert (row["micro_batch"], row["accumulation"], row["workload_args.layers"]) == (8, None, 2)
    with pytest.raises(SweepError, match="axis 'overlap' has no effect"):
        Sweep(workload=workloads.Loop(fine_tune), axes={"overlap": [True]})


def test_a_script_that_is_not_there_is_named() -> None:
    with pytest.raises(SweepError, match=r"there is no script '.*/nowhere\.py'"):
        workloads.Script("nowhere.py")
    with pytest.raises(SweepError, match=r"there is no script '/no/where\.py'"):
        Sweep(workload=workloads.Script("/no/where.py"), axes={})


def test_a_script_and_what_it_imports_are_sources_and_its_folder_is_no_identity(
    tmp_path: Path,
) -> None:
    identities, sources = set(), []
    for folder, helper in (("a", "X = 1"), ("b", "X = 1"), ("b", "X = 2")):
        place = tmp_path / folder
        place.mkdir(exist_ok=True)
        (place / "train.py").write_text("import helper_of_own_script")
        (place / "helper_of_own_script.py").write_text(helper)
        workload = workloads.Script(str(place / "train.py"))
        identities.add(identity(Point(workload=workload)))
        sources.append(sources_of(workload, file=None).digests)
    assert len(identities) == 1
    first, second, third = sources
    assert first == second
    assert {name for name in second if second[name] != third[name]} == {"helper_of_own_script.py"}
    assert "script train.py" in first


def test_samples_of_a_step_are_the_product_of_arguments(script: str) -> None:
    axes = {"args.batch": [4, 8], "accumulation": [2]}
    of = {"names": {"accumulation": "passes"}, "samples_per_step": ("--batch", "passes")}
    sweep = sweep_of(script, axes, **of)
    points = [task_of(sweep, item.point).point_of(sweep.workload) for item in candidates(sweep)]
    assert [point.workload.given_samples(point) for point in points] == [8, 16]


def test_samples_of_a_step_name_arguments_with_whole_numbers(script: str) -> None:
    sweep = sweep_of(script, {"args.batch": ["large"]}, samples_per_step=("batch",))
    point = candidates(sweep)[0].point
    with pytest.raises(SweepError, match="'batch', whose value 'large' is not a whole number"):
        point.workload.given_samples(point)


# Words of a command line


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"batch_size": 8, "amp": False, "lr": None}, "--batch_size 8"),
        # Where a parser wants name and value in one word, false is a value.
        (
            {"model.bias": False, "--compile": False, "++seed": 1, "--trainer.fast": True},
            "model.bias=False --compile=False ++seed=1 --trainer.fast=True",
        ),
        (dict.fromkeys(["model.bias", "--compile", "++seed", "--trainer.fast"]), ""),
        # A name with one hyphen is a short option.
        ({"-b": 8, "-v": True, "-q": False}, "-b 8 -v"),
    ],
)
def test_values_are_arguments_as_parsers_want_them(values: dict[str, Any], words: str) -> None:
    assert command_line([], values) == words.split()


@pytest.mark.parametrize(
    "arguments",
    [
        ["--hf-token", "hf_abcdefgh"],
        ["--hf_token=hf_abcdefgh"],
        ["run", "login.token=hf_abcdefgh"],
        ["--data", "s3://key:word@bucket/data"],
        ["s3://key:word@bucket/data"],
    ],
)
def test_an_argument_that_holds_a_secret_is_refused_and_not_repeated(arguments: list[str]) -> None:
    with pytest.raises(SweepError, match="arguments are printed and stored") as refused:
        check_arguments(arguments)
    assert "hf_abcdefgh" not in str(refused.value)
    assert "word" not in str(refused.value).replace("password", "")


def test_numbers_and_flags_are_no_secrets() -> None:
    check_arguments(["--max-tokens", "8", "--key-frames", "3", "--with-auth", "--lr", "-1e-3"])
