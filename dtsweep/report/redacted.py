"""Content of a report as strangers may see it: made of redacted trials."""

from __future__ import annotations

import re
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.study import Study
from dtsweep.analysis.where import Condition
from dtsweep.errors import SweepError
from dtsweep.privacy import Redactor, redacted_trials
from dtsweep.report.content import Content, content_of

if TYPE_CHECKING:
    import pandas as pd

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

    Conditions select the same trials as they do of the trials themselves.

    Args:
        study: of the trials.
        redactor: of their results.
        where: a condition as `content_of` takes it; its texts are redacted like those of trials.
        asked: further arguments of `content_of`.
    """
    trials = redacted_trials(study.frame, redactor)
    question = study.question
    texts = [where]
    if question is not None and question.goal is not None:
        texts.append(question.goal.where)
    shown = {text: _shown(text, redactor) for text in texts}
    conditions = {}
    for text in filter(None, texts):
        # Whoever asks it says what is wrong with it.
        with suppress(SweepError):
            conditions[shown[text]] = _on_redacted(study, text, trials, shown[text])
    if question is not None and question.goal is not None:
        goal = replace(question.goal, where=shown[question.goal.where])
        question = replace(question, goal=goal)
    redacted_study = Study(trials, question=question, conditions=conditions)
    return content_of(redacted_study, where=shown[where], **asked)


def _shown(condition: str, redactor: Redactor) -> str:
    return _QUOTED.sub(lambda match: redactor.text(match[0]), condition)


def _on_redacted(study: Study, text: str, trials: pd.DataFrame, shown: str) -> Condition:
    """Condition of a study, to be asked of its redacted trials."""
    condition = study.condition(text)
    originals = {
        name: dict(zip(trials[name], study.frame[name], strict=True))
        for name in condition.columns
        if name in trials and not trials[name].equals(study.frame[name])
    }
    return condition.on_replaced(shown, originals)
