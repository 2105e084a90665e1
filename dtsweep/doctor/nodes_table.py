"""Terminal renderer of a diagnosis: rates and counters of nodes, hosts, links, and problems."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dtsweep.text import format_number, print_table, say

if TYPE_CHECKING:
    from rich.console import Console

_Rows = Sequence[Mapping[str, Any]]
"""One row per node, as `dtsweep.doctor.examine` gives it; one with `error` was not examined."""


def print_diagnosis(
    *,
    nodes: _Rows,
    hosts: _Rows,
    links: _Rows,
    problems: Sequence[str],
    console: Console,
) -> None:
    """Print a diagnosis: its fields, as `dtsweep.doctor.diagnose.Diagnosis` has them."""
    rows = [row for row in nodes if "error" not in row]
    if rows:
        say(console, "Matrix products", style="bold")
        print_table(rate_columns(rows), console=console)
    if answered := [row for row in hosts if "error" not in row]:
        say(console, "\nHosts", style="bold")
        print_table(host_table_columns(answered), console=console)
    for link in links:
        _print_link(link, console=console)
    say(console, "\nProblems" if problems else "\nNo problems found.", style="bold")
    for problem in problems:
        say(console, f"- {problem}")


def rate_columns(rows: _Rows) -> dict[str, list[str]]:
    """Table columns of matrix products: a line for each node and precision."""
    headers = ("node", "device", "precision", "measured\nTFLOP/s", "peak\nTFLOP/s", "share")
    lines = [
        (
            row["node"],
            row["device"] if row["is_gpu"] else f"{row['device']} × {row['threads']}",
            precision,
            *(_format_tera(speed[name]) for name in ("measured_flops_per_s", "peak_flops_per_s")),
            f"{speed['share']:.0%}" if speed["share"] else "",
        )
        for row in rows
        for precision, speed in row["rates"].items()
    ]
    return dict(zip(headers, map(list, zip(*lines, strict=True)), strict=True))


def host_table_columns(rows: _Rows) -> dict[str, list[str]]:
    """Table columns of hosts: a line for each; of its disks the one with the least free."""
    disks = [min(row["disks"].values(), key=lambda disk: disk["free_bytes"]) for row in rows]
    columns = {
        "node": [row["node"] for row in rows],
        "clock\nahead ms": [
            # Without -0.0.
            f"{round(row['clock_offset_s'] * 1e3, 1) + 0.0:.1f} ± {row['clock_error_s'] * 1e3:.1f}"
            for row in rows
        ],
        "memory\nfree GiB": [_format_gib(row["free_memory_bytes"]) for row in rows],
        "shared\nGiB": [_format_gib(row["shared_memory_bytes"]) for row in rows],
        "disk\nfree GiB": [_format_gib(disk["free_bytes"]) for disk in disks],
    }
    if any(row["gpus"] for row in rows):
        columns["GPUs"] = [str(len(row["gpus"])) if row["gpus"] is not None else "" for row in rows]
    return columns


def _print_link(link: Mapping[str, Any], *, console: Console) -> None:
    where = "within" if link["is_within"] else "between"
    title = f"All-reduce of {link['ranks']} ranks {where} {link['nodes']} ({link['backend']})"
    say(console, f"\n{title}", style="bold")
    print_table(link_columns(link["all_reduces"]), console=console)


def link_columns(rows: _Rows) -> dict[str, list[str]]:
    """Table columns of all-reduces as nccl-tests has them: a line for each size."""
    return {
        "size\n(B)": [str(row["size_bytes"]) for row in rows],
        "count\n(elements)": [str(row["count"]) for row in rows],
        "type": ["float" for _ in rows],
        "redop": ["sum" for _ in rows],
        "time\n(us)": [f"{row['time_s'] * 1e6:.2f}" for row in rows],
        "algbw\n(GB/s)": [f"{row['algbw_bytes_per_s'] / 1e9:.2f}" for row in rows],
        "busbw\n(GB/s)": [f"{row['busbw_bytes_per_s'] / 1e9:.2f}" for row in rows],
    }


def _format_gib(size: float | None) -> str:
    if size is None:
        return "unknown"
    return f"{size / 2**30:.1f}"


def _format_tera(rate: float | None) -> str:
    if not rate:
        return "unknown"
    return format_number(rate / 1e12, digits=3)
