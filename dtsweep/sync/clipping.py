"""Clipping of gradients by their norm over the whole model: the axis `clip_norm`."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor, distributed, nn

_EPSILON = 1e-6
"""Added to a norm before it divides, as `torch.nn.utils.clip_grad_norm_` does."""


def clip(parameters: Iterable[nn.Parameter], limit: float | None) -> None:
    """Scale gradients down to a norm of at most `limit`; None leaves them as they are.

    Gradients in shards are clipped by the norm of whole ones, for which ranks exchange a number.

    Raises:
        ValueError: a gradient is sparse.
    """
    if limit is None:
        return
    try:
        nn.utils.clip_grad_norm_(parameters, limit)
    except NotImplementedError as error:
        raise ValueError(
            "clip_norm can't clip sparse gradients; leave sparse=True out of the embeddings"
        ) from error


def clip_alone(gradients: list[Tensor], limit: float | None) -> None:
    """As `clip`, for a rank's own parts of gradients, by their norm alone: without an exchange."""
    if limit is not None and gradients:
        norm = nn.utils.get_total_norm(gradients)
        torch._foreach_mul_(gradients, (limit / (norm + _EPSILON)).clamp(max=1.0))


def clip_offloaded(
    gradients: list[Tensor],
    limit: float,
    *,
    group: distributed.ProcessGroup,
    device: torch.device,
) -> None:
    """As `clip`, for a rank's parts of gradients in main memory.

    Args:
        gradients: of this rank.
        limit: of the norm over all ranks.
        group: of the ranks that share the model.
        device: of its backend, which may not exchange what is in main memory.
    """
    squared_norm = nn.utils.get_total_norm(gradients).square().to(device)
    distributed.all_reduce(squared_norm, group=group)
    scale_to(limit, gradients, squared_norm.cpu())


def scale_to(limit: float, gradients: Iterable[Tensor | None], squared_norm: Tensor) -> None:
    """Scale a rank's parts of gradients whose squared norm over the model is known."""
    factor = (limit / (squared_norm.sqrt() + _EPSILON)).clamp(max=1.0)
    if present := [gradient for gradient in gradients if gradient is not None]:
        torch._foreach_mul_(present, factor)


def clip_factor(squared_norm: float, limit: float) -> float:
    """Factor of gradients with this squared norm over the whole model.

    >>> round(clip_factor(4.0, 1.0), 3), clip_factor(0.25, 1.0)
    (0.5, 1.0)
    """
    # Not `min`, which would hide a norm that is not a number.
    factor = limit / (squared_norm**0.5 + _EPSILON)
    return 1.0 if factor > 1.0 else factor
