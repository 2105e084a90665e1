"""Outside the window: comparison of gradients and parameters between the ranks with copies."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.distributed.tensor import DTensor, Replicate

AGREE = 1e-5
"""Tolerance between ranks of a tensor's sum and norm, as a share of the norm.

For sums of gradients the scale is the norm times the root of the number of elements. Ranks of an
exchange get the same numbers but for rounding. Without an exchange, gradients of different batches
differ by percents, those of large matrices and batches by 0.05 %.
"""

Verdict = tuple[bool | None, str | None]
"""True if copies agree, None if that is unknown; and why not."""

_OTHER_NUMBERS = "workers have models of different numbers of parameters"


@dataclass(frozen=True, kw_only=True)
class RankSums:
    """Gradients and parameters of a rank in one step, as sums and norms."""

    model_rank: int
    """Its index among the workers of its model: ranks with the same index are compared."""

    digest: bytes
    """Of its batches."""

    parts: Sequence[str]
    """Of each trained parameter the part that this rank has; empty for a whole one."""

    gradients: torch.Tensor | None
    """(trained parameters, 3) sum, norm and elements of each gradient; None without memory."""

    parameters: torch.Tensor | None
    """(trained parameters, 3) the same of each parameter; None if they can't be read."""

    tolerances: Sequence[float]
    """Of each trained parameter, `AGREE` or more where its type has few digits."""


def part_of(parameter: torch.Tensor, *, rank: int) -> str:
    """Name the part of a parameter that this rank has; ranks with equal names have copies.

    >>> part_of(torch.zeros(4), rank=1)
    ''
    """
    if isinstance(parameter, DTensor):
        places = parameter.device_mesh.get_coordinate() or ()
        return ",".join(
            str(place)
            for place, placement in zip(places, parameter.placements, strict=True)
            if not isinstance(placement, Replicate)
        )
    if is_flat(parameter):
        # Which ranks have copies of it is not known.
        return f"rank {rank}"
    return _part_in_megatron(parameter, rank=rank)


def _part_in_megatron(parameter: torch.Tensor, *, rank: int) -> str:
    megatron: Any = sys.modules.get("megatron.core.parallel_state")
    # The layers of Megatron that can be divided have the mark, also where nothing is divided.
    if megatron is None or not getattr(parameter, "tensor_model_parallel", False):
        return ""
    if not megatron.model_parallel_is_initialized():
        # Its groups are the loop's own.
        return f"rank {rank}"
    if megatron.get_tensor_model_parallel_world_size() == 1:
        return ""
    return f"tensor parallel {megatron.get_tensor_model_parallel_rank()}"


def is_flat(parameter: torch.Tensor) -> bool:
    """True if it is a shard of FSDP1, or a view of one."""
    return hasattr(parameter, "_fsdp_flattened") or hasattr(parameter, "_is_flat_param")


def gradients_judged(ranks: Sequence[RankSums]) -> Verdict:
    """Compare what the ranks' optimizers were given in one step.

    Returns:
        None if it is unknown: batches are equal, or there was no gradient.
    """
    known = [rank.gradients for rank in ranks if rank.gradients is not None]
    if reason := _why_no_comparison(ranks, known):
        return None, reason
    parts = np.array([rank.parts for rank in ranks])
    values = np.nan_to_num(torch.stack(known).numpy())
    roots = np.sqrt(np.maximum(values[0, :, 2], 1))
    differences = _differences(values, parts, scale_of_totals=roots)
    different = int((differences > AGREE).sum())
    if different:
        return False, (
            f"gradients of {different} of {len(roots)} parameters differ between workers by up to "
            f"{_percent(differences)} %: they were not exchanged; in loss, call model(...) itself, "
            "no method or module inside it"
        )
    if len({rank.digest for rank in ranks}) == 1:
        return None, "all workers have the same batch, as far as it can be read"
    return True, None


