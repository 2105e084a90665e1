"""Remarks are records, with one sentence for each code."""

from __future__ import annotations

import json
import re
from typing import Any

import numpy as np
import pandas as pd
import pytest

from dtsweep.analysis import worthwhile
from dtsweep.inference.verdicts import Answer, KneeVerdict, Reason, Verdict
from dtsweep.report.content import Content, content_of
from dtsweep.report.remark_table import SENTENCES
from dtsweep.report.remarks import paragraph, remark
from dtsweep.report.scaling_words import scaling_remarks
from dtsweep.report.verdict_words import LONG_REASON_WORDS, REASON_WORDS, VERDICT_WORDS
from tests.analysis.ladders import ladder, published
from tests.frames import trials
from tests.pages import ROOT
from tests.report.study import canary, swept

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
    # Unknown groups are counted.
    tested = {*KneeVerdict} - {KneeVerdict.UNKNOWN}
    assert {f"knee_{verdict}" for verdict in tested} <= {*CODES}


def test_a_remark_gives_its_code_its_severity_its_numbers_and_its_text() -> None:
    one = remark("noise", where="", sigma=np.float64(0.03125))
    assert json.loads(json.dumps(one.as_json())) == {
        "code": "noise",
        "severity": "note",
        "numbers": {"where": "", "sigma": 0.03125},
        "text": "Noise: samples/s of one point differ by 3.1 % between launches (standard "
        "deviation).",
    }
    assert paragraph([one, remark("no_other")]).endswith("it is the only point that fits.")


def test_lines_beyond_the_first_eight_are_counted() -> None:
    text = remark("implausible", count=11, trials=[str(number) for number in range(11)]).text
    assert len(text.splitlines()) == 10
    assert text.endswith("\n  3 more: the table of trials has them")


# Scaling in words


def sentences(frame: pd.DataFrame) -> list[str]:
    return [one.text for one in scaling_remarks(worthwhile(frame))]


STEEP = {1: 100.0, 2: 190.0, 4: 290.0, 8: 310.0}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rates", "error", "words"),
    [
        (STEEP, 0.02, "the step from 4 workers to 8 doesn't pay (95 %: from 2 to 4)"),
        ({1: 100.0, 2: 120.0, 4: 130.0}, 0.005, "the step from 1 worker to 2 doesn't pay"),
        ({1: 100.0, 2: 190.0}, 0.005, "each step pays, up to the largest size measured (2)"),
        (
            {1: 100.0, 2: 150.0, 4: 250.0},
            0.3,
            "launches don't show whether a step beyond 1 worker pays",
        ),
    ],
)
def test_a_knee_is_said_with_its_numbers(rates: dict[int, float], error: float, words: str) -> None:
    frame = ladder(rates, launches=3, error=error, rng=np.random.default_rng(8))
    assert sentences(frame)[0] == f"ddp, weak scaling, 4 × 1 per worker: {words}."


def test_groups_of_which_nothing_is_known_are_counted() -> None:
    (line,) = swept().worth.remarks
    assert line.text == "33 groups of several sizes: unknown: too few launches."
    assert sentences(ladder(published())) == [
        "1 group of several sizes: unknown: too few launches."
    ]
    assert sentences(ladder({1: 10.0})) == []


# Measured next to imported rows

NOT_KNOWN = {"environment": None, "overlap": None, "optimizer": None, "backend": None}
IMPORTED = {"harness": "imported", "env_id": "imported:lab", "hosts": None, **NOT_KNOWN}
MEASURED = {"harness": "ray", "env_id": "a1", "hosts": 1, "backend": "gloo", "environment": "{}"}


def row(name: str, step_s: float, kind: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"point_id": name, "step_p50_s": step_s, "samples_per_s": 8 / step_s, **kind, **fields}


def mixed(**imported: Any) -> Content:
    rows = [
        row("one", 0.1, MEASURED, session="s1"),
        row("two", 0.2, MEASURED, session="s1", micro_batch=16),
        row("three", 0.3, IMPORTED, **imported),
        row("four", 0.4, IMPORTED, micro_batch=16, **imported),
    ]
    watched = [canary("s1", 0.1, **MEASURED), canary("s1", 0.2, **MEASURED)]
    return content_of(trials(*rows, *watched))


def test_settings_that_imported_rows_lack_are_in_no_label() -> None:
    content = mixed()
    assert content.varying == ["micro_batch"]
    labels = [label for frontier in content.frontiers for label in frontier.labels]
    assert not [label for label in labels if "=" in label]
    assert "overlap" not in content.constants


@pytest.mark.slow
def test_settings_of_rows_that_are_compared_are_in_their_labels() -> None:
    assert mixed(env_id="a1", precision="bf16").varying == ["micro_batch", "precision"]


def test_what_is_not_known_of_an_environment_is_unknown() -> None:
    (doubt,) = [one.text for one in mixed().doubts if one.code == "environments"]
    assert "imported:lab: unknown" in doubt
    assert not [word for word in ("nan", "NA", "None") if word in doubt]


def test_canaries_watch_measured_trials_alone() -> None:
    (drifted,) = [one.numbers for one in mixed().notes if one.code == "canaries_drifted"]
    assert drifted["trials"] == 2
