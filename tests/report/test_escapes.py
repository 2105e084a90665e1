"""Nothing that is stored orders the terminal about: no control characters but our own."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from dtsweep.cli import commands
from dtsweep.driver.progress import Progress
from dtsweep.errors import CONTROL, SweepError
from dtsweep.sweep.point import Point

HOSTILE = "lost\x1b]0;owned\x07 \x9b31mred\r\x1b[2J end"
SHOWN = r"lost\x1b]0;owned\x07 \x9b31mred\x0d\x1b[2J end"


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_of_progress_shows_hostile_names_and_reasons_as_text(is_terminal: bool) -> None:
    out = StringIO()
    console = Console(file=out, width=400, force_terminal=is_terminal)
    progress = Progress(axes=["env.NAME"], console=console)
    progress.total = 1
    point = Point(environment={"NAME": "a\n[9/9] forged: median 1 ms/step"})
    progress.ended(point, {"status": "rank_died", "reason": HOSTILE, "repeat": 1})
    # The colours are ours.
    text = re.sub(r"\x1b\[[0-9;]*m", "", out.getvalue())
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
    assert SHOWN.replace(r"\x0d", " ") in capsys.readouterr().err
