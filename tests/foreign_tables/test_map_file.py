"""Faults of a map or a table are said in one line, with their place and the way out."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from dtsweep.errors import SweepError
from dtsweep.foreign_tables import import_tables
from dtsweep.foreign_tables.map_file import read_map
from tests.cli.called import called
from tests.conftest import Command
from tests.foreign_tables.maps import MAP, imported, write_map

TABLE = "gpus,batch,step_ms,precision\n1,8,100,bf16\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[columns", "can't be read: "),
        ("[column]\nworkers = 1", "column is not a table of a map"),
        ("[columns]\nworker = 'gpus'", "a table can't give it; did you mean 'workers'?"),
        (MAP.replace("step_ms / 1000", "step_ms ^ 2"), "is neither a column nor arithmetic"),
        (MAP.replace("step_ms / 1000", "__import__('os').getcwd()"), "has no column '__import__'"),
        (MAP.replace("step_ms / 1000", "step_m"), "no column 'step_m'; did you mean 'step_ms'?"),
        (MAP.replace('"ddp"', '["ddp"]'), "[constants] sync must be a text or a number"),
        (MAP + "[read]\nseparator = ';'\n", "[read] separator: a table can't give it"),
    ],
)
def test_a_mistake_in_a_map_is_one_line(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(SweepError, match=re.escape(said)) as caught:
        imported(tmp_path, TABLE, text)
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("runs.csv", "", "No columns to parse"),
        ("runs.csv", "gpus,batch,step_ms\n1,8\n", "line 2 has fewer cells than the header"),
        ("runs.csv", TABLE + "two,8,1,x\n", "runs.csv:3: gpus = 'two' is not a number"),
        ("runs.csv", TABLE + "1.5,8,1,x\n", "runs.csv:3: gpus = 1.5 is not a whole number"),
        ("runs.jsonl", "{}\n", "has no rows"),
        ("runs.jsonl", "[" * 100_000, "maximum recursion depth"),
    ],
)
def test_a_mistake_in_a_table_is_one_line(
    name: str, content: str, said: str, tmp_path: Path
) -> None:
    with pytest.raises(SweepError, match=re.escape(said)) as caught:
        imported(tmp_path, content, name=name)
    assert "\n" not in str(caught.value)


def test_a_file_that_is_gone_and_a_pipe_are_refused_and_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.csv")
    table_map = read_map(str(write_map(tmp_path)))
    for name, said in (("gone.csv", "No such file"), ("pipe.csv", "it is a pipe, not a file")):
        with pytest.raises(SweepError, match=said):
            import_tables([tmp_path / name], table_map, results=tmp_path / "r")


def test_a_mistake_on_the_command_line_is_one_line_and_exit_code_2(
    tmp_path: Path, forked_command: Command
) -> None:
    (tmp_path / "runs.csv").write_text(TABLE)
    write_map(tmp_path)
    done = forked_command("import", "runs.csv", "--map", "map.toml", folder=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "--results is missing" in done.stderr
    command = ("import", tmp_path / "runs.csv", "--results", tmp_path / "r", "--map")
    with pytest.raises(SweepError, match=r"can't be read: \[Errno 2\] No such file"):
        called(*command, tmp_path / "none.toml")
    with pytest.raises(SweepError, match="must be NAME=VALUE"):
        called(*command, tmp_path / "map.toml", "--set", "x")
