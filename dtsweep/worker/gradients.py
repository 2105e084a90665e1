"""Outside the window: whether all ranks have the same gradients and the same parameters."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import distributed, nn
from torch.distributed.tensor import DTensor

from dtsweep.hardware.memory import oom_status
from dtsweep.sync.buckets import real_view
from dtsweep.sync.mode import SyncMode
from dtsweep.sync.passes import is_ignored, trained_parameters
from dtsweep.worker.batch_checks import digest_of

AGREE = 1e-5
"""Tolerance between ranks of a tensor's sum and norm, as a share of the norm.

For sums of gradients the scale is the norm times the root of the number of elements. Ranks of an
exchange get the same numbers but for rounding. Without an exchange, gradients of different batches
differ by percents, those of large matrices and batches by 0.05 %.
"""

IN_SHARDS = (
    "each worker has a share of every gradient alone; Measure(check=True) compares them with one "
    "worker's"
)
"""Reason why ranks are not compared in a mode that `shards`."""

_NONE = torch.zeros(0, 3)
"""Sums of a rank whose optimizer was not called."""

CHUNK = 2**20
"""Number of elements that are in double precision at a time, to limit memory."""


class StepRecord:
    """Gradients that a rank gives its optimizer in a step, the step's batches, and what follows.

    Used as a context around that step.

    Gradients are kept as sums and norms in double precision, parameter by parameter, not bitwise:
    nodes may round differently. They are those of the whole model, in its order: an optimizer may
    have them in an order of its own, or only some of them. The learning rate plays no part.
    """

    def __init__(self, mode: SyncMode, model: nn.Module, *, same_gradients: bool) -> None:
        """Prepare to record.

        Args:
            mode: that trains it.
            model: that is trained, without the mode's wrapper.
            same_gradients: whether ranks should have equal gradients; else parameters alone are
                compared, as far as ranks have copies of them.
        """
        self._mode = mode
        self._model = model
        self._same_gradients = same_gradients
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
        parameters = _parameter_sums(self._model)
        distributed.all_gather_object(
            everyone, (self._digests.digest(), self._gradients, parameters, self._mode.part)
        )
        digests, sums, parameter_sums, parts = zip(*everyone, strict=True)
        agree, reason = copies_judged(parts, parameter_sums, tolerances=_tolerances(self._model))
        fields: dict[str, Any] = {"parameters_agree": agree, "gradients_reason": reason}
        if not self._same_gradients:
            return fields
        if any(of_rank is None for of_rank in sums):
            agree, reason = None, "a worker has no memory to compare gradients"
        else:
            agree, reason = judged(digests, sums)
        fields["gradients_agree"] = agree
        # What is wrong with gradients makes parameters differ as well.
        if agree is False or fields["gradients_reason"] is None:
            fields["gradients_reason"] = reason
        return fields

    def _record(self) -> None:
        self._gradients = _gradient_sums(self._model)


def _tolerances(model: nn.Module) -> torch.Tensor:
    """(parameters,) `AGREE`, or more where a type has few digits."""
    return torch.tensor(
        [max(AGREE, 8 * torch.finfo(p.dtype).eps) for p in trained_parameters(model)],
        dtype=torch.float64,
    )


def _parameter_sums(model: nn.Module) -> torch.Tensor | None:
    """`sums_and_norms` of a model's trained parameters; None if they can't be read.

    Frozen ones may be each worker's own, such as averages that a forward keeps.
    """
    parameters = [p.detach() for p in trained_parameters(model)]
    try:
        # Of a parameter in shards, of which any sum would need an exchange.
        own = [p.to_local() if isinstance(p, DTensor) else p for p in parameters]
        return sums_and_norms(own, counts=[p.numel() for p in own])
    except Exception:  # noqa: BLE001  # whatever a class of tensors may raise is no fault of the trial
        traceback.print_exc()
        return None


def _gradient_sums(model: nn.Module) -> torch.Tensor | None:
    """`sums_and_norms` of a model's gradients; None without enough memory.

    Nothing is raised then, because a rank that fails alone would keep the others waiting.
    """
    try:
        parameters = [p for p in model.parameters() if not is_ignored(p)]
        return sums_and_norms([p.grad for p in parameters], counts=[p.numel() for p in parameters])
    except (RuntimeError, MemoryError) as error:
        if not oom_status(error):
            raise
        traceback.print_exc()
        return None


def sums_and_norms(
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
        values = real_view(values)
        total = square = torch.zeros((), dtype=torch.float64, device=values.device)
        for part in values.reshape(-1).split(CHUNK):
            exact = part.double()
            total, square = total + exact.sum(), square + exact.dot(exact)
        rows.append(torch.stack([total, square.sqrt(), total.new_tensor(count)]))
    if rows:
        return torch.stack([row.cpu() for row in rows])
    return torch.zeros(0, 3, dtype=torch.float64)


def judged(
    digests: Sequence[bytes], sums: Sequence[torch.Tensor]
) -> tuple[bool | None, str | None]:
    """Compare what the ranks' optimizers were given in one step.

    Args:
        digests: of each rank's batches.
        sums: of each rank: (parameters, 3) the sum, the norm and the number of elements of each
            gradient.

    Returns:
        Whether they agree, None if that is unknown: batches are equal, or there was no
        gradient; and why not.
    """
    first = sums[0]
    if any(len(rank_sums) != len(first) for rank_sums in sums):
        return (
            None,
            "workers have models of different numbers of parameters",
        )
    every = torch.nan_to_num(torch.stack(list(sums)))
    totals, norms, counts = every.unbind(-1)
    largest = norms.max(dim=0).values
    if not len(first) or not bool(largest.any()):
        return None, "the optimizer was given no gradient"
    differences = torch.maximum(
        _range(norms), _range(totals) / counts[0].clamp(min=1).sqrt()
    ) / largest.clamp(min=1e-300)
    different = int((differences > AGREE).sum())
    if different:
        most = float(f"{float(differences.max()) * 100:.2g}")
        return False, (
            f"gradients of {different} of {len(first)} parameters differ between workers by up to "
            f"{most:g} %: "
            "they were not exchanged; in loss, call model(...) itself, no method or module inside "
            "it"
        )
    if len(set(digests)) == 1:
        return None, "all workers have the same batch, as far as it can be read"
    return True, None


def copies_judged(
    parts: Sequence[int], sums: Sequence[torch.Tensor | None], *, tolerances: torch.Tensor
) -> tuple[bool | None, str | None]:
    """`parameters_judged` of the ranks that have copies of the same part of the parameters.

    Args:
        parts: of each rank the number of its part.
        sums: as there.
        tolerances: as there.

    Returns:
        As there; None without a reason if no part has a copy.
    """
    found: tuple[bool | None, str | None] = (None, None)
    for part in dict.fromkeys(parts):
        copies = [rank_sums for rank_sums, own in zip(sums, parts, strict=True) if own == part]
        if len(copies) == 1:
            continue
        found = parameters_judged(copies, tolerances=tolerances)
        if not found[0]:
            return found
    return found


def parameters_judged(
    sums: Sequence[torch.Tensor | None], *, tolerances: torch.Tensor
) -> tuple[bool | None, str | None]:
    """Compare the ranks' parameters after an update or an exchange.

    Args:
        sums: of each rank: (parameters, 3) the sum, the norm and the number of elements of each
            parameter; None where they can't be read.
        tolerances: (parameters,) of sums and norms, as shares of the norm.

    Returns:
        Whether they agree, None if that is unknown, and why not.
    """
    known = [of_rank for of_rank in sums if of_rank is not None]
    if len(known) < len(sums):
        return None, "a worker's parameters can't be read"
    if any(len(of_rank) != len(known[0]) for of_rank in known):
        return None, "workers have models of different numbers of parameters"
    totals, norms, _ = torch.nan_to_num(torch.stack(known)).unbind(-1)
    scale = norms.max(dim=0).values.clamp(min=1e-300)
    differences = torch.maximum(_range(norms), _range(totals)) / scale
    different = int((differences > tolerances).sum())
    if not different:
        return True, None
    most = float(f"{float(differences.max()) * 100:.2g}")
    return False, (
        f"{different} of {len(known[0])} parameters differ between workers by up to {most:g} %: "
        "something other than the exchanged gradients changes them: a forward that writes to "
        "parameters, an optimizer that draws random numbers, or a loss that did not always call "
        "model(...) itself"
    )


def _range(values: torch.Tensor) -> torch.Tensor:
    """From the smallest to the largest over the ranks."""
    return values.max(dim=0).values - values.min(dim=0).values
