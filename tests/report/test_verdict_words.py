from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

import pytest

from dtsweep.inference.verdicts import Reason, Verdict
from dtsweep.report.verdict_words import LONG_REASON_WORDS, REASON_WORDS, VERDICT_WORDS


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        (Verdict, VERDICT_WORDS),
        (Reason, REASON_WORDS),
        (Reason, LONG_REASON_WORDS),
    ],
)
def test_every_code_has_words(codes: type[StrEnum], words: Mapping[str, str]) -> None:
    assert list(words) == list(codes)
    assert all(words.values())
