"""From the steps of all ranks to the figures of a trial."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.measure.statistics import (
    Series,
    effective_count,
    is_bimodal,
    over_periods,
    quantile_interval,
    reported_half_width,
    slowest_rank,
    steps_in,
    students_t,
)
from dtsweep.measure.steady import drift, spikes, steady_class, steady_from
from dtsweep.point import Point

Row = dict[str, Any]
Outcome = Mapping[str, Any]

PASS_COLUMNS = ("data_s", "forward_s", "backward_s")
PHASE_COLUMNS = (*PASS_COLUMNS, "sync_s", "optimizer_s")

P99_FROM = 100
"""Steps from which on a 99th percentile is given."""

SPIKY, CORRELATED_STEPS, INPUT_BOUND = 0.01, 5.0, 0.05
"""From which on a row is flagged: share of spikes, steps that resemble each other, share of a step spent on data."""


def with_warmup(point: Point, ranks: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Mark which steps are warm-up: those before the window, and those at its start that are not steady yet.

    Args:
        point: what was measured.
        ranks: the columns of `steps` of each rank that measured.

    Returns:
        The same with `warmup`. Where ranks step together the slowest rank's steps say where the steady part
        begins; where they don't, each rank's own. If no part is steady, nothing of the window is left out; nor
        if ranks that step apart were steady at different times.
    """
    windows = [steps["part"] == "window" for steps in ranks]
    series = [steps["step_s"][window] for steps, window in zip(ranks, windows, strict=True)]
    together = not point.is_asynchronous and len({len(times) for times in series}) == 1
    if together and series:
        series = [slowest_rank(series)] * len(series)
    found = [(steady_from(over_periods(times, point.period)) or 0) * point.period for times in series]
    if point.is_asynchronous and not _steady_together(ranks, found):
        found = [0] * len(found)
    marked = []
    for steps, window, count in zip(ranks, windows, found, strict=True):
        part = np.where(window & (np.cumsum(window) <= count), "warmup", steps["part"])
        marked.append({**steps, "part": part, "warmup": part == "warmup"})
    return marked


def figures(point: Point, ranks: Sequence[Outcome], *, half_width: float | None) -> Row:
    """The statistics of a window, from the raw steps of all ranks.

    Args:
        point: what was measured.
        ranks: what each rank sent, its steps with `warmup`.
        half_width: how well the mean should be known, as a share of it.

    Returns:
        Columns of `trials`, `flags` among them.
    """
    series = [timed(rank, "step_s") for rank in ranks]
    if point.is_asynchronous:
        steps = np.concatenate(series)
        rate, share = _asynchronous_rate(point, ranks)
    else:
        steps = slowest_rank(series)
        rate = point.global_batch * len(steps) / _window_s(ranks)
        half = reported_half_width(over_periods(steps, point.period))
        share = half / float(steps.mean()) if half is not None else None
    row = {
        **_rates(point, rate, share),
        **_step_times(steps, share, worth=_worth(series if point.is_asynchronous else [steps])),
        # An exchange in every period is a pattern: it is no oddity.
        "spike_share": float(spikes(over_periods(steps, point.period)).mean()),
        "stop_reason": ranks[0]["stop_reason"],
        "warmup_steps": int(min(rank["steps"]["warmup"].sum() for rank in ranks)),
        "measured_steps": min(len(times) for times in series),
        "window_s": _window_s(ranks),
        **{name: _phase(ranks, name) for name in PHASE_COLUMNS},
        **_exchange(point, ranks),
        **_work(ranks),
        **_flops(point, ranks, rate),
        **_device(point, ranks),
        "memory_peak_bytes": max(rank["memory_peak_bytes"] for rank in ranks),
        **late([steps for rank in ranks for steps in rank.get("staleness", ())]),
        **_losses(ranks),
    }
    within = max(half_width or 0.0, share or 0.0)
    row |= _steadiness(point, ranks, within=within)
    return {**row, "flags": _flags(point, row, steps, ranks, half_width=half_width)}


def timed(rank: Outcome, name: str, part: str = "window") -> NDArray[np.float64]:
    """A column of the steps of one part alone."""
    steps: NDArray[np.float64] = rank["steps"][name][rank["steps"]["part"] == part]
    return steps


