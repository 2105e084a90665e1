"""A recommendation in the terminal, in words, and as JSON values."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.analysis.bottleneck import bottleneck
from dtsweep.analysis.candidates import way_to_measure
from dtsweep.analysis.settings import axis_name, is_plain_training
from dtsweep.inference.verdicts import Answer, ConditionVerdict
from dtsweep.report.alternatives import alternatives
from dtsweep.report.answer import answer_of, quantity_of
from dtsweep.report.code import point_arguments, point_code, shell_command
from dtsweep.report.doubts import unsound_doubts
from dtsweep.report.frontiers import CHANGED
from dtsweep.report.labels import (
    BATCH_SHAPE,
    argument_columns,
    model_columns,
    product_parts,
    trial_label,
    trial_labels,
    varying_columns,
)
from dtsweep.report.records import records_of
from dtsweep.report.remarks import Remark, remark
from dtsweep.results.schema import IMPORTED
from dtsweep.text import plain, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

    from dtsweep.analysis.recommend import Recommendation
    from dtsweep.analysis.study import Study

_NOISY_DRIFT = 0.1
"""Drift of a machine, as a share, from which on a quieter one is worth looking for."""


@dataclass(frozen=True, kw_only=True)
class Advice:
    """Words on one recommendation."""

    answer: Sequence[Remark]
    """Lines of the answer, six at most; without a recommendation the reason for that."""
    doubts: Sequence[Remark] = ()
    """Doubts that may change the choice, a line each."""
    others: Sequence[Remark] = ()
    """Points that were left out, and points that are better in another respect."""

    @property
    def remarks(self) -> list[Remark]:
        """All remarks, in reading order."""
        return [*self.answer, *self.doubts, *self.others]


def print_all(recommendations: Sequence[Recommendation], *, study: Study, console: Console) -> None:
    """Print recommendations, each with the code to use it.

    Args:
        recommendations: of one goal.
        study: of all trials: settings that vary among its points name a point.
        console: where to.
    """
    for doubt in unsound_doubts(study):
        say(console, doubt.text, style="yellow")
    advice = advice_on(recommendations, varying_columns(study.points), bottleneck(study))
    for one, recommendation in zip(advice, recommendations, strict=True):
        print_advice(one, console=console, show_all=True)
        print_code(recommendation.point, console=console)


def print_advice(advice: Advice, *, console: Console, show_all: bool) -> None:
    """Print an answer and its doubts, a line each; `show_all` prints what else there is."""
    first, *lines = advice.answer
    say(console, first.text, style="bold green")
    for line in lines:
        say(console, line.text)
    for doubt in advice.doubts:
        say(console, doubt.text, style="yellow")
    for other in advice.others if show_all else ():
        say(console, other.text)


def remarks_on(
    recommendations: Sequence[Recommendation], *, study: Study
) -> Iterator[tuple[Recommendation, list[Remark]]]:
    """Yield recommendations of one goal with all remarks on each, those on all results first."""
    unsound = unsound_doubts(study)
    advice = advice_on(recommendations, varying_columns(study.points), bottleneck(study))
    for recommendation, one in zip(recommendations, advice, strict=True):
        yield recommendation, [*unsound, *one.remarks]


def advice_on(
    recommendations: Sequence[Recommendation],
    varying: Sequence[str],
    bounds: pd.DataFrame | None = None,
) -> list[Advice]:
    """Say all that there is of recommendations of one goal; each is named if there are several.

    Args:
        recommendations: of one goal.
        varying: setting columns of points that have more than one value.
        bounds: rows of `dtsweep.analysis.bottleneck`; None says nothing of limits.
    """
    advice = []
    for one, name in zip(recommendations, names_of(recommendations), strict=True):
        # A setting that names the model tells no two of its points apart.
        names = [column for column in varying if f"{axis_name(column)}=" not in name]
        if one.answer is Answer.ONLY_CANDIDATE:
            more = (*BATCH_SHAPE, *argument_columns(list(one.point.index)))
            names = list(dict.fromkeys([*names, *more]))
        advice.append(
            Advice(
                answer=answer_of(one, names, name=name, bounds=bounds),
                doubts=_doubts(one, names),
                others=[*_left_out(one), *alternatives(one, names)],
            )
        )
    return advice


def print_code(point: pd.Series[Any], *, console: Console) -> None:
    """Print a point as code; of a script its command."""
    if point["harness"] == IMPORTED:
        say(console, "\nIt was imported from a table: there is no code to use it.")
        return
    # Code is never wrapped: a text or a comment that goes on in the next line is another program.
    if (command := shell_command(point)) is not None:
        console.print(
            plain(f"\nTo use it without dtsweep:\n\n{textwrap.indent(command, '    ')}\n"),
            soft_wrap=True,
        )
        return
    console.print(plain(f"\nTo use it: {point_code(point)}"), soft_wrap=True)


def names_of(recommendations: Sequence[Recommendation]) -> list[str]:
    """Name the model and the environment of each recommendation.

    Each of both is named if there are several of it; else the name is empty.
    """
    import pandas as pd

    if not recommendations:
        return []
    chosen = pd.DataFrame([recommendation.point for recommendation in recommendations])
    differing = [
        name for name in ("model_digest", "env_id") if chosen[name].nunique(dropna=False) > 1
    ]
    model_settings = []
    if "model_digest" in differing:
        model_settings = model_columns(chosen)
    return [
        " · ".join(product_parts(row, differing, model_settings)) for _, row in chosen.iterrows()
    ]


def as_json(recommendation: Recommendation, remarks: Iterable[Remark]) -> dict[str, Any]:
    """Give a recommendation with the remarks on it as JSON values: `docs/schemas/common.json`."""
    code: dict[str, str | None] = {"point": None, "command": None}
    if recommendation.point["harness"] != IMPORTED:
        code = {
            "point": point_code(recommendation.point),
            "command": shell_command(recommendation.point),
        }
    goal = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in vars(recommendation.goal).items()
    }
    return {
        "goal": goal,
        "point": records_of(recommendation.point.to_frame().T.infer_objects())[0],
        "settings": point_arguments(recommendation.point),
        "code": code,
        "answer": recommendation.answer,
        "is_decided": recommendation.is_decided,
        "is_futile": recommendation.is_futile,
        "not_measured": records_of(recommendation.not_measured[["point_id", "status", "reason"]]),
        "not_begun": recommendation.not_begun,
        "zone": recommendation.zone,
        "confidence": recommendation.confidence,
        "others": records_of(recommendation.others),
        "alternatives": records_of(recommendation.alternatives),
        "unknown": recommendation.unknown,
        "unmeasured": list(recommendation.unmeasured),
        "slow": recommendation.slow,
        "implausible": recommendation.implausible,
        "undecided": records_of(recommendation.undecided),
        "drift": recommendation.drift,
        "remarks": [one.as_json() for one in remarks],
    }


def _doubts(recommendation: Recommendation, varying: Sequence[str]) -> list[Remark]:
    """Say what may change the choice: missing numbers, open limits, a busy machine."""
    point = recommendation.point
    remarks = [*_not_measured(recommendation, varying), *_condition(recommendation, varying)]
    if recommendation.answer is Answer.EQUAL and not recommendation.is_decided:
        contenders = recommendation.contenders
        has_fewer = contenders["workers"] < point["workers"]
        cheaper = contenders[has_fewer & ~contenders["is_equal"]]
        remarks.append(remark("cheaper_open", points=trial_labels(cheaper, varying)))
    is_open = recommendation.answer in (Answer.UNDECIDED, Answer.SINGLE_LAUNCH)
    if is_open and recommendation.noise.drift > _NOISY_DRIFT:
        remarks.append(remark("quieter", drift=recommendation.noise.drift))
    is_plain = is_plain_training({str(name): value for name, value in point.items()})
    if point["semantics"] in CHANGED and not is_plain:
        remarks.append(remark("other_updates", semantics=point["semantics"]))
    return remarks


def _not_measured(recommendation: Recommendation, varying: Sequence[str]) -> list[Remark]:
    """Name the asked points that have no number, with the reason."""
    failed, remarks = recommendation.not_measured, []
    if len(failed):
        names = [
            name
            for name in (*BATCH_SHAPE, *argument_columns(list(failed.columns)))
            if set(failed[name].map(str)) != {str(recommendation.point.get(name))}
        ]
        differing = list(dict.fromkeys([*varying, *names]))
        points = [
            f"{trial_label(row, differing)} ({row['status']})" for _, row in failed.iterrows()
        ]
        remarks.append(remark("not_measured", count=len(failed), points=points))
    if recommendation.not_begun:
        remarks.append(remark("not_begun", count=recommendation.not_begun))
    return remarks


def _condition(recommendation: Recommendation, varying: Sequence[str]) -> list[Remark]:
    """Say whether it is open that the point meets the condition, and name others at its limits."""
    names, point = recommendation.condition_columns, recommendation.point
    if not names:
        return []
    where, remarks = recommendation.goal.where, []
    if point["condition_verdict"] == ConditionVerdict.UNDECIDED:
        remarks.append(remark("limit_open", where=where))
    elif point["is_at_limit"]:
        remarks.append(remark("at_limit", where=where, zone=recommendation.zone))
    points = [
        f"{trial_label(row, varying)} ({', '.join(quantity_of(row, name) for name in names)})"
        for _, row in recommendation.undecided.iterrows()
    ]
    if points:
        remarks.append(remark("also_open", points=points))
    return remarks


def _left_out(recommendation: Recommendation) -> list[Remark]:
    """Count the points of which too little is known, and those that are implausible."""
    columns = list(recommendation.unmeasured)
    remarks = []
    if count := recommendation.unknown:
        way = way_to_measure(columns)
        remarks.append(remark("left_out_unknown", count=count, columns=columns, way=way))
    if count := recommendation.implausible:
        remarks.append(remark("left_out_implausible", count=count))
    return remarks
