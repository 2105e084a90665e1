"""Results of serving by other tools: files of the forms in the tools' sources."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import dtsweep
from dtsweep.errors import SweepError
from dtsweep.foreign_tables.serving_json import serving_row
from tests.foreign_tables.tables import imported

VLLM: dict[str, Any] = {
    **{"date": "20261130-101500", "endpoint_type": "vllm", "backend": "vllm", "label": None},
    **{"model_id": "Qwen/Qwen3-8B", "tokenizer_id": "Qwen/Qwen3-8B", "num_prompts": 200},
    **{"request_rate": 4.0, "burstiness": 1.0, "max_concurrency": None, "duration": 50.0},
    **{"completed": 198, "failed": 2, "total_input_tokens": 198 * 512},
    **{"total_output_tokens": 198 * 128, "request_throughput": 3.96, "request_goodput": None},
    **{"output_throughput": 506.9, "total_token_throughput": 2534.4},
    **{"mean_ttft_ms": 41.5, "median_ttft_ms": 38.0, "std_ttft_ms": 9.0, "p99_ttft_ms": 80.0},
    **{"mean_tpot_ms": 9.5, "median_tpot_ms": 9.4, "std_tpot_ms": 0.3, "p99_tpot_ms": 11.0},
    **{"mean_e2el_ms": 1250.0, "median_e2el_ms": 1240.0, "p95_e2el_ms": 1500.0},
    "p99_e2el_ms": 1700.0,
}
"""Of version 0.11, with --percentile-metrics ttft,tpot,e2el --metric-percentiles 95,99."""

LATENCY = {"unit": "ms", "avg": 260.0, "min": 210.0, "max": 410.0, "p50": 250.0, "p90": 300.0}
AIPERF: dict[str, Any] = {
    **{"schema_version": "1.3", "aiperf_version": "0.8.0", "was_cancelled": False},
    "error_summary": [{"error_details": {"code": 500, "message": "busy"}, "count": 3}],
    "request_throughput": {"unit": "requests/sec", "avg": 30.5},
    "request_latency": {**LATENCY, "p95": 330.0, "p99": 400.0, "std": 20.0, "count": 500},
    "time_to_first_token": {"unit": "us", "avg": 25_000.0, "p50": 24_000.0},
    "output_sequence_length": {"unit": "tokens", "avg": 16.0},
    "input_config": {
        "models": {"items": [{"name": "Qwen/Qwen3-8B"}]},
        "phases": [
            {"name": "warmup", "kind": "warmup", "type": "concurrency", "concurrency": 1},
            {"name": "profiling", "kind": "profiling", "type": "concurrency", "concurrency": 8},
        ],
    },
}


def test_a_result_of_vllm_becomes_an_open_loop(tmp_path: Path) -> None:
    lines = imported(tmp_path, json.dumps(VLLM), name="4qps.json")
    assert lines[0] == "1 row: 1 kept (1 point)"
    trial = dtsweep.load(tmp_path / "results").iloc[0]
    assert (trial["sync"], trial["semantics"], trial["rate"]) == ("open_loop", "inference", 4.0)
    assert (trial["workload"], trial["workers"]) == ("Qwen/Qwen3-8B", 1)
    assert (trial["samples_per_s"], trial["tokens_per_s"], trial["requests_lost"]) == (
        3.96,
        506.9,
        2,
    )
    assert (trial["first_token_s"], trial["per_token_s"]) == (0.0415, 0.0095)
    assert (trial["step_p50_s"], trial["step_p95_s"], trial["step_p99_s"]) == (1.24, 1.5, 1.7)
    assert (trial["workload_input_tokens"], trial["env_id"]) == (512, f"imported:{tmp_path.name}")
    # A file of another rate has no p90 either: it is null, and its environment the same.
    imported(tmp_path, json.dumps(VLLM | {"request_rate": 8.0}), name="8qps.json")
    trials = dtsweep.load(tmp_path / "results")
    assert trials["rate"].tolist() == [4.0, 8.0]
    assert trials["step_p90_s"].isna().all()
    assert trials["env_id"].nunique() == 1


def test_a_rate_of_inf_is_a_closed_loop_and_what_was_not_completed_is_lost() -> None:
    older = {name: value for name, value in VLLM.items() if name != "failed" and "e2el" not in name}
    row = serving_row(json.dumps(older | {"request_rate": "inf", "max_concurrency": 16}).encode())
    assert (row["sync"], row["workload_max_concurrency"]) == ("closed_loop", 16)
    assert (row["requests_lost"], row["step_p50_s"], row["step_mean_s"]) == (2, None, None)
    # Latencies from the arrival, where waiting for a place was measured.
    queued = {"mean_e2el_including_client_queue_ms": 3000.0, "data_parallel_size": "2"}
    row = serving_row(json.dumps(VLLM | queued).encode())
    assert (row["step_mean_s"], row["step_p50_s"], row["workers"]) == (3.0, None, 2)


def test_results_of_aiperf_and_genai_perf_have_the_units_that_they_say() -> None:
    row = serving_row(json.dumps(AIPERF).encode())
    assert (row["workload_tool"], row["workload"]) == ("aiperf", "Qwen/Qwen3-8B")
    assert (row["sync"], row["workload_max_concurrency"]) == ("closed_loop", 8)
    assert (row["step_p99_s"], row["step_p50_s"], row["requests_lost"]) == (0.4, 0.25, 3)
    assert row["first_token_s"] == pytest.approx(0.025)
    assert row["per_token_s"] is row["tokens_per_s"] is None
    before = {"endpoint": {"model_names": ["m"]}, "loadgen": {"request_rate": 20.0}}
    row = serving_row(json.dumps(AIPERF | {"input_config": before}).encode())
    assert (row["sync"], row["rate"], row["workload"]) == ("open_loop", 20.0, "m")
    stimulus = {"model_names": ["m"], "perf_analyzer": {"stimulus": {"concurrency": 4}}}
    genai = {"request_throughput": {"unit": "requests/sec", "avg": 2.0}, "input_config": stimulus}
    row = serving_row(json.dumps(genai).encode())
    assert (row["workload_tool"], row["samples_per_s"]) == ("genai-perf", 2.0)
    assert row["requests_lost"] is row["step_mean_s"] is None


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ('{"accuracy": 0.5}', "it comes neither from `vllm bench serve --save-result` nor"),
        ('{"request_throughput": {"avg": 1.0}, "request_latency": 3}', "it comes neither from"),
        ('{"request_throughput": 1.0, "completed"', "Expecting ':' delimiter"),
        (json.dumps(AIPERF | {"was_cancelled": True}), "its run was cancelled"),
        (json.dumps(VLLM | {"ramp_up_strategy": "linear"}), "no rate and no concurrency that hold"),
    ],
)
def test_another_json_is_refused_in_one_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SweepError) as error:
        imported(tmp_path, text, name="result.json")
    assert words in str(error.value)
    assert "\n" not in str(error.value)
