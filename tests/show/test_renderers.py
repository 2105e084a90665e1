"""What a report says reaches its reader in each form: terminal, page, JSON and notebook."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from rich.console import Console

from dtsweep.report.as_json import report_json
from dtsweep.report.terminal import print_report
from dtsweep.show.view import page_view
from tests.report.study import swept


def texts_in(value: Any) -> Iterator[str]:
    """All texts of JSON values."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        yield from texts_in(list(value.values()))
    elif isinstance(value, list):
        for item in value:
            yield from texts_in(item)


def test_each_remark_on_a_report_reaches_terminal_page_and_json() -> None:
    content = swept()
    said = [one["text"] for one in report_json(content)["remarks"]]
    assert len(said) == 6
    made = [*content.unsound, *content.doubts, *content.limits, *content.worth.remarks]
    made += [*content.frontier_answer, *content.notes]
    assert sorted(said) == sorted(one.text for one in made)
    out = io.StringIO()
    print_report(content, console=Console(file=out, width=10_000), show_all=True)
    page = page_view(content, place="r")
    shown = "\n".join(texts_in(page))
    assert [text for text in said if text not in out.getvalue()] == []
    assert [text for text in said if text not in shown] == []
