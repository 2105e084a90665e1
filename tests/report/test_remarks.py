"""Remarks are records, with one sentence for each code."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest

from dtsweep.inference.verdicts import Answer, KneeVerdict, Reason, Verdict
from dtsweep.report.remark_table import SENTENCES
from dtsweep.report.remarks import remark, text_of
from dtsweep.report.verdict_words import LONG_REASON_WORDS, REASON_WORDS, VERDICT_WORDS
from tests.pages import ROOT

CODES = [code for sentences in SENTENCES.values() for code in sentences]


def test_a_code_has_one_sentence_and_one_severity() -> None:
    assert len(CODES) == len({*CODES})
    assert [*VERDICT_WORDS] == [*Verdict]
    assert [*REASON_WORDS] == [*LONG_REASON_WORDS] == [*Reason]


def test_every_sentence_is_that_of_a_remark_that_is_made() -> None:
    made = {*Answer, *(f"knee_{verdict}" for verdict in KneeVerdict)}
    for room in ("report", "compare"):
        for file in (ROOT / "dtsweep" / room).glob("*.py"):
            if file.name != "remark_table.py":
                made.update(re.findall(r'"(\w+)"', file.read_text("utf-8")))
    assert {*CODES} - made == set()
    assert {f"knee_{verdict}" for verdict in KneeVerdict} <= {*CODES}


def test_a_remark_gives_its_code_its_severity_its_numbers_and_its_text() -> None:
    one = remark("drift_unknown", drift=np.float64(0.031))
    assert json.loads(json.dumps(one.as_json())) == {
        "code": "drift_unknown",
        "severity": "warning",
        "numbers": {"drift": 0.031},
        "text": "A drift of the machine below 4 % is not excluded: its canaries are too imprecise.",
    }
    assert text_of([one, remark("no_other")]).endswith("No other point is a candidate.")


@pytest.mark.parametrize(
    ("code", "numbers", "text"),
    [
        ("not_begun", {"count": 1}, "1 planned point not run yet."),
        ("also_open", {"points": [*"abcd"]}, "Also open: a, b, c and 1 more."),
        ("bounds", {"counts": {"input": 2}}, "Points on frontiers by what limits them: input (2)."),
        (
            "windows",
            {"steps": [20, 1000], "seconds": [1.0693, 2.0]},
            "Each trial was timed for 20 to 1,000 steps (1.07 to 2 s). "
            "± is half of a 95 % interval.",
        ),
        (
            "flags",
            {"counts": {"drift": 1}, "meanings": {"drift": "it drifts"}},
            "Trials by flag: drift (1).\n  drift: it drifts",
        ),
    ],
)
def test_counts_lists_and_lines_are_written_in_full(
    code: str, numbers: dict[str, object], text: str
) -> None:
    assert remark(code, **numbers).text == text


def test_lines_beyond_the_first_eight_are_counted() -> None:
    text = remark("implausible", count=11, trials=[str(number) for number in range(11)]).text
    assert len(text.splitlines()) == 10
    assert text.endswith("\n  3 more: the table of trials has them")
