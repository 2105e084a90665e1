"""Numbers of a row of a table that can't all be true, in words."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from dtsweep.foreign_tables.map_file import MEASURED, RATES, SHARES, TIMES
from dtsweep.sweep.point import AXES

TOLERANCE = 0.05
"""Largest difference between two numbers that should be equal, as a share.

Tables round, and a mean step is not quite the window over its steps.
"""

_POSITIVE = (*TIMES, *RATES, "pass_s", "exchange_isolated_s", "memory_peak_bytes", "power_w")
_COUNTS = (
    *("hosts", "global_batch", "parameters", "flops_per_sample", "data_parallel", "model_parallel"),
)
_ABOVE_ZERO = (*_POSITIVE, *_COUNTS)
_NOT_NEGATIVE = ("bytes_sent_per_step", "energy_j_per_sample", "usd_per_hour")
_MAY_DIVERGE = "loss_last"


def contradictions(row: Mapping[str, Any], *, tokens_per_sample: float | None) -> str | None:
    """Say which numbers of a row can't be true, or not together; None where all can.

    Args:
        row: columns of results; unknown ones are left out.
        tokens_per_sample: length of a sample; None where it is not known.
    """
    alone = [*_impossible(row)]
    if tokens_per_sample is not None and not 0 < tokens_per_sample < math.inf:
        alone.append(f"tokens_per_sample is {tokens_per_sample:g}")
    if alone:
        return "; ".join(alone)
    return "; ".join([*_disagreeing(row, tokens_per_sample)]) or None


def _impossible(row: Mapping[str, Any]) -> Iterator[str]:
    """Numbers that are impossible by themselves."""
    for name in (*AXES, *_COUNTS, *MEASURED):
        value = row.get(name)
        if value is None or isinstance(value, str | bool) or name == _MAY_DIVERGE:
            continue
        if not math.isfinite(value):
            yield f"{name} is {value}"
        elif (value <= 0 and name in _ABOVE_ZERO) or (value < 0 and name in _NOT_NEGATIVE):
            yield f"{name} is {value:g}"
        elif name in SHARES and not 0 <= value <= 1:
            yield f"{name} is {value:.4g}, not a share of 0 to 1"
        elif name in AXES and (least := AXES[name].least) is not None and value < least:
            yield f"{name} is {value:g}, below {least:g}"


def _disagreeing(row: Mapping[str, Any], tokens: float | None) -> Iterator[str]:
    """Numbers that contradict each other."""
    # A rate is a mean: over the median step it may be any number.
    step, batch = row.get("step_mean_s"), row.get("global_batch")
    product = global_batch_of(row)
    if batch is not None and product is not None and batch != product:
        yield f"global_batch is {batch:g}, and workers × micro_batch × accumulation {product:g}"
    rate, token_rate = row.get("samples_per_s"), row.get("tokens_per_s")
    if rate is not None and step is not None and batch is not None and _differ(rate * step, batch):
        yield (
            f"samples_per_s × step time is {rate * step:.4g} samples, and the global batch "
            f"{batch:g}"
        )
    if token_rate is not None and tokens is not None:
        if step is not None and batch is not None:
            if _differ(token_rate * step, batch * tokens):
                yield (
                    f"tokens_per_s × step time is {token_rate * step:.4g} tokens, and global batch "
                    f"× tokens_per_sample {batch * tokens:.4g}"
                )
        elif rate is not None and _differ(token_rate, rate * tokens):
            yield (
                f"tokens_per_s is {token_rate:.4g}, and samples_per_s × tokens_per_sample "
                f"{rate * tokens:.4g}"
            )
    quantiles = [name for name in TIMES[1:] if row.get(name) is not None]
    for lower, higher in itertools.pairwise(quantiles):
        if row[lower] > row[higher]:
            yield f"{lower} is {row[lower]:.4g}, above {higher} {row[higher]:.4g}"
    longest = row.get("step_max_s")
    if step is not None and longest is not None and longest < step and _differ(longest, step):
        yield f"step_mean_s is {step:.4g}, above step_max_s {longest:.4g}"


def _differ(one: float, other: float) -> bool:
    return abs(one - other) > TOLERANCE * max(abs(one), abs(other))


def global_batch_of(values: Mapping[str, Any]) -> int | None:
    """Samples of a step over all workers; null where a factor is unknown, and of single pushes.

    Null, too, where it is not above 0 or more than results can store.

    >>> global_batch_of({"workers": 4, "micro_batch": 8, "accumulation": 2})
    64
    """
    groups = values.get("data_parallel") or values["workers"] // (values.get("model_parallel") or 1)
    micro_batch, passes = values.get("micro_batch"), values.get("accumulation")
    if micro_batch is None or passes is None or values.get("semantics") == "stale":
        return None
    samples = int(groups * micro_batch * passes)
    return samples if 0 < samples < 1 << 63 else None