def own_work(rank: Outcome, *, is_alone: bool = False) -> float | None:
    """What a rank's step takes without waiting for others, in seconds: the mean.

    From the steps without exchange; else without the time that it waited in the exchange; None where that is unknown
    and there are others.
    """
    free = timed(rank, "step_s", "no_exchange")
    if len(free):
        return float(free.mean())
    if "sync_s" in rank["steps"]:
        return float((timed(rank, "step_s") - timed(rank, "sync_s")).mean())
    return float(timed(rank, "step_s").mean()) if is_alone else None


def late(staleness: Sequence[int]) -> Row:
    """Mean and largest number of updates by others between a pull and its push."""
    if not len(staleness):
        return {}
    return {"staleness_mean": float(np.mean(staleness)), "staleness_max": int(np.max(staleness))}


def _steady_together(ranks: Sequence[Mapping[str, Any]], found: Sequence[int]) -> bool:
    """Whether all ranks are steady for at least half of the time in which all are in their windows."""
    windows = [steps["start_s"][steps["part"] == "window"] for steps in ranks]
    last = [steps["step_s"][steps["part"] == "window"][-1] for steps in ranks]
    ended = min(starts[-1] + seconds for starts, seconds in zip(windows, last, strict=True))
    began = max(starts[count] for starts, count in zip(windows, found, strict=True))
    return bool(ended - began >= 0.5 * (ended - max(starts[0] for starts in windows)))


def _window_s(ranks: Sequence[Outcome]) -> float:
    """From the first measured step to the end of the last worker's work."""
    return max(float(rank["window_s"] - timed(rank, "start_s")[0]) for rank in ranks)


def _asynchronous_rate(point: Point, ranks: Sequence[Outcome]) -> tuple[float, float | None]:
    """Samples per second while all workers were steadily at work, and its 95 % half-width as a share of it.

    The window ends with the first worker that stops; the others' step under way then counts by its share.
    """
    starts = [timed(rank, "start_s") for rank in ranks]
    series = [timed(rank, "step_s") for rank in ranks]
    ends = [start + times for start, times in zip(starts, series, strict=True)]
    began, ended = max(float(start[0]) for start in starts), min(float(end[-1]) for end in ends)
    counts = [steps_in(end - start[0], ended - start[0]) for start, end in zip(starts, ends, strict=True)]
    before = [steps_in(end - start[0], began - start[0]) for start, end in zip(starts, ends, strict=True)]
    samples = (sum(counts) - sum(before)) * point.micro_batch * point.accumulation
    rate = samples / (ended - began)
    counted = [times[(end - times >= began) & (end <= ended)] for times, end in zip(series, ends, strict=True)]
    halves = [reported_half_width(times) for times in counted]
    known = [half for half in halves if half is not None]
    if len(known) < len(halves):
        return rate, None
    # Workers vary independently: the squares of their rates' errors add up.
    means = np.array([times.mean() for times in counted])
    return rate, float(np.sqrt(np.sum(np.square(known / means**2))) / np.sum(1 / means))


def _rates(point: Point, rate: float, share: float | None) -> Row:
    tokens = getattr(point.workload, "tokens_per_sample", None)
    return {
        "samples_per_s": rate,
        "samples_per_s_low": rate / (1 + share) if share is not None else None,
        "samples_per_s_high": rate / (1 - share) if share is not None and share < 1 else None,
        "tokens_per_s": rate * tokens if tokens else None,
        "half_width": share,
    }


def _worth(series: Sequence[Series]) -> float | None:
    """How many independent steps those of one or several workers are worth; None where one has too few."""
    return sum(map(effective_count, series)) if min(map(len, series)) > 2 else None


