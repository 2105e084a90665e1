"""From what the ranks sent to the rows that are stored."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.measure.statistics import mean_half_width, quantile_interval, slowest_rank, steps_in
from dtsweep.order import Order, point_row
from dtsweep.point import Point
from dtsweep.sweep import Sweep

Row = dict[str, Any]
PHASE_COLUMNS = ("data_s", "forward_s", "backward_s", "sync_s", "optimizer_s")
P99_FROM = 100
"""Steps from which on a 99th percentile is given."""


def trial_row(sweep: Sweep, order: Order, outcomes: Mapping[int, Mapping[str, Any]]) -> Row:
    """Make the row of an attempt from what each rank sent.

    Args:
        sweep: its sweep.
        order: what was run.
        outcomes: by rank; `facts` of the rank in each, figures in those that measured.

    Returns:
        Columns of `trials`; figures only where every rank measured and all is well.
    """
    point = order.to_point(sweep.workload)
    row: Row = {
        **point_row(sweep, point),
        "attempt_id": order.attempt_id,
        "trial_id": order.trial_id,
        "repeat": order.repeat,
        "attempt": order.attempt,
        **worst(outcomes),
        **machine_columns(outcomes),
    }
    if len(outcomes) == point.workers and all(outcome.get("status") == "ok" for outcome in outcomes.values()):
        row |= _figures(point, [outcomes[rank] for rank in range(point.workers)])
    return row


def worst(outcomes: Mapping[int, Mapping[str, Any]]) -> Row:
    """The status and reason of a trial: those of the rank whose failure explains the others'.

    >>> worst({0: {"status": "collateral", "reason": "peer gone"}, 1: {"status": "oom_device", "reason": "full"}})
    {'status': 'oom_device', 'reason': 'rank 1: full'}
    """
    order = ("oom_device", "oom_host", "user_error", "version_mismatch", "timeout", "nan", "collateral", "ok")
    reported = [rank for rank in sorted(outcomes) if "status" in outcomes[rank]]
    if not reported:
        return {}
    rank = min(reported, key=lambda r: order.index(outcomes[r]["status"]))
    reason = outcomes[rank].get("reason")
    return {"status": outcomes[rank]["status"], "reason": f"rank {rank}: {reason}" if reason else None}


def machine_columns(outcomes: Mapping[int, Mapping[str, Any]]) -> Row:
    """What the trial ran on, and the digest that tells whether two trials ran on the same."""
    facts = {rank: outcome["facts"] for rank, outcome in outcomes.items() if "facts" in outcome}
    if not facts:
        return {}
    machines = sorted(
        json.dumps([fact["device"], fact["threads"], fact["machine"]], sort_keys=True) for fact in facts.values()
    )
    versions = facts[min(facts)]["machine"]
    return {
        "hosts": len({fact.get("node_id") or fact["node"] for fact in facts.values()}),
        "devices": device_names(facts),
        "backend": "nccl" if facts[min(facts)]["device_uuid"] else "gloo",
        "env_id": hashlib.sha256("".join(sorted(set(machines))).encode()).hexdigest()[:16],
        **{name: value for name, value in versions.items() if name.endswith("_version")},
    }


def rank_rows(outcomes: Mapping[int, Mapping[str, Any]]) -> list[Row]:
    """The rows of `ranks`: what each rank ran on and measured."""
    return [_rank_row(rank, outcome) for rank, outcome in sorted(outcomes.items())]


def step_columns(outcomes: Mapping[int, Mapping[str, Any]]) -> dict[str, NDArray[Any]] | None:
    """The columns of `steps`, rank after rank; None where no rank measured."""
    measured = {rank: outcome["steps"] for rank, outcome in sorted(outcomes.items()) if "steps" in outcome}
    if not measured:
        return None
    names = {name for columns in measured.values() for name in columns}
    table = {
        name: np.concatenate([steps.get(name, np.full(len(steps["step"]), np.nan)) for steps in measured.values()])
        for name in names
    }
    table["rank"] = np.repeat(list(measured), [len(steps["step"]) for steps in measured.values()])
    return table


def _rank_row(rank: int, outcome: Mapping[str, Any]) -> Row:
    facts = {name: value for name, value in outcome.get("facts", {}).items() if name != "machine"}
    row: Row = {"rank": rank, **facts}
    if "steps" in outcome:
        seconds = _timed(outcome, "step_s")
        row |= {name: outcome[name] for name in ("window_s", "memory_peak_bytes")}
        row |= {"steps": len(seconds), "step_mean_s": float(seconds.mean()), "bytes_sent": outcome.get("bytes_sent")}
        row |= _staleness(outcome.get("staleness", ()))
    return row


def _figures(point: Point, ranks: Sequence[Mapping[str, Any]]) -> Row:
    """The statistics of a window, from the raw steps of all ranks."""
    series = [_timed(rank, "step_s") for rank in ranks]
    if point.is_asynchronous:
        steps = np.concatenate(series)
        rate, share = _asynchronous_rate(point, series)
    else:
        steps = slowest_rank(series)
        rate = point.global_batch * len(steps) / max(rank["window_s"] for rank in ranks)
        half = mean_half_width(steps)
        share = half / float(steps.mean()) if half is not None else None
    tokens = getattr(point.workload, "tokens_per_sample", None)
    median = quantile_interval(steps, 0.5)
    sent = [rank["bytes_sent"] / len(times) for rank, times in zip(ranks, series, strict=True) if "bytes_sent" in rank]
    means = [float(times.mean()) for times in series]
    losses = [rank["steps"]["loss"][~rank["steps"]["warmup"]] for rank in ranks]
    return {
        "samples_per_s": rate,
        "samples_per_s_low": rate / (1 + share) if share is not None else None,
        "samples_per_s_high": rate / (1 - share) if share is not None and share < 1 else None,
        "tokens_per_s": rate * tokens if tokens else None,
        "step_mean_s": float(steps.mean()),
        "step_p50_s": float(np.quantile(steps, 0.5)),
        "step_p50_s_low": median[0] if median else None,
        "step_p50_s_high": median[1] if median else None,
        "step_p90_s": float(np.quantile(steps, 0.9)),
        "step_p99_s": float(np.quantile(steps, 0.99)) if len(steps) >= P99_FROM else None,
        "stop_reason": ranks[0]["stop_reason"],
        "warmup_steps": ranks[0]["warmup_steps"],
        "measured_steps": min(len(times) for times in series),
        "window_s": max(rank["window_s"] for rank in ranks),
        "memory_peak_bytes": max(rank["memory_peak_bytes"] for rank in ranks),
        "rank_skew": max(means) / min(means) - 1,
        "bytes_sent_per_step": float(np.mean(sent)) if sent else None,
        "loss_first": float(np.mean([loss[0] for loss in losses])),
        "loss_last": float(np.mean([loss[-1] for loss in losses])),
        **_staleness([late for rank in ranks for late in rank.get("staleness", ())]),
        **{name: _phase(ranks, name) for name in PHASE_COLUMNS},
    }


def _asynchronous_rate(point: Point, series: Sequence[NDArray[np.float64]]) -> tuple[float, float | None]:
    """Samples per second while all workers were at work, and its 95 % half-width as a share of it.

    The window ends with the first worker that stops; the others' step under way then counts by its share.
    """
    ends = [np.cumsum(times) for times in series]
    seconds = min(float(end[-1]) for end in ends)
    rate = sum(steps_in(end, seconds) for end in ends) * point.micro_batch * point.accumulation / seconds
    halves = [mean_half_width(times) for times in series]
    known = [half for half in halves if half is not None]
    if len(known) < len(halves):
        return rate, None
    # Workers vary independently: the squares of their rates' errors add up.
    means = np.array([times.mean() for times in series])
    return rate, float(np.sqrt(np.sum(np.square(known / means**2))) / np.sum(1 / means))


def _timed(outcome: Mapping[str, Any], name: str) -> NDArray[np.float64]:
    """A column of the window's steps alone."""
    steps: NDArray[np.float64] = outcome["steps"][name][~outcome["steps"]["warmup"]]
    return steps


def _phase(ranks: Sequence[Mapping[str, Any]], name: str) -> float | None:
    """Mean per step of the rank that spends most in a phase; None where it was not measured."""
    known = [float(_timed(rank, name).mean()) for rank in ranks if name in rank["steps"]]
    return max(known) if len(known) == len(ranks) else None


def _staleness(late: Sequence[int]) -> Row:
    """Mean and largest number of updates by others between a pull and its push."""
    return {"staleness_mean": float(np.mean(late)), "staleness_max": int(np.max(late))} if len(late) else {}


def device_names(ranks: Mapping[int, Mapping[str, Any]]) -> str:
    """All device models of a world, each once.

    >>> device_names({0: {"device": "H100"}, 1: {"device": "H100"}})
    'H100'
    """
    return ", ".join(sorted({rank["device"] for rank in ranks.values()}))
