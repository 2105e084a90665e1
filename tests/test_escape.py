"""Text of others stays text in every medium."""

from __future__ import annotations

import csv
import io
import json
import re
from html.parser import HTMLParser

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dtsweep.errors import CONTROL, one_line, printable
from dtsweep.escape import FORMULA, csv_text, html_json, html_text
from tests.hostile import PAYLOADS

FORMULAS = ("equals", "plus", "minus", "at", "spaced", "quoted", "wide")


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_no_payload_has_a_control_character_or_an_unseen_one_when_it_is_printed(
    payload: str,
) -> None:
    assert CONTROL.findall(printable(payload)) == []
    assert len(one_line(payload).splitlines()) == 1


def test_direction_marks_and_separators_are_printed_as_python_writes_them() -> None:
    marks = "\u202e\u2066\u061c\u200b\u2028\ufeff\U000e0041\xad\ud800"
    shown = r"\u202e\u2066\u061c\u200b\u2028\ufeff" + "\\" + r"U000e0041\xad\ud800"
    assert printable(marks) == shown


@given(st.text(st.characters(codec=None)))
def test_whatever_is_printed_can_be_encoded_and_printing_it_again_changes_nothing(
    text: str,
) -> None:
    shown = printable(text)
    shown.encode()
    assert printable(shown) == shown
    assert len(one_line(text).splitlines()) <= 1


def test_a_reason_keeps_its_newlines_and_letters_of_all_scripts() -> None:
    text = "rank 0: naïve Größe\n\tЖ 中文 ½ ± ·"
    assert printable(text) == text


class _Texts(HTMLParser):
    """Collects what a browser would show, and every tag that it would see."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.texts: list[str] = []
        self.tags: list[tuple[str, list[tuple[str, str | None]]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, attrs))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)


@pytest.mark.parametrize("payload", PAYLOADS.values(), ids=PAYLOADS)
def test_a_payload_in_html_is_text_and_the_value_of_one_attribute(payload: str) -> None:
    shown = html_text(payload)
    parser = _Texts()
    parser.feed(f"<p title=\"{shown}\" lang='{shown}'>{shown}</p>")
    parser.close()
    assert parser.tags == [("p", [("title", printable(payload)), ("lang", printable(payload))])]
    assert "".join(parser.texts) == printable(payload)


@given(st.text() | st.sampled_from([*PAYLOADS.values()]))
def test_json_in_a_script_holds_nothing_that_ends_it_and_says_what_html_says(text: str) -> None:
    written = html_json({text: [text, 1.5, None]})
    assert not re.search("[<>&\u2028\u2029]", written)
    assert json.loads(written) == {printable(text): [printable(text), 1.5, None]}


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_json_in_a_script_refuses_what_json_has_no_number_for(number: float) -> None:
    with pytest.raises(ValueError, match="JSON compliant"):
        html_json([number])


@pytest.mark.parametrize("name", FORMULAS)
def test_no_spreadsheet_takes_a_cell_for_a_formula(name: str) -> None:
    assert csv_text(PAYLOADS[name]).startswith("'")


def test_numbers_and_names_are_cells_as_they_are() -> None:
    for text in ("-0.5", "+1e-3", "ddp", "a=b", "8 × 2", ""):
        assert csv_text(text) == text


@given(st.text() | st.sampled_from([*PAYLOADS.values()]))
def test_a_cell_read_back_without_its_apostrophe_is_the_printed_text(text: str) -> None:
    sink = io.StringIO()
    csv.writer(sink).writerow([csv_text(text), "end"])
    sink.seek(0)
    [[cell, end]] = csv.reader(sink)
    assert end == "end"
    assert re.sub(f"^'(?={FORMULA.pattern})", "", cell) == printable(text)
