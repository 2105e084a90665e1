"""The question that options of the command line ask, in place of the sweep's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from dtsweep.errors import SweepError

if TYPE_CHECKING:
    from dtsweep.sweep.goal import Goal
    from dtsweep.sweep.settings import Sweep

NAMES = ("goal", "where", "indifference", "confidence", "max_launches", "search")
"""Parameters of `question_options`."""


def take_question(options: dict[str, Any]) -> dict[str, Any]:
    """Take the options of a question out of these: those that were given."""
    taken = {name: options.pop(name) for name in NAMES}
    return {name: value for name, value in taken.items() if value not in (None, "")}


def with_question(sweep: Sweep, asked: Mapping[str, Any]) -> Sweep:
    """The sweep with the question that the command line asks.

    Args:
        sweep: as its file has it.
        asked: as `take_question` gives it.

    Raises:
        SweepError: the sweep is a plain grid, or a condition has no goal.
    """
    from dataclasses import replace

    if not asked:
        return sweep
    refuse_grid(sweep, asked)
    settings = settings_of(sweep.goal, asked)
    if sweep.search is not None:
        # The search of the sweep has settings of its own.
        settings.pop("search", None)
    return replace(sweep, **settings)


def refuse_grid(sweep: Sweep, asked: Mapping[str, Any]) -> None:
    """Refuse options of a question where the sweep is a plain grid.

    Raises:
        SweepError: it is one, and there are such options.
    """
    if asked and sweep.question is None:
        option = next(iter(asked)).replace("_", "-")
        raise SweepError(
            f"--{option} can't be used with Measure(repeats={sweep.measure.repeats}), which "
            f"measures a plain grid; leave repeats out of the sweep, or --{option}"
        )


def settings_of(own: Goal | str | None, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of `Sweep` for what the command line asks.

    Args:
        own: the goal of the sweep itself.
        asked: as `take_question` gives it.

    Raises:
        SweepError: there is a condition, and no goal that it could belong to.
    """
    from dataclasses import replace

    from dtsweep.sweep.goal import goal_of
    from dtsweep.sweep.search import Search

    settings = dict(asked)
    if settings.pop("search", None):
        settings["search"] = Search()
    where = settings.pop("where", None)
    if where is not None:
        goal = goal_of(settings.get("goal", own))
        if goal is None:
            raise SweepError(
                "--where is a condition of a goal, and the frontier has none; add --goal throughput"
            )
        settings["goal"] = replace(goal, where=where)
    return settings
