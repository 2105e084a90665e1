"""Faults of a map or a table are said in one line, with their place and the way out."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path

import pytest

from dtsweep.errors import SweepError
from dtsweep.foreign_tables import import_tables
from dtsweep.foreign_tables.map_file import READY, Map, read_map, ready_maps
from tests.conftest import Command
from tests.foreign_tables.maps import MAP, write_map

TABLE = "gpus,batch,step_ms,precision\n1,8,100,bf16\n"


@pytest.mark.parametrize("name", sorted(file.stem for file in READY.glob("*.toml")))
def test_every_ready_map_is_read_by_its_name(name: str) -> None:
    assert isinstance(read_map(name), Map)
    assert name in ready_maps()


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[columns", "is not TOML"),
        ("[column]\nworkers = 1", "no key 'column'; did you mean 'columns'?"),
        (
            "[columns]\nworker = 'gpus'",
            "[columns] worker: no column of results that a table can give; did you mean 'workers'?",
        ),
        ("[columns]\nzebra_stripes = 'gpus'", "a setting of the table's own stands in [settings]"),
        ("[columns]\nworkers = 'gpus'", "[columns] must give one of step_mean_s"),
        ("[columns]\nstep_mean_s = 'step_ms'", "workers is missing"),
        (MAP.replace("step_ms / 1000", "step_ms ^ 2"), "is neither a column nor arithmetic"),
        (MAP.replace("step_ms / 1000", "step_ms /"), "is neither a column nor arithmetic"),
        (MAP.replace("step_ms / 1000", "__import__('os').getcwd()"), "has no column '__import__'"),
        (MAP.replace("step_ms / 1000", "open(step_ms)"), "the table has no column 'open'"),
        (
            MAP.replace("step_ms / 1000", "step_msec"),
            "no column 'step_msec'; did you mean 'step_ms'?",
        ),
        (MAP.replace('"ddp"', '["ddp"]'), "must be a text, a number, true or false"),
        (MAP + "workers = 2\n", "workers stands in [columns] and in [constants]; delete one"),
        (MAP + 'semantics = "exakt"\n', "did you mean 'exact'?"),
        (MAP + "[status]\nok = ['done']", "[status] needs column"),
        (MAP + "[status]\ncolumn = 'gpus'\nfine = ['1']", "[status] fine is no status"),
        (MAP + "[status]\ncolumn = 'gpus'\nok = ['2']", "gpus = '1' is not in [status]"),
        (MAP + "[status]\ncolumn = 'state'\nok = ['2']", "the table has no column 'state'"),
        ("repeats = 'seed'\n" + MAP, "repeats = 'seed' must be a list"),
        (MAP + "[settings]\n'*' = 'config'", "all columns with a prefix are"),
    ],
)
def test_a_mistake_in_a_map_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text(TABLE)
    file = write_map(tmp_path, text)
    with pytest.raises(SweepError, match=re.escape(said)) as caught:
        import_tables([tmp_path / "runs.csv"], read_map(str(file)), results=tmp_path / "results")
    assert "\n" not in str(caught.value)
    assert "map.toml" in str(caught.value)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("runs.xlsx", "PK", "has no known ending; allowed: .csv, .parquet, .json, .jsonl"),
        ("runs.csv", "", "has no rows"),
        ("runs.csv", "gpus,batch\n", "has no rows"),
        ("runs.csv", "gpus,gpus\n1,2\n", "has column 'gpus' twice"),
        ("runs.csv", "gpus,batch,step_ms\n1,8\n", "runs.csv:2 has 2 cells, and the header 3"),
        ("runs.csv", TABLE + "two,8,1,x\n", "runs.csv:3: gpus = 'two' is not a number"),
        ("runs.csv", TABLE + "1.5,8,1,x\n", "runs.csv:3: gpus = 1.5 is not a whole number"),
        ("runs.jsonl", "{}\n", "has no column 'gpus'; it has none"),
        ("runs.jsonl", "[1]\n", "runs.jsonl:1 is '[1]', not an object"),
        ("runs.jsonl", '{"gpus": 1\n', "runs.jsonl:1 is not JSON"),
        ("runs.jsonl", "[" * 100_000, "it is nested too deeply"),
        ("runs.parquet", "PAR1", "can't be read"),
        ("gone.csv", None, "does not exist"),
    ],
)
def test_a_mistake_in_a_table_is_one_line(
    name: str, content: str | None, said: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_text(content)
    table_map = read_map(str(write_map(tmp_path)))
    with pytest.raises(SweepError, match=re.escape(said).replace("'\\[1\\]'", ".*")) as caught:
        import_tables([tmp_path / name], table_map, results=tmp_path / "results")
    assert "\n" not in str(caught.value)


def test_a_folder_without_trials_is_no_experiment(tmp_path: Path) -> None:
    with pytest.raises(SweepError, match="is not an experiment of Ray Tune"):
        import_tables([tmp_path], read_map("ray-tune"), results=tmp_path / "results")


def test_names_with_other_characters_stand_in_backticks(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text("gpus,batch,step time (ms),precision\n1,8,100,bf16\n")
    text = MAP.replace("step_ms / 1000", "`step time (ms)` / 1000")
    file = write_map(tmp_path, text)
    done = import_tables([tmp_path / "runs.csv"], read_map(str(file)), results=tmp_path / "results")
    assert done.kept == 1


def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "runs.csv")
    assert stat.S_ISFIFO((tmp_path / "runs.csv").stat().st_mode)
    with pytest.raises(SweepError, match="is not a file"):
        import_tables(
            [tmp_path / "runs.csv"], read_map(str(write_map(tmp_path))), results=tmp_path / "r"
        )


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no table"),
        (["runs.csv", "--map", "map.toml"], "--results is missing"),
        (["runs.csv", "--map", "ray-tuna", "--results", "r"], "did you mean 'ray-tune'?"),
        (["runs.csv", "--map", "none.toml", "--results", "r"], "can't be read: No such file"),
        (["runs.csv", "--map", "map.toml", "--results", "r", "--set", "x"], "must be NAME=VALUE"),
    ],
)
def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "runs.csv").write_text(TABLE)
    write_map(tmp_path)
    done = forked_command("import", *arguments, folder=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert said in done.stderr