def _step_times(steps: Series, share: float | None, *, worth: float | None) -> Row:
    mean = float(steps.mean())
    row: Row = {
        "step_mean_s": mean,
        "step_mean_s_low": mean * (1 - share) if share is not None else None,
        "step_mean_s_high": mean * (1 + share) if share is not None else None,
        "step_p90_s": float(np.quantile(steps, 0.9)),
        "step_max_s": float(steps.max()),
        "step_cv": float(steps.std(ddof=1)) / mean if len(steps) > 1 else None,
        "effective_steps": worth,
        "insufficient": [],
    }
    for name, p in {"p50": 0.5, "p95": 0.95, "p99": 0.99}.items():
        interval = quantile_interval(steps, p, count=worth) if worth else None
        if interval is None:
            row["insufficient"].append(name)
        row[f"step_{name}_s"] = float(np.quantile(steps, p)) if name != "p99" or len(steps) >= P99_FROM else None
        row[f"step_{name}_s_low"], row[f"step_{name}_s_high"] = interval or (None, None)
    return row


def _phase(ranks: Sequence[Outcome], name: str) -> float | None:
    """Mean per step of the rank that spends most in a phase; None where it was not measured."""
    known = [float(timed(rank, name).mean()) for rank in ranks if name in rank["steps"]]
    return max(known) if len(known) == len(ranks) else None


def _exchange(point: Point, ranks: Sequence[Outcome]) -> Row:
    """Exposed exchange, by the difference to steps without it, else by the time that steps waited for it."""
    if any(name not in rank["steps"] for rank in ranks for name in PASS_COLUMNS):
        return {}
    if point.workers == 1:
        return {"pass_s": _pass_s(point, ranks[0], "window")}
    with_it, without = (_blocks(ranks, part) for part in ("exchange", "no_exchange"))
    isolated = ranks[0].get("exchange_isolated_s")
    row: Row = {"exchange_isolated_s": isolated}
    if len(with_it):
        exposed, mean = with_it - without, float(with_it.mean())
        half = students_t(len(exposed) - 1) * exposed.std(ddof=1) / np.sqrt(len(exposed))
        share = float(exposed.mean()) / mean
        row |= {"comm_method": "difference", "comm_share": share}
        row |= {"comm_share_low": share - float(half) / mean, "comm_share_high": share + float(half) / mean}
        row["pass_s"] = max(_pass_s(point, rank, "no_exchange") for rank in ranks)
    elif all("sync_s" in rank["steps"] for rank in ranks):
        waited = np.mean([timed(rank, "sync_s").mean() for rank in ranks])
        share = float(waited / np.mean([timed(rank, "step_s").mean() for rank in ranks]))
        row |= {"comm_method": "wait", "comm_share": share}
        row["pass_s"] = max(_pass_s(point, rank, "window") for rank in ranks)
    else:
        return row
    if isolated and len(with_it):
        row["overlap_share"] = float(np.clip(1 - exposed.mean() / isolated, 0.0, 1.0))
    return row


def _blocks(ranks: Sequence[Outcome], part: str) -> NDArray[np.float64]:
    """Mean step of each block of a part, of the slowest rank: (blocks,) seconds, one of each pair."""
    means = []
    for rank in ranks:
        blocks, times = timed(rank, "block", part), timed(rank, "step_s", part)
        means.append([times[blocks == block].mean() for block in np.unique(blocks)])
    slowest: NDArray[np.float64] = np.max(np.array(means), axis=0)
    return slowest


def _pass_s(point: Point, rank: Outcome, part: str) -> float:
    """A forward/backward pass with its data, mean of a rank."""
    phases = [timed(rank, name, part) for name in PASS_COLUMNS]
    return float(np.sum(phases, axis=0).mean()) / point.accumulation


def _work(ranks: Sequence[Outcome]) -> Row:
    """How much longer the slowest rank works than the fastest, and which one that is."""
    if len(ranks) == 1:
        return {"rank_skew": 0.0}
    works = [work for rank in ranks if (work := own_work(rank)) is not None]
    if len(works) < len(ranks):
        return {}
    slowest = int(np.argmax(works))
    node = ranks[slowest].get("facts", {}).get("node", "an unknown node")
    return {"rank_skew": max(works) / min(works) - 1, "straggler": f"rank {slowest} on {node}"}


