"""Content of redacted trials: conditions select what they select of the trials themselves."""

from __future__ import annotations

import pytest

from dtsweep.analysis import Goal, Study
from dtsweep.privacy import Redactor
from dtsweep.report.content import content_of
from dtsweep.report.redacted import redacted, redacted_content_of
from dtsweep.report.remarks import text_of
from dtsweep.sweep.goal import Question
from tests.frames import trials
from tests.report.study import measured

WHERE = "workload.data = '/home/{}/a'"


def study(*, where: str = "") -> Study:
    """Two points; the second one trains on data of another user, and is the faster one."""
    question = Question(goal=Goal(maximize="samples_per_s", where=where))
    rows = [
        measured({"sync": "ddp"}, workers=1, micro_batch=4, accumulation=1)
        | {"point_id": user, "workload_data": f"/home/{user}/a", "samples_per_s": rate}
        for user, rate in (("ann", 100.0), ("bob", 200.0))
    ]
    return Study(trials(*rows), question=question)


REDACTOR = Redactor(users={"ann", "bob"})


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_a_condition_selects_the_points_that_it_names(user: str) -> None:
    content = redacted_content_of(study(), REDACTOR, where=WHERE.format(user))
    assert [one.point["point_id"] for one in content.recommendations] == [user]
    assert "/home/" not in "".join(one.text for one in content.doubts)


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_the_condition_of_a_goal_selects_the_points_that_it_names(user: str) -> None:
    content = redacted(content_of(study(where=WHERE.format(user))), REDACTOR)
    assert [one.point["point_id"] for one in content.recommendations] == [user]
    sentences = [text_of(remarks) for advice in content.advice for remarks in advice]
    assert "/home/" not in "".join(sentences)
