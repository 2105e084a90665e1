"""Commands show results of somebody who means harm as text, and are not ordered about."""

from __future__ import annotations

import json
import re
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from dtsweep.cli import commands
from dtsweep.driver.progress import Progress
from dtsweep.errors import CONTROL, SweepError
from dtsweep.results.run_record import FOLDER, RunningTrial, RunRecord
from dtsweep.sweep.point import Point
from tests.hostile import PAYLOADS, store_hostile

NAMES = {
    "newline": PAYLOADS["newline"],
    "all": "".join(PAYLOADS[name] for name in ("terminal", "bidi", "markup", "script", "equals")),
}
"""Payloads of the rows; more of them would be more frontiers."""

FORGED = re.compile(r"^ {0,2}99  forged row", re.MULTILINE)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = store_hostile(tmp_path_factory.mktemp("hostile") / "results", NAMES)
    bad = PAYLOADS["newline"]
    texts: dict[str, Any] = {"sweep": "".join(PAYLOADS.values()), "host": bad, "reason": bad}
    times = {"started_at": 1.0, "updated_at": 2.0, "ended_at": 2.0}
    counts: dict[str, Any] = {"pid": 1, "statuses": {bad: 1}, "node_s": {bad: 0.0}}
    running = (RunningTrial(trial_id="a", name=bad, since=1.0),)
    one = RunRecord(run_id="one", ended_as="failed", running=running, **texts, **times, **counts)
    (folder / FOLDER).mkdir()
    (folder / FOLDER / f"{one.run_id}.json").write_bytes(one.to_json())
    return folder


def without_colours(text: str) -> str:
    """The text without what is ours of what orders a terminal about."""
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


COMMANDS = [
    (("report", "{}"), True),
    (("report", "{}", "--all"), False),
    (("recommend", "{}"), True),
    (("status", "{}"), True),
    (("status", "{}"), False),
    (("difference", "{}", "workers=1", "workers=2"), False),
]


@pytest.mark.parametrize(("command", "is_terminal"), COMMANDS)
def test_a_command_prints_no_order_and_no_forged_line(
    command: tuple[str, ...],
    is_terminal: bool,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    # No line is wrapped.
    monkeypatch.setenv("COLUMNS", "100000")
    if is_terminal:
        monkeypatch.setenv("FORCE_COLOR", "1")
    code = run(command, folder, monkeypatch)
    out, err = capsys.readouterr()
    assert "Traceback" not in err
    assert code in (0, 2)
    assert "owned" in out + err or "forged row" in out + err
    for text in (out, err):
        assert CONTROL.findall(without_colours(text)) == []
        assert FORGED.findall(without_colours(text)) == []


@pytest.mark.parametrize("command", ["report", "status"])
def test_json_is_ascii_and_says_what_is_stored(
    command: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run((command, "{}", "--json"), folder, monkeypatch) == 0
    out, _ = capsys.readouterr()
    assert out.isascii()
    assert CONTROL.findall(out) == []
    assert "\u202egpj" in json.dumps(json.loads(out), ensure_ascii=False)


def run(command: tuple[str, ...], folder: Path, monkeypatch: pytest.MonkeyPatch) -> int:
    """Exit status of a command."""
    words = [word.format(folder) for word in command]
    monkeypatch.setattr("sys.argv", ["dtsweep", *words])
    with pytest.raises(SystemExit) as end:
        commands.main()
    assert isinstance(end.value.code, int)
    return end.value.code


# Lines of progress and of errors

HOSTILE = "lost\x1b]0;owned\x07 \x9b31mred\r\x1b[2J end"
SHOWN = r"lost\x1b]0;owned\x07 \x9b31mred\r\x1b[2J end"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_of_progress_shows_hostile_names_and_reasons_as_text(is_terminal: bool) -> None:
    out = StringIO()
    console = Console(file=out, width=400, force_terminal=is_terminal)
    progress = Progress(axes=["env.NAME"], console=console)
    progress.total = 1
    point = Point(environment={"NAME": "a\n[9/9] forged: median 1 ms/step"})
    progress.ended(point, {"status": "rank_died", "reason": HOSTILE, "repeat": 1})
    text = without_colours(out.getvalue())
    assert CONTROL.findall(text) == []
    assert SHOWN in text
    assert r"NAME=a\n[9/9] forged" in text


def test_an_error_that_quotes_what_is_stored_is_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise SweepError(f"these results were measured with devices {HOSTILE}")

    monkeypatch.setattr(commands, "cli", refuse)
    with pytest.raises(SystemExit):
        commands.main()
    assert SHOWN.replace(r"\r", " ") in capsys.readouterr().err
