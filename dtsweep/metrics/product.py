"""A digest that tells models apart: rates of different models are not compared."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from typing import Any


def model_digest(
    parameters: Sequence[Sequence[Any]],
    *,
    flops_per_sample: float | None,
    tokens_per_sample: int | None,
) -> str:
    """Tell two models apart, whatever their weights and data, and whatever kernels compute them.

    Args:
        parameters: of each one what tells it from others, its shape among it: JSON values. The
            order does not count.
        flops_per_sample: of the model, without recomputation; None where they can't be counted.
        tokens_per_sample: None for models without tokens.

    Returns:
        16 hex digits.
    """
    flops = None
    if flops_per_sample is not None:
        flops = f"{flops_per_sample:.9g}"
    text = json.dumps([sorted(map(json.dumps, parameters)), flops, tokens_per_sample])
    return hashlib.sha256(text.encode()).hexdigest()[:16]
