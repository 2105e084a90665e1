"""Outside the window: whether all ranks give their optimizers the same gradients."""

from __future__ import annotations

import hashlib
import traceback
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import distributed, nn
from torch.optim.optimizer import register_optimizer_step_pre_hook

from dtsweep.hardware.memory import oom_status
from dtsweep.worker.batch_checks import digest_of

AGREE = 1e-5
"""Tolerance between ranks of a parameter's gradient sum and norm, as a share of the norm.

For sums the scale is the norm times the root of the number of elements. Ranks of an exchange get
the same numbers but for rounding. Without an exchange, gradients of different batches differ by
percents, those of large matrices and batches by 0.05 %.
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


class GradientRecord:
    """Gradients that a rank gives its optimizer in a step, and the step's batches.

    Used as a context around that step.

    Gradients are kept as sums and norms in double precision, parameter by parameter, not bitwise:
    nodes may round differently. They are those of the whole model, in its order: an optimizer may
    have them in an order of its own, or only some of them. The learning rate plays no part.
    """

    def __init__(self, model: nn.Module) -> None:
        """Prepare to record.

        Args:
            model: that is trained, without the mode's wrapper.
        """
        self._model = model
        self._digests = hashlib.sha256()
        self._sums: list[torch.Tensor | None] = []

    def __enter__(self) -> GradientRecord:
        """Record from now on."""
        self._hook = register_optimizer_step_pre_hook(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        """Record no more."""
        self._hook.remove()

    def through(self, batches: Iterator[Any]) -> Iterator[Any]:
        """Pass on batches, and record them."""
        for batch in batches:
            self._digests.update(digest_of(batch))
            yield batch

    def compared(self) -> dict[str, Any]:
        """Compare with the other ranks; called on all of them.

        Returns:
            `gradients_agree` and `gradients_reason` of `Measured`, the same on all ranks.
        """
        everyone: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(
            everyone, (self._digests.digest(), self._sums[0] if self._sums else _NONE)
        )
        digests, sums = zip(*everyone, strict=True)
        if any(of_rank is None for of_rank in sums):
            return {
                "gradients_agree": None,
                "gradients_reason": "a worker has no memory to compare gradients",
            }
        agree, reason = judged(digests, sums)
        return {"gradients_agree": agree, "gradients_reason": reason}

    def _record(self, *_: Any) -> None:
        # An optimizer may have another one inside.
        if not self._sums:
            self._sums.append(_sums_that_fit(self._model))


def _sums_that_fit(model: nn.Module) -> torch.Tensor | None:
    """`sums_and_norms` of a model; None without enough memory.

    Nothing is raised then, because a rank that fails alone would keep the others waiting.
    """
    try:
        return sums_and_norms(
            [p for p in model.parameters() if not getattr(p, "_ddp_ignored", False)]
        )
    except (RuntimeError, MemoryError) as error:
        if not oom_status(error):
            raise
        traceback.print_exc()
        return None


def sums_and_norms(parameters: Sequence[torch.nn.Parameter]) -> torch.Tensor:
    """Return sum, norm and number of elements of each gradient: (parameters, 3) on the CPU."""
    rows = []
    for parameter in parameters:
        gradient = parameter.grad
        if gradient is None:
            rows.append(
                torch.tensor(
                    [0.0, 0.0, parameter.numel()], dtype=torch.float64, device=parameter.device
                )
            )
            continue
        if gradient.is_sparse:
            values = gradient.coalesce().values()
        else:
            values = gradient
        if values.is_complex():
            values = torch.view_as_real(values)
        total = square = torch.zeros((), dtype=torch.float64, device=values.device)
        for part in values.detach().reshape(-1).split(CHUNK):
            exact = part.double()
            total, square = total + exact.sum(), square + exact.dot(exact)
        rows.append(torch.stack([total, square.sqrt(), total.new_tensor(parameter.numel())]))
    if rows:
        return torch.stack(rows).cpu()
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
            "workers have models of different numbers of parameters, or not all call an optimizer "
            "of torch's",
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


def _range(values: torch.Tensor) -> torch.Tensor:
    """From the smallest to the largest over the ranks."""
    return values.max(dim=0).values - values.min(dim=0).values
