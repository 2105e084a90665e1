"""Nothing that is stored orders the terminal about: no control characters but our own."""

from __future__ import annotations

import re
from io import StringIO

import pytest
from rich.console import Console

from dtsweep.cli import commands
from dtsweep.driver.progress import Progress
from dtsweep.errors import CONTROL, SweepError
from dtsweep.report.content import content_of
from dtsweep.report.terminal import print_report
from dtsweep.sweep.point import Point
from tests.frames import trials
from tests.report.study import measured

HOSTILE = "lost\x1b]0;owned\x07 \x9b31mred\r\x1b[2J end"
SHOWN = r"lost\x1b]0;owned\x07 \x9b31mred\x0d\x1b[2J end"


def orders_in(text: str) -> list[str]:
    """Control characters in a terminal's output, without the colours that `rich` sets itself."""
    return CONTROL.findall(re.sub(r"\x1b\[[0-9;]*m", "", text))


def test_a_report_shows_hostile_names_and_reasons_as_text() -> None:
    point = measured({"sync": "ddp"}, workers=1, micro_batch=4, accumulation=1)
    frame = trials(
        point | {"devices": HOSTILE},
        {"status": "rank_died", "reason": HOSTILE, "log": HOSTILE, "devices": HOSTILE},
    )
    out = StringIO()
    print_report(
        content_of(frame), console=Console(file=out, width=400, force_terminal=True), show_all=True
    )
    assert orders_in(out.getvalue()) == []
    assert out.getvalue().count(SHOWN) >= 2


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_line_of_progress_shows_a_hostile_reason_as_text(is_terminal: bool) -> None:
    out = StringIO()
    progress = Progress(
        axes=["workers"], console=Console(file=out, width=400, force_terminal=is_terminal)
    )
    progress.total = 1
    progress.ended(Point(), {"status": "rank_died", "reason": HOSTILE, "repeat": 1})
    assert orders_in(out.getvalue()) == []
    assert SHOWN in out.getvalue()


def test_a_name_with_a_newline_is_one_line_of_progress() -> None:
    out = StringIO()
    progress = Progress(axes=["env.NAME"], console=Console(file=out, width=400))
    progress.total = 1
    point = Point(environment={"NAME": "a\n[9/9] forged: median 1 ms/step"})
    progress.ended(point, {"status": "rank_died", "reason": "lost", "repeat": 1})
    [line] = out.getvalue().splitlines()
    assert r"NAME=a\n[9/9] forged" in line


def test_an_error_that_quotes_what_is_stored_is_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def refuse(**_: object) -> None:
        raise SweepError(f"these results were measured with devices {HOSTILE}")

    monkeypatch.setattr(commands, "cli", refuse)
    with pytest.raises(SystemExit):
        commands.main()
    assert SHOWN.replace(r"\x0d", " ") in capsys.readouterr().err
