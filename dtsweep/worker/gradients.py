"""Outside the window: whether all ranks have the same gradients and the same parameters."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import distributed, nn
from torch.optim import Optimizer

from dtsweep.hardware.memory import oom_status
from dtsweep.sync.buckets import own_part, real_view
from dtsweep.sync.groups import position
from dtsweep.sync.mode import Job, SyncMode
from dtsweep.sync.passes import trained_parameters
from dtsweep.worker.batch_checks import digest_of
from dtsweep.worker.copies import (
    AGREE,
    RankSums,
    Verdict,
    gradients_judged,
    is_flat,
    parameters_judged,
    part_of,
)

IN_SHARDS = "each worker has a share of every gradient alone"
"""Reason why ranks are not compared in a mode that `shards`."""

_NONE = torch.zeros(0, 3)
"""Sums of a rank whose optimizer was not called."""

_CHUNK = 2**20
"""Number of elements that are in double precision at a time, to limit memory."""


class StepRecord:
    """Gradients that a rank gives its optimizer in a step, the step's batches, and what follows.

    Used as a context around that step.

    Gradients are kept as sums and norms in double precision, parameter by parameter, not bitwise:
    nodes may round differently. They are those of the whole model, in its order: an optimizer may
    have them in an order of its own, or only some of them. The learning rate plays no part.
    """

    def __init__(self, job: Job, mode: SyncMode, model: nn.Module) -> None:
        """Prepare to record; the model is without the mode's wrapper."""
        self._job = job
        self._mode = mode
        self._model = model
        # Otherwise parameters alone are compared.
        self._same_gradients = job.point.mode.agree == "gradients"
        self._digests = hashlib.sha256()
        self._gradients: torch.Tensor | None = _NONE

    def __enter__(self) -> StepRecord:
        """Record from now on."""
        if self._same_gradients:
            self._mode.before_update = self._record
        return self

    def __exit__(self, *_: object) -> None:
        """Record no more."""
        self._mode.__dict__.pop("before_update", None)

    def through(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Pass on batches, and record them."""
        for batch in batches:
            self._digests.update(digest_of(batch))
            yield batch

    def compared(self) -> dict[str, Any]:
        """Compare with the other ranks; called on all of them.

        Returns:
            `parameters_agree`, and where gradients should be the same `gradients_agree` and
            `gradients_reason` of `Measured`, the same on all ranks.
        """
        everyone: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(everyone, self._sums())
        # Those with copies of the same parts of a model.
        indices = sorted({rank.model_rank for rank in everyone})
        groups = [[rank for rank in everyone if rank.model_rank == index] for index in indices]
        agree, reason = _of_all(groups, parameters_judged)
        fields: dict[str, Any] = {"parameters_agree": agree, "gradients_reason": reason}
        if not self._same_gradients:
            return fields
        agree, reason = _of_all(groups, gradients_judged)
        fields["gradients_agree"] = agree
        # What is wrong with gradients makes parameters differ as well.
        if agree is False or fields["gradients_reason"] is None:
            fields["gradients_reason"] = reason
        return fields

    def _sums(self) -> RankSums:
        trained = trained_parameters(self._model)
        return RankSums(
            model_rank=self._job.model_rank,
            digest=self._digests.digest(),
            parts=[part_of(parameter, rank=self._job.rank) for parameter in trained],
            gradients=self._gradients,
            parameters=_parameter_sums(trained),
            tolerances=[max(AGREE, 8 * torch.finfo(p.dtype).eps) for p in trained],
        )

    def _record(self) -> None:
        self._gradients = _gradient_sums(self._model)


def _of_all(
    groups: Sequence[Sequence[RankSums]], judge: Callable[[Sequence[RankSums]], Verdict]
) -> Verdict:
    """Verdict on the first group of ranks that does not agree, else on the last."""
    verdict: Verdict = (None, None)
    for ranks in groups:
        verdict = judge(ranks)
        if verdict[0] is False:
            return verdict
    return verdict


def _parameter_sums(trained: Sequence[nn.Parameter]) -> torch.Tensor | None:
    """`_sums_and_norms` of a model's trained parameters; None if they can't be read.

    Frozen ones may be each worker's own, such as averages that a forward keeps.
    """
    try:
        own = [own_part(parameter) for parameter in trained]
        return _sums_and_norms(own, counts=[0 if p is None else p.numel() for p in own])
    except Exception:  # noqa: BLE001  # whatever a class of tensors may raise is no fault of the trial
        traceback.print_exc()
        return None


def _gradient_sums(model: nn.Module) -> torch.Tensor | None:
    """`_sums_and_norms` of a model's gradients; None without enough memory.

    Nothing is raised then, because a rank that fails alone would keep the others waiting.
    """
    try:
        parameters = trained_parameters(model)
        gradients = [own_part(p.grad) for p in parameters]
        return _sums_and_norms(gradients, counts=[p.numel() for p in parameters])
    except (RuntimeError, MemoryError) as error:
        if not oom_status(error):
            raise
        traceback.print_exc()
        return None


def _sums_and_norms(
    tensors: Sequence[torch.Tensor | None], *, counts: Sequence[int]
) -> torch.Tensor:
    """Return sum, norm and number of elements of each tensor: (tensors, 3) on the CPU.

    Args:
        tensors: None counts as zeros.
        counts: of elements, sparse ones as if they were dense.
    """
    rows = []
    for tensor, count in zip(tensors, counts, strict=True):
        if tensor is None:
            rows.append(torch.tensor([0.0, 0.0, count], dtype=torch.float64))
            continue
        if tensor.is_sparse:
            values = tensor.coalesce().values()
        else:
            values = tensor
        values = real_view(values.resolve_conj())
        total = square = torch.zeros((), dtype=torch.float64, device=values.device)
        for part in values.reshape(-1).split(_CHUNK):
            exact = part.double()
            total, square = total + exact.sum(), square + exact.dot(exact)
        rows.append(torch.stack([total, square.sqrt(), total.new_tensor(count)]))
    if rows:
        return torch.stack([row.cpu() for row in rows])
    return torch.zeros(0, 3, dtype=torch.float64)


Sums = list[list[float]]
"""Of each tensor: sum, norm, number of elements, as `_sums_and_norms` has them."""


def collectives() -> int | None:
    """Number of collectives that this rank has begun in all its groups; None if it is unknown.

    Nothing is sent without a process group.
    """
    if not distributed.is_initialized():
        return 0
    try:
        return position()
    except RuntimeError:
        return None


def calls_since(before: int | None) -> int | None:
    """Number of collectives since another one; None if groups were made or destroyed since."""
    now = collectives()
    if now is None or before is None or now < before:
        return None
    return now - before


@dataclass
class StepSums:
    """Gradients and parameters of the optimizers that step in one step of the loop."""

    rank: int
    parts: list[str] = field(default_factory=list)
    """Of each parameter the name of the part that this rank has; empty of a whole one."""
    shapes: list[str] = field(default_factory=list)
    gradients: Sums | None = field(default_factory=list)
    given: int = 0
    """Parameters that have a gradient, of zeros or not."""
    before: Sums | None = field(default_factory=list)
    """Parameters before the update; None if they can't be read."""
    after: Sums | None = field(default_factory=list)

    def begin(self, optimizer: Optimizer) -> None:
        """Note the parameters of an optimizer before its step."""
        self.before = _joined(self.before, [own_part(p) for p in _parameters(optimizer)])

    def end(self, optimizer: Optimizer) -> None:
        """Note the gradients that it applied, and its parameters after that."""
        parameters = _parameters(optimizer)
        self.parts += [part_of(p, rank=self.rank) for p in parameters]
        self.shapes += [_shape(p) for p in parameters]
        self.gradients = _joined(self.gradients, [own_part(p.grad) for p in parameters], parameters)
        self.given += sum(p.grad is not None for p in parameters)
        self.after = _joined(self.after, [own_part(p) for p in parameters])

    def as_json(self) -> dict[str, Any]:
        """Values for the other ranks."""
        shapes = hashlib.sha256("\n".join(self.shapes).encode()).hexdigest()
        values = {name: value for name, value in vars(self).items() if name != "rank"}
        return {**values, "shapes": shapes}


def sums_of(tensors: Iterable[torch.Tensor]) -> Sums | None:
    """Sums of this rank's parts of tensors; None if some can't be read."""
    return _joined([], [own_part(tensor) for tensor in tensors])


def _parameters(optimizer: Optimizer) -> list[torch.Tensor]:
    return [p for group in optimizer.param_groups for p in group["params"]]


def _shape(parameter: torch.Tensor) -> str:
    if is_flat(parameter):
        return "a shard"
    return f"{tuple(parameter.shape)} {parameter.dtype}"


def _joined(
    sums: Sums | None,
    tensors: Sequence[torch.Tensor | None],
    like: Sequence[torch.Tensor] | None = None,
) -> Sums | None:
    """Add sums of further tensors; None if some can't be read.

    Nothing is raised: a rank that fails alone would keep the others waiting.
    """
    if sums is None:
        return None
    sizes = like or tensors
    try:
        counts = [0 if tensor is None else tensor.numel() for tensor in sizes]
        rows: Sums = _sums_and_norms(tensors, counts=counts).tolist()
    except Exception:  # noqa: BLE001  # whatever a class of tensors may raise
        traceback.print_exc()
        return None
    return [*sums, *rows]
