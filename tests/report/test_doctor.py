from __future__ import annotations

import pytest
from rich.console import Console

from dtsweep.report.doctor import node_columns, print_diagnosis, rate_columns
from tests.doctor.nodes import cpu_row, gpu_row


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
    rows = node_columns([gpu_row(), cpu_row(clock_source=None, versions={})])
    assert rows["NVML"] == ["yes", ""]
    assert rows["clock"] == ["tsc", "unknown"]
    assert rows["torch"] == ["2.13.0", ""]


def test_the_diagnosis_is_printed_with_its_problems(capsys: pytest.CaptureFixture[str]) -> None:
    silent = {"node_id": "b2", "node": "b2", "error": "no [answer]; restart it"}
    print_diagnosis([gpu_row(), silent], ["b2: no [answer]; restart it"], console=Console(width=120))
    out = capsys.readouterr().out
    assert "NVIDIA H100 80GB HBM3" in out
    assert "- b2: no [answer]; restart it" in out
    print_diagnosis([gpu_row()], [], console=Console(width=120))
    assert "No problems found." in capsys.readouterr().out
