"""Next step towards an answer: the run that would decide, in words."""

from __future__ import annotations

import shlex
from dataclasses import fields, replace

from dtsweep.analysis.study import Study
from dtsweep.results.schema import IMPORTED
from dtsweep.sweep.goal import GOALS, Goal, Question


def _goal_setting(goal: Goal) -> str:
    """Write a goal as options of a command, or as a setting where it has no name.

    >>> _goal_setting(Goal(maximize="samples_per_s", where="workers <= 8"))
    "`--goal throughput --where 'workers <= 8'`"
    >>> _goal_setting(Goal(minimize="step_p99_s"))
    "`Sweep(goal=Goal(minimize='step_p99_s'))`"
    """
    for name, named in GOALS.items():
        if replace(goal, where=named.where) == named:
            where = ""
            if goal.where:
                where = f" --where {shlex.quote(goal.where)}"
            return f"`--goal {name}{where}`"
    given = [
        f"{field.name}={getattr(goal, field.name)!r}"
        for field in fields(goal)
        if getattr(goal, field.name) != field.default
    ]
    return f"`Sweep(goal=Goal({', '.join(given)}))`"


def run_that_decides(
    goal: Goal, question: Question | None, *, harness: str, launches: int, rounds: float | None
) -> str:
    """Name the run that would decide, as a clause.

    Args:
        goal: what is asked.
        question: what the launches were measured for; None of a plain grid.
        harness: what started the launches; a run in this process launches each point once.
        launches: of a point, the most so far.
        rounds: further ones that are needed; None where that is not known.
    """
    setting = _goal_setting(goal)
    if harness == IMPORTED:
        return "import a table with more rows of these points"
    if harness == "in_process":
        return f"run the sweep on Ray with {setting}"
    if question is None:
        return f"run the sweep with {setting}, without `repeats`"
    if question.goal != goal:
        return f"run the sweep with {setting}"
    if launches + (rounds or 1) <= question.max_launches:
        return "run the same command again: it continues"
    return f"run the same command with `--max-launches {launches + (rounds or launches):g}`"


def run_with_launches(study: Study) -> str:
    """Name a run that launches points several times, as a noun; of imported rows a table."""
    harnesses = set(study.trials["harness"])
    if harnesses == {IMPORTED}:
        return "a table with several rows of each point"
    ray = ""
    if harnesses == {"in_process"}:
        ray = " on Ray"
    return f"a run{ray} with `--goal throughput`"
