"""Results of `vllm bench serve` and of aiperf, as rows of results' columns.

Formats, by the tools' own sources:

- vLLM: `vllm/benchmarks/serve.py` with `--save-result`, and the older `benchmark_serving.py`: one
  flat object, times in ms. `e2el` counts from sending, `e2el_including_client_queue` (2026) from
  the arrival.
- aiperf: `profile_export_aiperf.json`, schemas 1.0 to 1.5 (`docs/reference/json-export-schema.md`):
  an object for each metric, with `unit`, `avg` and percentiles. The load is in `phases` of
  `input_config`, before in `loadgen`; of GenAI-Perf in `perf_analyzer.stimulus`, or flat.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeAlias

_Json: TypeAlias = Mapping[str, Any]

_NEITHER = (
    "it comes neither from `vllm bench serve --save-result` nor from aiperf "
    "(profile_export_aiperf.json); give one of these, or a table as .csv, .jsonl or .parquet"
)
_RAMPS = ("ramp_up_strategy", "rate_ramp", "rate_series", "request_rate_ramp_duration")
"""Keys of loads whose rate changes."""

_SECONDS = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "sec": 1.0, "s": 1.0}
_PERCENTILES = ("p50", "p90", "p95", "p99")


def serving_row(data: bytes) -> dict[str, Any]:
    """Read a result of serving, of the tool that its keys are of.

    Returns:
        A row by columns of results; unknown is None.

    Raises:
        ValueError: it comes from another tool, or from a load that has no columns.
    """
    try:
        return _row_of(json.loads(data))
    except (AttributeError, KeyError, TypeError) as error:
        raise ValueError(f"{_NEITHER} ({error!r})") from error


def _row_of(result: Any) -> dict[str, Any]:
    throughput = None
    if isinstance(result, dict):
        throughput = result.get("request_throughput")
    if isinstance(throughput, dict):
        tool = "genai-perf"
        if "was_cancelled" in result:
            tool = "aiperf"
        return {"workload_tool": tool, **_row(result)}
    if isinstance(throughput, int | float) and "completed" in result:
        groups = int(result.get("data_parallel_size", 1))
        return {"workload_tool": "vllm", **_row(_as_aiperf(result)), "workers": groups}
    raise ValueError(_NEITHER)


def _as_aiperf(result: _Json) -> _Json:
    """Result of vLLM in aiperf's form."""
    completed = result["completed"]
    lost = result.get("failed")
    if lost is None and "num_prompts" in result:
        lost = result["num_prompts"] - completed
    latency = "e2el"
    if "mean_e2el_including_client_queue_ms" in result:
        latency = "e2el_including_client_queue"
    answers = max(completed, 1)
    averages = {
        "request_throughput": result["request_throughput"],
        "output_token_throughput": result.get("output_throughput"),
        "error_request_count": lost,
        "input_sequence_length": result.get("total_input_tokens", math.nan) / answers,
        "output_sequence_length": result.get("total_output_tokens", math.nan) / answers,
    }
    return {
        **{name: {"avg": value} for name, value in averages.items()},
        "request_latency": _metric_of(result, latency),
        "time_to_first_token": _metric_of(result, "ttft"),
        "inter_token_latency": _metric_of(result, "tpot"),
        "input_config": {"model": result.get("model_id"), "loadgen": result},
    }


def _metric_of(result: _Json, name: str) -> _Json:
    """Metric of vLLM in aiperf's form."""
    percentiles = {p: result.get(f"{p}_{name}_ms") for p in _PERCENTILES}
    if percentiles["p50"] is None:
        percentiles["p50"] = result.get(f"median_{name}_ms")
    return {"unit": "ms", "avg": result.get(f"mean_{name}_ms"), **percentiles}


def _row(result: _Json) -> dict[str, Any]:
    """Columns of a result in aiperf's form."""
    if result.get("was_cancelled"):
        raise ValueError("its run was cancelled; give results of whole runs")
    config = result.get("input_config") or {}
    columns = {
        "first_token_s": _seconds(result, "time_to_first_token", "avg"),
        "per_token_s": _seconds(result, "inter_token_latency", "avg"),
        "tokens_per_s": _statistic(result, "output_token_throughput", "avg"),
        "samples_per_s": _statistic(result, "request_throughput", "avg"),
        "requests_lost": _lost(result),
        "workload_input_tokens": _statistic(result, "input_sequence_length", "avg"),
        "workload_output_tokens": _statistic(result, "output_sequence_length", "avg"),
    }
    columns["step_mean_s"] = _seconds(result, "request_latency", "avg")
    for name in (*_PERCENTILES, "max"):
        columns[f"step_{name}_s"] = _seconds(result, "request_latency", name)
    return {"workload": _model_of(config), "workers": 1, **columns, **_load(_load_of(config))}


def _statistic(result: _Json, metric: str, name: str) -> float | None:
    """A number of a metric; None where the result has no such metric or number."""
    value: float | None = (result.get(metric) or {}).get(name)
    return value


def _seconds(result: _Json, metric: str, name: str) -> float | None:
    value = _statistic(result, metric, name)
    if value is not None:
        value *= _SECONDS[result[metric]["unit"]]
    return value


def _lost(result: _Json) -> float | None:
    """Requests that failed: aiperf counts them where any did, GenAI-Perf never."""
    if "error_request_count" in result:
        return _statistic(result, "error_request_count", "avg")
    if "error_summary" in result:
        return float(sum(error["count"] for error in result["error_summary"]))
    return None


def _load(load: _Json) -> dict[str, Any]:
    """Columns of a load: an open loop if it has a rate, else a closed loop.

    >>> _load({"request_rate": "inf", "max_concurrency": 8})
    {'workload_max_concurrency': 8, 'sync': 'closed_loop'}
    """
    rate = load.get("rate", load.get("request_rate"))
    concurrency = load.get("concurrency", load.get("max_concurrency"))
    if any(load.get(name) for name in _RAMPS) or rate is concurrency is None:
        raise ValueError("it has no rate and no concurrency that hold for the whole run")
    columns = {"workload_max_concurrency": concurrency}
    if rate is None or math.isinf(float(rate)):
        return {**columns, "sync": "closed_loop"}
    return {**columns, "sync": "open_loop", "rate": float(rate)}


def _load_of(config: _Json) -> _Json:
    """Load in a configuration of aiperf or GenAI-Perf."""
    loads = [phase for phase in config.get("phases", []) if phase.get("kind") != "warmup"]
    loads = [phase for phase in loads if phase["name"] != "warmup"]
    if len(loads) > 1:
        raise ValueError(f"it has {len(loads)} phases; give the results of each phase")
    stimulus = (config.get("perf_analyzer") or {}).get("stimulus")
    load: _Json = [*loads, config.get("loadgen") or stimulus or config][0]
    return load


def _model_of(config: _Json) -> str | None:
    """Name of the model, the first of several."""
    names = (config.get("endpoint") or {}).get("model_names") or config.get("model_names")
    if "models" in config:
        names = [model["name"] for model in config["models"]["items"]]
    names = names or config.get("model")
    if isinstance(names, list):
        return str(names[0])
    return names
