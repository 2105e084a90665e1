"""Meaning of a user's updates, by gradients and parameters of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtsweep.worker.copies import AGREE, differences_of_part
from dtsweep.worker.gradients import IN_SHARDS
from dtsweep.worker.own_sums import Sums

EQUAL = 1e-9
"""Tolerance where parameters are the same numbers, as after their mean was taken."""

OTHER_MODELS = (
    "workers' optimizers have different parameters, as with pipeline or tensor parallelism: there "
    "is nothing to compare"
)
NOT_READ = "a worker's gradients or parameters can't be read"
NO_GRADIENTS = "the optimizer has no gradients after its step: parameters alone are compared"
OPTIMIZER_EXCHANGES = (
    "gradients differ between workers, and parameters don't: the optimizer exchanges inside its "
    "step, its learning rate is 0, or gradients have other forms"
)
SOME = (
    "gradients of {} of {} parameters differ between workers: these are not exchanged, or each "
    "worker has its own, as experts"
)
SAME_BATCHES = "all workers loaded the same batches; give the DataLoader a DistributedSampler"
OTHER_START = (
    "gradients are equal, and parameters differ between workers: they did not begin with the same "
    "ones, or something other than the optimizer changes them"
)
SAME_GRADIENTS = "all workers have the same gradients, as of the same batches"
NO_COLLECTIVE = "no collective was called in the window"
DIFFERENT = (
    "gradients and parameters differ between workers in {steps} steps after the window ({calls})"
)
LOCAL = "gradients differ between workers, and parameters are equal after some of the steps"
"""Reasons, in words."""


@dataclass(frozen=True)
class Likeness:
    """Comparison of tensors between the ranks that have copies of the same part."""

    compared: int = 0
    """Tensors that are not zero everywhere, of which two ranks have copies."""

    different: int = 0
    """Those of them that differ."""

    is_empty: bool = True
    """True if all tensors are zeros, or there are none."""

    @property
    def agree(self) -> bool | None:
        """True if all copies are the same; None without any."""
        if not self.compared:
            return None
        return not self.different


def likeness(of_ranks: Sequence[Sums], parts: Sequence[Sequence[str]], *, most: float) -> Likeness:
    """Compare tensors of all ranks.

    Args:
        of_ranks: of each rank, in the order of its tensors.
        parts: of each rank and tensor, the part that it has.
        most: tolerance of sums and norms, as a share of the norm.
    """
    if not of_ranks[0]:
        return Likeness()
    values = np.nan_to_num(np.array(of_ranks))
    names = np.array(parts)
    compared = np.zeros(names.shape[1], dtype=bool)
    different = np.zeros_like(compared)
    for name in np.unique(names):
        has_part = names == name
        is_shared = has_part.sum(axis=0) > 1
        has_part &= is_shared
        compared |= is_shared & (np.where(has_part, values[..., 1], 0.0).max(axis=0) > 0)
        elements = np.where(has_part, values[..., 2], 0.0).max(axis=0)
        differences = differences_of_part(values, has_part, scale_of_totals=np.sqrt(elements + 1))
        different |= is_shared & (differences > most)
    return Likeness(
        compared=int(compared.sum()),
        different=int((different & compared).sum()),
        is_empty=not values[..., 1].any(),
    )


@dataclass
class Judge:
    """Decides on rank 0 what the ranks' updates are, step after step."""

    may_go_on: bool = True
    """False if this step is the last one that may be looked at."""

    steps: int = 0
    were_equal: bool = False
    """True if parameters were equal before or after the update of some step."""
    were_different: bool = False

    def __call__(self, ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Judge one step.

        Args:
            ranks: what each sent: `StepSums.as_json`, `collectives` of the window and `batches`,
                a digest of those that it loaded.

        Returns:
            `goes_on`, true if another step is needed; else `gradients_agree`, `parameters_agree`,
            `gradients_reason` and `semantics` of `Measured`.
        """
        self.steps += 1
        if len({rank["shapes"] for rank in ranks}) > 1:
            return _verdict("unknown", reason=OTHER_MODELS)
        if any(rank[name] is None for rank in ranks for name in ("gradients", "before", "after")):
            return _verdict("unknown", reason=NOT_READ)
        parts = [rank["parts"] for rank in ranks]
        gradients = likeness([rank["gradients"] for rank in ranks], parts, most=AGREE)
        most = AGREE
        if gradients.agree is False:
            most = EQUAL
        before, after = (
            likeness([rank[name] for rank in ranks], parts, most=most).agree
            for name in ("before", "after")
        )
        self.were_equal = self.were_equal or before is True or after is True
        self.were_different = self.were_different or before is False or after is False
        if gradients.is_empty:
            return self._without_gradients(after)
        if gradients.agree is False:
            return self._of_different(ranks, gradients, after)
        if gradients.agree is None:
            return _verdict("exact", reason=IN_SHARDS)
        return _equal(ranks, parameters_agree=after)

    def _without_gradients(self, after: bool | None) -> dict[str, Any]:
        if self.were_different and self.were_equal:
            return _verdict("local", parameters=True, reason=LOCAL)
        if self.may_go_on and self.were_different:
            return {"goes_on": True}
        return _verdict("unknown", parameters=after, reason=NO_GRADIENTS)

    def _of_different(
        self, ranks: Sequence[dict[str, Any]], gradients: Likeness, after: bool | None
    ) -> dict[str, Any]:
        """Judge gradients that differ: parameters may be exchanged once in a while."""
        if gradients.different < gradients.compared:
            reason = SOME.format(gradients.different, gradients.compared)
            return _verdict("unknown", gradients=False, parameters=after, reason=reason)
        calls = [rank["collectives"] for rank in ranks]
        if not any(calls) and None not in calls and not self.were_equal:
            reason = DIFFERENT.format(steps=self.steps, calls=NO_COLLECTIVE)
            return _verdict("not_exchanged", gradients=False, parameters=False, reason=reason)
        if self.were_equal and self.were_different:
            return _verdict("local", gradients=False, parameters=True, reason=LOCAL)
        if self.may_go_on:
            return {"goes_on": True}
        if self.were_equal:
            return _verdict("unknown", gradients=False, parameters=True, reason=OPTIMIZER_EXCHANGES)
        reason = DIFFERENT.format(steps=self.steps, calls=f"collectives in it: {calls[0]}")
        return _verdict("not_exchanged", gradients=False, parameters=False, reason=reason)


def _equal(ranks: Sequence[dict[str, Any]], *, parameters_agree: bool | None) -> dict[str, Any]:
    """Judge equal gradients: they are no sign of an exchange where batches are equal."""
    batches = {rank["batches"] for rank in ranks}
    is_silent = all(rank["collectives"] == 0 for rank in ranks)
    same_batches = len(batches) == 1
    if is_silent and same_batches:
        cause = SAME_GRADIENTS if None in batches else SAME_BATCHES
        return _verdict(
            "not_exchanged",
            gradients=True,
            parameters=parameters_agree,
            reason=f"{cause}; {NO_COLLECTIVE}",
        )
    if parameters_agree is False:
        return _verdict("unknown", gradients=True, parameters=False, reason=OTHER_START)
    reason = None
    if same_batches and None not in batches:
        reason = SAME_BATCHES
    return _verdict("exact", gradients=True, parameters=parameters_agree, reason=reason)


def _verdict(
    semantics: str,
    *,
    gradients: bool | None = None,
    parameters: bool | None = None,
    reason: str | None = None,
) -> dict[str, Any]:
    return {
        "goes_on": False,
        "semantics": semantics,
        "gradients_agree": gradients,
        "parameters_agree": parameters,
        "gradients_reason": reason,
    }
