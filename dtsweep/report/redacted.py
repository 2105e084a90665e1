"""Content of a report as strangers may see it: made of redacted trials."""

from __future__ import annotations

import re
from typing import Any

from dtsweep.analysis.study import Study
from dtsweep.privacy import Redactor, redacted_trials
from dtsweep.report.content import Content, content_of

_QUOTED = re.compile(r"'[^']*'|\"[^\"]*\"")
"""Texts in a condition."""


def redacted(content: Content, redactor: Redactor) -> Content:
    """Make the content again of redacted trials, before any text is cut or put in a sentence.

    Args:
        content: of a report.
        redactor: of its results.

    Returns:
        The content itself if nothing in its trials is private.
    """
    if redacted_trials(content.study.frame, redactor) is content.study.frame:
        return content
    return redacted_content_of(content.study, redactor, **content.asked)


def redacted_content_of(
    study: Study, redactor: Redactor, *, where: str = "", **asked: Any
) -> Content:
    """Compute the content of a report on redacted trials.

    Args:
        study: of the trials.
        redactor: of their results.
        where: a condition as `content_of` takes it; its texts are redacted like those of trials.
        asked: further arguments of `content_of`.
    """
    trials = study.with_frame(redacted_trials(study.frame, redactor))
    condition = _QUOTED.sub(lambda match: redactor.text(match[0]), where)
    return content_of(trials, where=condition, **asked)
