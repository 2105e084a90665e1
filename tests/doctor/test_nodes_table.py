from __future__ import annotations

from typing import Any

import pytest
from rich.console import Console

from dtsweep.doctor.link_tests import with_bandwidths
from dtsweep.doctor.nodes_table import (
    host_table_columns,
    link_columns,
    print_diagnosis,
    rate_columns,
)
from tests.doctor.nodes import IDLE_GPU, cpu_row, gpu_row, host_row

LINK = {
    "is_within": True,
    "ranks": 4,
    "nodes": "gpu-1",
    "backend": "gloo",
    "all_reduces": [
        with_bandwidths({"size_bytes": 2**20, "count": 2**18, "times": 9, "time_s": 1e-3}, ranks=4)
    ],
}


def test_columns_say_unknown_where_nothing_is_known() -> None:
    columns = rate_columns([gpu_row(), cpu_row()])
    assert list(columns.values()) == [
        ["gpu-1", "gpu-1", "cpu-1"],
        ["NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", "Xeon × 1"],
        ["fp32", "bf16", "fp32"],
        ["50.0", "742", "0.100"],
        ["67.0", "989", "unknown"],
        ["75%", "75%", ""],
    ]


def printed(capsys: pytest.CaptureFixture[str], **fields: Any) -> str:
    rows = {"nodes": [gpu_row()], "hosts": [host_row()], "links": [], "problems": []}
    print_diagnosis(**{**rows, **fields}, console=Console(width=120))  # type: ignore[arg-type]
    return capsys.readouterr().out


def test_the_diagnosis_is_printed_with_its_problems(capsys: pytest.CaptureFixture[str]) -> None:
    silent = {"node_id": "b2", "node": "b2", "error": "no [answer]; restart it"}
    hosts = [host_row(), host_row(gpus=[IDLE_GPU], shared_memory_bytes=None), silent]
    problems = ["b2: no [answer]; restart it"]
    out = printed(capsys, nodes=[gpu_row(), silent], hosts=hosts, links=[LINK], problems=problems)
    assert "NVIDIA H100 80GB HBM3" in out
    assert "- b2: no [answer]; restart it" in out
    assert "All-reduce of 4 ranks within gpu-1 (gloo)" in out
    assert "No problems found." in printed(capsys)


def test_links_have_the_columns_of_nccl_tests() -> None:
    columns = link_columns(LINK["all_reduces"])  # type: ignore[arg-type]
    assert {header.replace("\n", " "): cells for header, cells in columns.items()} == {
        "size (B)": ["1048576"],
        "count (elements)": ["262144"],
        "type": ["float"],
        "redop": ["sum"],
        "time (us)": ["1000.00"],
        "algbw (GB/s)": ["1.05"],
        "busbw (GB/s)": ["1.57"],
    }


def test_hosts_say_what_is_unknown_and_name_gpus_where_there_are_any() -> None:
    unknown = host_row(shared_memory_bytes=None, clock_offset_s=-1e-6)
    columns = host_table_columns([unknown])
    assert columns["clock\nahead ms"] == ["0.0 ± 1.0"]
    assert columns["shared\nGiB"] == ["unknown"]
    assert "GPUs" not in columns
    assert host_table_columns([host_row(), host_row(gpus=[IDLE_GPU] * 2)])["GPUs"] == ["", "2"]
