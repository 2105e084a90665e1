"""Meaning of a user's updates, by gradients and parameters of all ranks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dtsweep.worker.copies import AGREE, differences_of_part
from dtsweep.worker.gradients import IN_SHARDS, Sums

_EQUAL = 1e-9
"""Tolerance where parameters are the same numbers, as after their mean was taken."""

_LARGE = 1e300
"""Stands for what is not finite: equal to itself, and far from all other numbers."""

_OTHER_MODELS = (
    "workers' optimizers have different parameters, as with pipeline or tensor parallelism: there "
    "is nothing to compare"
)
_NOT_READ = "a worker's gradients or parameters can't be read"
_NO_GRADIENTS = "the optimizer has no gradients after its step: parameters alone are compared"
_NO_STEP = (
    "the optimizer made no step after the window, as where a GradScaler leaves all of them out"
)
_ZEROS = "all gradients are zeros, which are equal with and without an exchange"
_NOT_FINITE = "gradients are not finite on all workers: training has diverged"
_OWN_PARAMETERS = (
    "the optimizer has parameters that are in no module, as shards of DeepSpeed's ZeRO; the "
    "model's own are {} after its steps"
)
_OPTIMIZER_EXCHANGES = (
    "gradients differ between workers, and parameters don't: the optimizer exchanges inside its "
    "step, its learning rate is 0, or gradients have other forms"
)
_SOME = (
    "gradients of {} of {} parameters differ between workers: these are not exchanged, or each "
    "worker has its own, as experts"
)
SAME_BATCHES = "all workers loaded the same batches; give the DataLoader a DistributedSampler"
_OTHER_START = (
    "gradients are equal, and parameters differ between workers: they did not begin with the same "
    "ones, or something other than the optimizer changes them"
)
OTHER_PARTS = (
    "workers load the same batches, and gradients differ between them, as with tensor "
    "parallelism: how many workers share a model is unknown"
)
_NO_COLLECTIVE = "no collective was called in the window"
_ALONE = (
    f"each worker trains a model of its own: {_NO_COLLECTIVE}. Make a process group and wrap the "
    "model in DistributedDataParallel; on CPUs Transformers needs use_cpu=True, "
    "Accelerate cpu=True"
)
_DIFFERENT = (
    "gradients and parameters differ between workers in {steps} steps after the window ({calls})"
)
_LOCAL = "gradients differ between workers, and parameters are equal after some of the steps"
"""Reasons, in words."""


@dataclass(frozen=True)
class _Likeness:
    """Comparison of tensors between the ranks that have copies of the same part."""

    compared: int = 0
    """Tensors that are not zero everywhere, of which two ranks have copies."""

    different: int = 0
    """Those of them that differ."""

    is_empty: bool = True
    """True if all tensors are zeros, or there are none."""

    is_finite: bool = True
    """False if some tensor has NaN or infinity."""

    @property
    def agree(self) -> bool | None:
        """True if all copies are the same; None without any."""
        if not self.compared:
            return None
        return not self.different


def likeness(of_ranks: Sequence[Sums], parts: Sequence[Sequence[str]], *, most: float) -> _Likeness:
    """Compare tensors of all ranks.

    Args:
        of_ranks: of each rank, in the order of its tensors.
        parts: of each rank and tensor, the part that it has.
        most: tolerance of sums and norms, as a share of the norm.
    """
    if not of_ranks[0]:
        return _Likeness()
    values = np.array(of_ranks)
    is_finite = np.isfinite(values)
    values = np.where(is_finite, values, _LARGE)
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
    return _Likeness(
        compared=int(compared.sum()),
        different=int((different & compared).sum()),
        is_empty=not values[..., 1].any(),
        is_finite=bool(is_finite.all()),
    )


def ranks_per_model(ranks: Sequence[dict[str, Any]], *, context: int = 1) -> list[int | None]:
    """Ranks that load the same batches for parts of one model, of each rank.

    Ranks with equal batches are one model's unless they exchange gradients: those of a wrapper that
    is known, or all of them if each has all parameters whole. Then their loader is wrong.

    Args:
        ranks: what each sent.
        context: ranks that have parts of the same sequences. They exchange gradients with equal
            batches, so with several of them equal batches alone say who shares a model.

    Returns:
        None for a rank without a `DataLoader`.
    """
    sizes: list[int | None] = []
    for number, rank in enumerate(ranks):
        if rank["batches"] is None:
            sizes.append(None)
            continue
        same = [other for other, one in enumerate(ranks) if one["batches"] == rank["batches"]]
        exchanging = rank["data_ranks"]
        if exchanging is None:
            is_part = any(rank["parts"]) or len({ranks[other]["shapes"] for other in same}) > 1
            exchanging = [number] if is_part else same
        if context > 1:
            exchanging = [number]
        sizes.append(len(same) // len({number} | set(same).intersection(exchanging)))
    return sizes


@dataclass
class Judge:
    """Decides on rank 0 what the ranks' updates are, step after step."""

    may_go_on: bool = True
    """False if this step is the last one that may be looked at."""

    steps: int = 0
    were_equal: bool = False
    """True if parameters were equal before or after the update of some step."""
    were_different: bool = False
    sizes: Sequence[int | None] = ()
    """`ranks_per_model` of the first step."""
    context: int = 1
    """Workers that have parts of the same sequences, as a script promises it."""

    def __call__(self, ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """Judge one step.

        Args:
            ranks: what each sent: `StepSums.as_json`, `collectives` of the window; `batches`, a
                digest of those that it loaded; `model`, sums of the model's parameters where the
                optimizer has none of them; `data_ranks`, those with which a known wrapper exchanges
                gradients.

        Returns:
            `goes_on`, true if another step is needed; else `gradients_agree`, `parameters_agree`,
            `gradients_reason` and `semantics` of `Measured`, and `ranks_per_model`.
        """
        if not self.steps:
            self.sizes = ranks_per_model(ranks, context=self.context)
        return {**self._judged(ranks), "ranks_per_model": self.sizes}

    def _judged(self, ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
        self.steps += 1
        has_model = all(rank["model"] is not None for rank in ranks)
        if len({rank["shapes"] for rank in ranks}) > 1:
            verdict = _verdict("unknown", reason=_OTHER_MODELS)
            if has_model:
                verdict = _of_own_parameters(ranks)
            return verdict
        if any(rank[name] is None for rank in ranks for name in ("gradients", "before", "after")):
            return _verdict("unknown", reason=_NOT_READ)
        parts = [rank["parts"] for rank in ranks]
        gradients = likeness([rank["gradients"] for rank in ranks], parts, most=AGREE)
        most = AGREE
        if gradients.agree is False:
            most = _EQUAL
        before, after = (
            likeness([rank[name] for rank in ranks], parts, most=most).agree
            for name in ("before", "after")
        )
        self.were_equal = self.were_equal or before is True or after is True
        self.were_different = self.were_different or before is False or after is False
        if gradients.is_empty:
            return self._without_gradients(ranks, after)
        if gradients.agree is False and has_model:
            return _of_own_parameters(ranks)
        if gradients.agree is False:
            return self._of_different(ranks, gradients, after)
        return self._of_equal(ranks, gradients, after)

    def _without_gradients(
        self, ranks: Sequence[dict[str, Any]], after: bool | None
    ) -> dict[str, Any]:
        """Judge gradients of zeros, or none: equal parameters show an update of all workers."""
        if self.were_different and self.were_equal:
            return _verdict("local", parameters=True, reason=_LOCAL)
        if self.may_go_on and self.were_different:
            return {"goes_on": True}
        reason, gradients_agree = _NO_GRADIENTS, None
        if not any(rank["parts"] for rank in ranks):
            reason = _NO_STEP
        elif any(rank["given"] for rank in ranks):
            reason, gradients_agree = _ZEROS, True
        # Without gradients parameters may also be those that no step changes.
        shows_update = gradients_agree or any(rank["before"] != rank["after"] for rank in ranks)
        semantics = "unknown"
        if shows_update and not self.were_different and _exchanges_other_batches(ranks):
            semantics = "exact"
        return _verdict(semantics, gradients=gradients_agree, parameters=after, reason=reason)

    def _of_equal(
        self, ranks: Sequence[dict[str, Any]], gradients: _Likeness, after: bool | None
    ) -> dict[str, Any]:
        """Judge equal gradients: they show no exchange where batches are equal, or all is NaN."""
        batches = {rank["batches"] for rank in ranks}
        # One model's ranks have to load the same ones.
        is_loader_wrong = len(batches) == 1 and set(self.sizes) == {1}
        reason = SAME_BATCHES if is_loader_wrong else None
        if gradients.agree is None:
            return _verdict("exact", reason=reason or IN_SHARDS)
        is_silent = all(rank["collectives"] == 0 for rank in ranks)
        if is_silent and len(batches) == 1:
            return _verdict("not_exchanged", gradients=True, parameters=after, reason=_ALONE)
        if after is False:
            return _verdict("unknown", gradients=True, parameters=False, reason=_OTHER_START)
        semantics = "exact"
        if not gradients.is_finite:
            reason = _NOT_FINITE
            if not _exchanges_other_batches(ranks):
                semantics = "unknown"
        return _verdict(semantics, gradients=True, parameters=after, reason=reason)

    def _of_different(
        self, ranks: Sequence[dict[str, Any]], gradients: _Likeness, after: bool | None
    ) -> dict[str, Any]:
        """Judge gradients that differ: parameters may be exchanged once in a while."""
        if gradients.different < gradients.compared:
            reason = _SOME.format(gradients.different, gradients.compared)
            # Layers that are not divided have equal gradients in tensor parallelism, too.
            if self._share_batches(ranks):
                reason = OTHER_PARTS
            return _verdict("unknown", gradients=False, parameters=after, reason=reason)
        calls = [rank["collectives"] for rank in ranks]
        if not any(calls) and None not in calls and not self.were_equal:
            return _verdict("not_exchanged", gradients=False, parameters=False, reason=_ALONE)
        if self.were_equal and self.were_different:
            return _verdict("local", gradients=False, parameters=True, reason=_LOCAL)
        if self.may_go_on:
            return {"goes_on": True}
        if self.were_equal:
            return _verdict(
                "unknown", gradients=False, parameters=True, reason=_OPTIMIZER_EXCHANGES
            )
        semantics = "not_exchanged"
        reason = _DIFFERENT.format(steps=self.steps, calls=f"collectives in it: {calls[0]}")
        if self._share_batches(ranks):
            semantics, reason = "unknown", OTHER_PARTS
        return _verdict(semantics, gradients=False, parameters=False, reason=reason)

    def _share_batches(self, ranks: Sequence[dict[str, Any]]) -> bool:
        """True if ranks that count as models of their own load the same batches; none count then.

        Their gradients differ, so they may have parts of one model, unless a known wrapper
        exchanges them.
        """
        loaded = [
            rank["batches"]
            for rank, size in zip(ranks, self.sizes, strict=True)
            if size == 1 and rank["data_ranks"] is None
        ]
        if len(set(loaded)) == len(loaded):
            return False
        self.sizes = [None] * len(ranks)
        return True


def _exchanges_other_batches(ranks: Sequence[dict[str, Any]]) -> bool:
    """True if all ranks called collectives in the window, and not all loaded the same batches."""
    batches = {rank["batches"] for rank in ranks}
    return all(rank["collectives"] for rank in ranks) and len(batches) > 1


def _of_own_parameters(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Judge an optimizer that has none of the model's parameters, by the model's own."""
    sums = [rank["model"] for rank in ranks]
    if all(elements == 0 for rank in sums for _, _, elements in rank):
        # ZeRO-3 gathers them when they are used.
        return _verdict("exact", reason=IN_SHARDS)
    agree = None
    if len({len(rank) for rank in sums}) == 1:
        agree = likeness(sums, [[""] * len(rank) for rank in sums], most=_EQUAL).agree
    if agree and _exchanges_other_batches(ranks):
        return _verdict("exact", parameters=True, reason=_OWN_PARAMETERS.format("equal"))
    words = {True: "equal", False: "different", None: "not comparable"}[agree]
    return _verdict("unknown", parameters=agree, reason=_OWN_PARAMETERS.format(words))


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
