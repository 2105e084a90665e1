"""Terminal renderer of a diagnosis: rates and counters of each node, and the problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.report.text import format_number, print_table, say

if TYPE_CHECKING:
    from rich.console import Console

Rows = Sequence[Mapping[str, Any]]
"""One row per node, as `dtsweep.doctor.examine` gives it; one with `error` was not examined."""


def print_diagnosis(nodes: Rows, problems: Sequence[str], *, console: Console) -> None:
    """Print the rates of each node, its counters and versions, and what is wrong."""
    rows = [row for row in nodes if "error" not in row]
    if rows:
        say(console, "Matrix products", style="bold")
        print_table(rate_columns(rows), console=console)
        say(console, "\nCounters and versions", style="bold")
        print_table(node_columns(rows), console=console)
    say(console, "\nProblems" if problems else "\nNo problems found.", style="bold")
    for problem in problems:
        say(console, f"- {problem}")


def rate_columns(rows: Rows) -> dict[str, list[str]]:
    """Table columns of matrix products: a line for each node and precision."""
    lines = [(row, precision, speed) for row in rows for precision, speed in row["rates"].items()]
    return {
        "node": [row["node"] for row, _, _ in lines],
        "device": [row["device"] if row["is_gpu"] else f"{row['device']} × {row['threads']}" for row, _, _ in lines],
        "precision": [precision for _, precision, _ in lines],
        "measured\nTFLOP/s": [_format_tera(speed["measured_flops_per_s"]) for _, _, speed in lines],
        "peak\nTFLOP/s": [_format_tera(speed["peak_flops_per_s"]) for _, _, speed in lines],
        "share": [f"{speed['share']:.0%}" if speed["share"] else "" for _, _, speed in lines],
    }


def node_columns(rows: Rows) -> dict[str, list[str]]:
    """Table columns of counters and versions: a line for each node."""
    answers = {True: "yes", False: "no", None: ""}
    packages = ("python", "torch", "ray", "dtsweep")
    return {
        "node": [row["node"] for row in rows],
        "NVML": [answers[row["nvml"]] for row in rows],
        "RAPL": [answers[row["rapl"]] for row in rows],
        "clock": [row["clock_source"] or "unknown" for row in rows],
        **{package: [row["versions"].get(f"{package}_version", "") for row in rows] for package in packages},
    }


def _format_tera(rate: float | None) -> str:
    return format_number(rate / 1e12, digits=3) if rate else "unknown"