def _why_no_comparison(ranks: Sequence[RankSums], known: Sequence[torch.Tensor]) -> str | None:
    """Reason why gradients can't be compared, or None."""
    if len(known) < len(ranks):
        return "a worker has no memory to compare gradients"
    counts = {len(sums) for sums in known} | {len(rank.parts) for rank in ranks}
    if len(counts) > 1:
        return _OTHER_NUMBERS
    if not any(bool(torch.nan_to_num(sums)[:, 1].any()) for sums in known):
        return "the optimizer was given no gradient"
    if not _have_copies(np.array([rank.parts for rank in ranks])):
        return "no two workers have copies of a parameter"
    return None


def parameters_judged(ranks: Sequence[RankSums]) -> Verdict:
    """Compare the ranks' parameters after an update or an exchange.

    Returns:
        None without a reason where no two ranks have copies.
    """
    if len(ranks) == 1:
        return None, None
    known = [rank.parameters for rank in ranks if rank.parameters is not None]
    if len(known) < len(ranks):
        return None, "a worker's parameters can't be read"
    if any(len(sums) != len(known[0]) for sums in known):
        return None, _OTHER_NUMBERS
    parts = np.array([rank.parts for rank in ranks])
    if not _have_copies(parts):
        return None, None
    values = np.nan_to_num(torch.stack(known).numpy())
    differences = _differences(values, parts, scale_of_totals=np.ones(parts.shape[1]))
    different = int((differences > np.array(ranks[0].tolerances)).sum())
    if not different:
        return True, None
    return False, (
        f"{different} of {len(known[0])} parameters differ between workers by up to "
        f"{_percent(differences)} %: something other than the exchanged gradients changes them: a "
        "forward that writes to parameters, an optimizer that draws random numbers, or a loss that "
        "did not always call model(...) itself"
    )


def _have_copies(parts: NDArray[np.str_]) -> bool:
    """True if two ranks have the same part of a parameter."""
    return any(len(set(column)) < len(column) for column in parts.T)


def _differences(
    values: NDArray[np.float64],
    parts: NDArray[np.str_],
    *,
    scale_of_totals: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Largest difference of each tensor between ranks with the same part, by its norm.

    Args:
        values: (ranks, tensors, 3) of `_sums_and_norms`.
        parts: (ranks, tensors).
        scale_of_totals: (tensors,) by which differences of sums are divided.

    Returns:
        (tensors,), 0 where no two ranks have copies.
    """
    largest = np.zeros(parts.shape[1])
    for part in np.unique(parts):
        of_part = differences_of_part(values, parts == part, scale_of_totals=scale_of_totals)
        largest = np.maximum(largest, of_part)
    return largest


def differences_of_part(
    values: NDArray[np.float64],
    has_part: NDArray[np.bool_],
    *,
    scale_of_totals: NDArray[np.float64],
) -> NDArray[np.float64]:
    """Difference of each tensor between the ranks that have a part, by its largest norm there.

    Args:
        values: (ranks, tensors, 3) of `_sums_and_norms`.
        has_part: (ranks, tensors).
        scale_of_totals: (tensors,) by which differences of sums are divided.

    Returns:
        (tensors,), 0 where fewer than two ranks have the part.
    """
    totals, norms, _ = np.moveaxis(values, -1, 0)
    largest = np.where(has_part, norms, 0.0).max(axis=0)
    spreads = np.maximum(_spread(norms, has_part), _spread(totals, has_part) / scale_of_totals)
    differences: NDArray[np.float64] = spreads / np.maximum(largest, 1e-300)
    return differences


def _spread(column: NDArray[np.float64], has_part: NDArray[np.bool_]) -> NDArray[np.float64]:
    """(tensors,) from the smallest to the largest over the ranks that have a part."""
    highest = np.where(has_part, column, -np.inf).max(axis=0)
    lowest = np.where(has_part, column, np.inf).min(axis=0)
    # Minus infinity where no rank has it.
    spread: NDArray[np.float64] = np.maximum(highest - lowest, 0.0)
    return spread


def _percent(differences: NDArray[np.float64]) -> str:
    """The largest difference in percent, to two digits."""
    return f"{float(f'{float(differences.max()) * 100:.2g}'):g}"
