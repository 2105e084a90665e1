"""AGENTS.md and docs/agents.md: their commands are there, and the example runs."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from dtsweep.cli import cli
from tests.conftest import Command
from tests.pages import ROOT, tables
from tests.schemas import check_output

AGENTS = (ROOT / "AGENTS.md").read_text("utf-8")
PAGE = (ROOT / "docs/agents.md").read_text("utf-8")
COMMANDS = "".join(re.findall(r"^```bash\n(.*?)^```$", AGENTS, re.M | re.S)).splitlines()
(EXAMPLE,) = re.findall(r"^```sh\n(.*?)^```$", PAGE, re.M | re.S)


def test_both_are_short() -> None:
    assert (len(AGENTS.splitlines()) <= 70, len(PAGE.splitlines()) <= 80) == (True, True)


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
@pytest.mark.parametrize("line", [line for line in COMMANDS if line.startswith("make ")])
def test_a_target_that_agents_md_names_is_there(line: str) -> None:
    done = subprocess.run(
        ["make", "-n", *line.split()[1:]], cwd=ROOT, capture_output=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_other_commands_of_agents_md_run_tests_that_are_there() -> None:
    others = [shlex.split(line) for line in COMMANDS if not line.startswith("make ")]
    for words in others:
        assert words[:3] == [".venv/bin/python", "-m", "pytest"]
        assert all((ROOT / word).is_file() for word in words[3:] if not word.startswith("-"))
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", AGENTS)
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_exit_codes_of_every_command_are_listed() -> None:
    rows = tables("agents.md", first="command")
    named = {name for row in rows for name in re.findall(r"`(\w+)`", row["command"])}
    assert named == cli.commands.keys() - {"claim"}


@pytest.mark.slow
def test_the_example_ends_as_the_page_says(tmp_path: Path, forked_command: Command) -> None:
    shutil.copytree(ROOT / "sweeps", tmp_path / "sweeps")
    for line in EXAMPLE.splitlines():
        words = shlex.split(line)
        if words[0] == "dtsweep":
            done = forked_command(*words[1:], folder=tmp_path)
        else:
            done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    check_output("compare", found)
    assert (found["verdict"], found["source"]) == ("unknown", ["the class NextLetter changed"])
    assert {row["verdict_reason"] for row in found["rows"]} == {"one_launch_each"}
