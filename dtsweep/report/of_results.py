"""Content of the report of opened results: what their rows say, and their search."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from dtsweep.analysis.queueing import queueing
from dtsweep.analysis.study import Study
from dtsweep.analysis.time_to_loss import time_to_loss
from dtsweep.report.content import Content, Section, content_of
from dtsweep.report.grids import Grids, grids_of
from dtsweep.report.queues import Queues
from dtsweep.report.sections import certificate_in
from dtsweep.report.to_target import TargetTimes
from dtsweep.results.store import Results
from dtsweep.secret import shared_trials
from dtsweep.sweep.goal import Question

if TYPE_CHECKING:
    import pandas as pd


def content_in(
    store: Results,
    frame: pd.DataFrame,
    *,
    with_hosts: bool,
    question: Question | None = None,
    **asked: Any,
) -> Content:
    """Compute the content of the report of opened results.

    Args:
        store: the results.
        frame: their trials with canaries.
        with_hosts: keep what may name hosts and users.
        question: the one to answer, by default the results' own.
        asked: what `content_of` takes.
    """
    if not with_hosts:
        frame = shared_trials(frame)
    study = Study(frame, question=question)
    selected = study.where(asked.get("where", ""))
    sections: list[Section] = [certificate_in(store)]
    to_target = time_to_loss(selected)
    if len(to_target):
        sections.append(TargetTimes(to_target))
    grids = grids_of(selected)
    if len(grids):
        sections.append(Grids(grids))
    opened = queueing(selected)
    if len(opened):
        sections.append(Queues(opened))
    return content_of(study, sections=sections, **asked)
