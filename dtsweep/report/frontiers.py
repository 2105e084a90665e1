"""Frontiers of a report: the points of one product, their standing, and the first two compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

from dtsweep.analysis import difference
from dtsweep.analysis.frontier import MODEL, UPDATE
from dtsweep.analysis.settings import plain_training_in
from dtsweep.analysis.study import Study
from dtsweep.inference.spread import of_environment
from dtsweep.report.labels import (
    argument_columns,
    model_columns,
    point_label,
    product_parts,
    update_labels,
)
from dtsweep.sweep.mode_info import UNASKED
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.text import count_of

if TYPE_CHECKING:
    import pandas as pd

_OWN_EXACT = (
    "Exact here: all workers applied the same gradients. Their scale, such as a sum in place of "
    "the mean, is not checked."
)
"""Meaning of exact updates of a training loop of the user."""

_INEXACT = "Updates that are not exact may need more samples to the same loss."
"""Meaning of updates of the semantics `CHANGED`."""

CHANGED = ("lossy", "stale", "local")
"""Semantics whose workers exchange something, and make other updates than `exact` ones."""

_FRONTIER_TITLES = {
    "exact": "exact updates",
    "lossy": "lossy updates",
    "stale": "stale updates, by gradients of earlier weights",
    "local": "local updates, latency is the mean step",
    "not_exchanged": "nothing exchanged, each worker has a model of its own",
    "unknown": "what workers exchange is unknown",
    "inference": "inference, latency is that of a batch or request",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Frontier:
    """Points of one kind of update and model that were measured in one environment."""

    title: str
    """Semantics in words, and what else identifies the frontier.

    The kind of update, the model and the environment are named if there are several. The label is
    named if all points share one.
    """
    semantics: str
    """Meaning of an update, one of `dtsweep.sweep.mode_info.SEMANTICS`."""
    update_kind: str
    """Kind of its updates within the semantics; empty where there is one alone."""
    update: str
    """Semantics, with the kind if there are frontiers of several."""
    model_digest: str | None
    """Digest of the model; None if it is unknown."""
    points: pd.DataFrame
    """Rows of `dtsweep.analysis.frontier`, the fastest step first.

    `caution` says what puts a point in doubt.
    """
    labels: pd.Series[str]
    """Sync mode and swept settings of each point, with the index of `points`."""
    difference: pd.DataFrame
    """Rows of `dtsweep.analysis.difference` between the two leading points.

    `point_a` has the highest throughput on the frontier. `point_b` has the highest of all other
    `points`, on the frontier or not. Empty if either point does not exist.
    """

    def __repr__(self) -> str:
        """Give the title, and the number of points on it."""
        return f"<{self.title}: {len(self.best)} of {count_of(len(self.points), 'point')}>"

    @cached_property
    def best(self) -> pd.DataFrame:
        """Points on the frontier."""
        return self.points[self.points["on_frontier"]]

    @property
    def empty_because(self) -> str:
        """Reason for a frontier without points, as a sentence."""
        met = self.points[self.points["meets"].fillna(value=False)]
        if met.empty:
            return "No point of it is known to meet the condition."
        has_both = met["latency_s"].notna() & met["samples_per_s"].notna()
        missing = "both a step time and a throughput"
        if has_both.any():
            missing = "all that frontiers are of"
        return f"No point has {missing}."

    @cached_property
    def shown(self) -> pd.DataFrame:
        """Points on the frontier that a user may choose.

        In modes that change the update, these are not the points of one worker that trains like
        plain PyTorch: it exchanges with nobody, so exact updates cost it no more. If there are no
        other points, all are shown.
        """
        others = self.best[~plain_training_in(self.best)]
        if self.semantics in UNASKED or others.empty:
            return self.best
        return others

    @cached_property
    def drawn(self) -> pd.DataFrame:
        """Points of a plot: those that are `shown` and those that are beaten."""
        return self.points.loc[[*self.shown.index, *self.dominated.index]]

    @property
    def name(self) -> str:
        """The title without the word that all have in common."""
        return self.title.removeprefix("Frontier · ")

    @property
    def short_name(self) -> str:
        """The name without what all titles of semantics say, for example `local · local_sgd`."""
        title = _FRONTIER_TITLES.get(self.semantics, self.semantics)
        return title.partition(",")[0].removesuffix(" updates") + self.name.removeprefix(title)

    @property
    def alone(self) -> str:
        """Sentence that counts the points on the frontier that are not `shown`, with the reason.

        Empty if all are shown.
        """
        count = len(self.best) - len(self.shown)
        where = "with one worker, where exact updates cost no exchange"
        if not count:
            return ""
        return f"{count_of(count, 'point')} {where}"

    @cached_property
    def dominated(self) -> pd.DataFrame:
        """Points that another one beats.

        Points without step time or throughput are neither here nor on the frontier.
        """
        return self.points[~self.points["on_frontier"] & self.points["standing"].notna()]

    @cached_property
    def updates(self) -> str:
        """Sentence on what its updates mean for training; empty where that is plain."""
        is_own = (self.points["sync"] == AS_WRITTEN) & (self.points["workers"] > 1)
        if self.semantics == "exact" and is_own.any():
            return _OWN_EXACT
        if self.semantics in CHANGED and not plain_training_in(self.shown).all():
            return _INEXACT
        return ""

    @property
    def dominated_count(self) -> str:
        """Phrase that counts the dominated points."""
        return count_of(len(self.dominated), "beaten point")

    @property
    def undecided(self) -> str:
        """Meaning of the mark of undecided points; empty if there are none."""
        if not (self.points["standing"] == "undecided").any():
            return ""
        return "may be beaten: another point is better in all objectives, but not significantly"


def frontiers_of(study: Study, points: pd.DataFrame, varying: Sequence[str]) -> list[Frontier]:
    """Group points into frontiers, in their order.

    Args:
        study: of all trials.
        points: rows of `dtsweep.analysis.frontier`.
        varying: setting columns that have more than one value.
    """
    import pandas as pd

    differing = [name for name in (*MODEL, "env_id") if points[name].nunique(dropna=False) > 1]
    model_settings = []
    if "model_digest" in differing:
        model_settings = model_columns(points)
    elsewhere = (*model_settings, *differing, *argument_columns(varying))
    label_columns = [name for name in varying if name not in elsewhere]
    frontiers = []
    updates = pd.Series(update_labels(points), index=points.index)
    for _, rows in points.groupby([*UPDATE, *MODEL, "env_id"], sort=False, dropna=False):
        first = rows.iloc[0]
        update = updates[rows.index[0]]
        labels = rows.apply(point_label, axis=1, varying=label_columns)
        semantics = str(first["semantics"])
        title = ["Frontier", _FRONTIER_TITLES.get(semantics, semantics)]
        if update != semantics:
            title.append(str(first["update_kind"]))
        label = labels.iloc[0] if labels.nunique() == 1 else ""
        title += product_parts(first, differing, model_settings, label)
        model_digest = None
        if isinstance(first["model_digest"], str):
            model_digest = first["model_digest"]
        leading = _leading(rows)
        comparison = _difference(study, leading)
        frontiers.append(
            Frontier(
                title=" · ".join(title),
                semantics=semantics,
                update_kind=str(first["update_kind"]),
                update=update,
                model_digest=model_digest,
                points=rows,
                labels=labels,
                difference=comparison,
            )
        )
    return frontiers


def _leading(points: pd.DataFrame) -> pd.DataFrame:
    """Select the two leading points by throughput.

    The first has the highest throughput on the frontier, the second the highest of all other
    points.
    """
    ranked = points.dropna(subset=["samples_per_s", "standing"]).sort_values(
        "samples_per_s", ascending=False, kind="stable"
    )
    first = ranked.index[ranked["on_frontier"]][:1]
    others = ranked.index.difference(first, sort=False)
    return ranked.loc[[*first, *others]].head(2 * len(first))


def _difference(study: Study, leading: pd.DataFrame) -> pd.DataFrame:
    """Compare the first of two points with the second; empty where there are not two."""
    import pandas as pd

    if len(leading) < 2:
        return pd.DataFrame()
    first, second = leading["point_id"]
    rows = difference(study, first, second).assign(point_a=first, point_b=second)
    rows = of_environment(rows, leading["env_id"].iloc[0])
    return rows[
        rows["hosts_a"].isin(leading["hosts"].iloc[:1])
        & rows["hosts_b"].isin(leading["hosts"].iloc[1:])
    ]