def _flops(point: Point, ranks: Sequence[Outcome], rate: float) -> Row:
    counted = ranks[0].get("flops")
    known = [rank.get("peak_flops_per_s") for rank in ranks]
    peak = min(known) if all(known) else None  # type: ignore[type-var]  # none of them is None
    row: Row = {"peak_flops_per_s": peak, "peak_source": ranks[0].get("peak_source") if peak else None}
    if counted is None:
        return row
    each = rate / point.workers
    model, hardware = counted["model_per_sample"] * each, counted["hardware_per_sample"]
    row |= {"flops_per_sample": counted["model_per_sample"], "flops_per_s_per_worker": model}
    if peak:
        row |= {"mfu": model / peak, "hfu": None if hardware is None else hardware * each / peak}
    return row


def _device(point: Point, ranks: Sequence[Outcome]) -> Row:
    """What devices and hosts did in the window; null unless all ranks know it."""
    hosts = {rank.get("facts", {}).get("node"): rank for rank in ranks}.values()
    energy, power = _all(ranks, "energy_j"), _all(ranks, "power_w")
    utilization, shares = _all(ranks, "device_utilization"), _all(hosts, "host_cpu_share")
    cpu_energy, sent = _all(hosts, "cpu_energy_j"), _all(hosts, "network_sent_bytes")
    longest = max(rank["window_s"] for rank in ranks)
    # Of the whole window, as its energy is.
    samples = sum(rank["window_steps"] for rank in ranks) * point.micro_batch * point.accumulation
    return {
        "device_utilization": float(np.mean(utilization)) if utilization else None,
        "power_w": sum(power) if power else None,
        "energy_j": sum(energy) if energy else None,
        "energy_j_per_sample": sum(energy) / samples if energy else None,
        "cpu_energy_j": sum(cpu_energy) if cpu_energy else None,
        "host_cpu_share": max(shares) if shares else None,
        "network_bytes_per_s": sum(sent) / longest if sent else None,
    }


def _all(ranks: Iterable[Outcome], name: str) -> list[float]:
    """A value of each rank, or nothing where one does not know it."""
    values = [rank.get(name) for rank in ranks]
    return [] if None in values else values  # type: ignore[return-value]  # none of them is None


def _losses(ranks: Sequence[Outcome]) -> Row:
    losses = [timed(rank, "loss") for rank in ranks]
    sent = [rank["bytes_sent"] / rank["window_steps"] for rank in ranks if "bytes_sent" in rank]
    return {
        "loss_first": float(np.mean([loss[0] for loss in losses])),
        "loss_last": float(np.mean([loss[-1] for loss in losses])),
        "bytes_sent_per_step": float(np.mean(sent)) if sent else None,
    }


def _steadiness(point: Point, ranks: Sequence[Outcome], *, within: float) -> Row:
    """How the window became steady; judged by the slowest rank, or by rank 0 where steps are each worker's own."""
    series = [timed(rank, "step_s") for rank in ranks]
    rest = over_periods(series[0] if point.is_asynchronous else slowest_rank(series), point.period)
    found = [(rank["steps"]["part"] == "warmup").sum() > rank["hard_skip"] for rank in ranks]
    kind = steady_class(rest, within=within)
    return {
        "drift": drift(rest) if len(rest) >= 3 else None,
        "steady_class": "warmup" if kind == "flat" and any(found) else kind,
    }


def _flags(point: Point, row: Row, steps: Series, ranks: Sequence[Outcome], *, half_width: float | None) -> list[str]:
    """What a reader should know of these figures, each flag once."""
    wide = half_width is not None and (row["half_width"] is None or row["half_width"] > half_width)
    data_share = (row["data_s"] or 0.0) / row["step_mean_s"]
    correlated = row["effective_steps"] and len(steps) / row["effective_steps"] > CORRELATED_STEPS
    found = {
        "imprecise": wide and row["stop_reason"] != "dominated",
        "drift": row["steady_class"] in ("slowdown", "none"),
        "spiky": row["spike_share"] > SPIKY,
        "bimodal": is_bimodal(over_periods(steps, point.period)),
        "autocorrelated": bool(correlated),
        "input_bound": data_share > INPUT_BOUND,
    }
    seen = [flag for rank in ranks for flag in rank.get("flags", ())]
    return list(dict.fromkeys([*(flag for flag, is_so in found.items() if is_so), *seen]))
