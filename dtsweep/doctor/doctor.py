"""Looks at every node before money is spent: what its device reaches, which counters can be read, which versions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from dtsweep.driver.cluster import Node, connected
from dtsweep.report.text import format_number, print_table, say
from dtsweep.versions import release, versions

if TYPE_CHECKING:
    from rich.console import Console

ANSWER_S = 120.0
"""How long a node may take, the start of a process and of torch included."""

LOW_SHARE = 0.4
"""A matrix product that reaches less of the data sheet's peak is a problem."""

SLOW_SHARE = 0.8
"""So is one that reaches less of what the fastest node with this device does."""

SLOW_CLOCKS = frozenset({"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"})
"""Clock sources of the kernel that take microseconds to read."""

Row = dict[str, Any]
"""What is known of a node: what `examine` returns with `node_id`, or `node_id`, `node` and `error`."""


@dataclass(frozen=True, kw_only=True)
class Diagnosis:
    """What the nodes are like."""

    nodes: Sequence[Row]
    problems: Sequence[str]
    """One line each, with the next step."""


def diagnose(address: str | None, *, tell: Callable[[str], None]) -> Diagnosis:
    """Connect as a run does and look at all nodes at once.

    Args:
        address: `local`, `auto`, HOST:PORT or None.
        tell: takes what is said on the way.

    Raises:
        SweepError: the address names no running Ray.
    """
    with connected(address, folder=None) as cluster:
        tell(f"using {cluster.described()}; trying matrix products on every node")
        rows = _visit([node for node in cluster.nodes if node.resources.get("CPU") or node.resources.get("GPU")])
    return Diagnosis(nodes=rows, problems=problems(rows, here=versions()))


def _visit(nodes: Sequence[Node]) -> list[Row]:
    tasks = {}
    for node in nodes:
        with_gpu = node.resources.get("GPU", 0) >= 1
        task = ray.remote(examine).options(
            num_cpus=min(1, node.resources.get("CPU", 0)),
            num_gpus=int(with_gpu),
            max_retries=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node.node_id, soft=False),
        )
        tasks[task.remote(with_gpu=with_gpu)] = node.node_id
    done, late = ray.wait(list(tasks), num_returns=len(tasks), timeout=ANSWER_S) if tasks else ([], [])
    rows = [_answer(task, tasks[task]) for task in done]
    for task in late:
        ray.cancel(task, force=True)
        said = f"no answer in {ANSWER_S:.0f} s; wait for the jobs that hold it (ray status), or restart it"
        rows.append({"node_id": tasks[task], "node": tasks[task][:8], "error": said})
    return sorted(rows, key=lambda row: (row["node"], row["node_id"]))


def _answer(task: Any, node_id: str) -> Row:
    try:
        return {"node_id": node_id, **ray.get(task)}
    except ray.exceptions.RayError as error:
        cause = getattr(error, "cause", None) or error
        said = " ".join([f"{type(cause).__name__}:", *str(cause).strip().splitlines()[:1]])
        return {"node_id": node_id, "node": node_id[:8], "error": f"{said}; see that dtsweep and torch run there"}


def examine(*, with_gpu: bool) -> Row:
    """Look at the node that this process is on, and at one of its devices.

    Args:
        with_gpu: whether Ray gave this process a GPU.

    Returns:
        `node`, `device`, `is_gpu` and `threads`; `rates`, by precision as `rate` gives them;
        whether `nvml` (None without a GPU) and `rapl` tell energy; `clock_source`; `versions`; `misses_gpu`.
    """
    import torch

    from dtsweep.hardware.fingerprint import fingerprint
    from dtsweep.hardware.host import cpu_energy_counters
    from dtsweep.hardware.nvml import find_gpu
    from dtsweep.hardware.peaks import matmul_flops, peak_flops

    is_gpu = with_gpu and torch.cuda.is_available()
    device = torch.device("cuda", 0) if is_gpu else torch.device("cpu")
    known = fingerprint(device)
    rates = {
        precision: rate(matmul_flops(device, precision), peak_flops(known["device"], precision))
        for precision in ("fp32", "tf32", "bf16")
        if is_gpu or precision != "tf32"
    }
    gpu = find_gpu(known["device_uuid"]) if is_gpu else None
    return {
        **{name: known[name] for name in ("node", "device", "threads")},
        "is_gpu": is_gpu,
        "misses_gpu": with_gpu and not is_gpu,
        "rates": rates,
        "nvml": gpu is not None and gpu.energy_j() is not None if is_gpu else None,
        "rapl": cpu_energy_counters() is not None,
        "clock_source": known["machine"].get("clock_source"),
        "versions": versions(),
    }


def rate(measured: float, peak: float | None) -> dict[str, float | None]:
    """Put a measured rate beside the data sheet's, both in FLOP/s."""
    return {"measured_flops_per_s": measured, "peak_flops_per_s": peak, "share": measured / peak if peak else None}


def problems(rows: Sequence[Row], *, here: Mapping[str, str]) -> list[str]:
    """Say in one line each what is wrong and what to do about it.

    Args:
        rows: of all nodes.
        here: versions of the driver.
    """
    if not rows:
        return ["no node has CPUs or GPUs: add a worker node (ray start --address HOST:PORT)"]
    found = []
    for row in rows:
        found += [f"{row['node']}: {row['error']}"] if "error" in row else _problems_of(row, rows, here)
    return found


def _problems_of(row: Row, rows: Sequence[Row], here: Mapping[str, str]) -> list[str]:
    node, found = row["node"], []
    for name, version in here.items():
        there = row["versions"].get(name, version)
        if release(there) != release(version):
            package = name.removesuffix("_version")
            found.append(f"{node}: {package} {there}, but {version} where dtsweep runs; install the same on all nodes")
    if row["misses_gpu"]:
        torch_version = row["versions"].get("torch_version")
        found.append(f"{node}: Ray has a GPU that torch {torch_version} can't use; install its CUDA or ROCm build")
    if row["nvml"] is False:
        found.append(
            f"{node}: NVML gives no energy; make libnvidia-ml visible (in containers NVIDIA_DRIVER_CAPABILITIES)"
        )
    if row["clock_source"] in SLOW_CLOCKS:
        found.append(f"{node}: clock source {row['clock_source']} is slow to read; boot with clocksource=tsc")
    for precision, speed in row["rates"].items():
        best = max(other["rates"][precision]["measured_flops_per_s"] for other in rows if _is_alike(other, row))
        if speed["share"] is not None and speed["share"] < LOW_SHARE:
            what = f"{speed['share']:.0%} of the data sheet's peak"
        elif speed["measured_flops_per_s"] < SLOW_SHARE * best:
            what = f"{speed['measured_flops_per_s'] / best:.0%} of what the fastest node with this device does"
        else:
            continue
        found.append(f"{node}: {precision} reaches {what}; look for other jobs, heat and power limits")
    return found


def _is_alike(other: Row, row: Row) -> bool:
    return "error" not in other and (other["device"], other["threads"]) == (row["device"], row["threads"])


def print_diagnosis(diagnosis: Diagnosis, *, console: Console) -> None:
    """Print what the devices reach, what can be measured, and what is wrong."""
    rows = [row for row in diagnosis.nodes if "error" not in row]
    if rows:
        say(console, "Matrix products", style="bold")
        print_table(rate_cells(rows), console=console)
        say(console, "\nCounters and versions", style="bold")
        print_table(node_cells(rows), console=console)
    say(console, "\nProblems" if diagnosis.problems else "\nNo problems found.", style="bold")
    for problem in diagnosis.problems:
        say(console, f"- {problem}")


def rate_cells(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Headers with their cells: a line for each node and precision."""
    lines = [(row, precision, speed) for row in rows for precision, speed in row["rates"].items()]
    devices = {id(row): row["device"] if row["is_gpu"] else f"{row['device']} × {row['threads']}" for row in rows}
    return {
        "node": [row["node"] for row, _, _ in lines],
        "device": [devices[id(row)] for row, _, _ in lines],
        "precision": [precision for _, precision, _ in lines],
        "measured\nTFLOP/s": [_tera(speed["measured_flops_per_s"]) for _, _, speed in lines],
        "peak\nTFLOP/s": [_tera(speed["peak_flops_per_s"]) for _, _, speed in lines],
        "share": [f"{speed['share']:.0%}" if speed["share"] else "" for _, _, speed in lines],
    }


def _tera(rate: float | None) -> str:
    return format_number(rate / 1e12, digits=3) if rate else "unknown"


def node_cells(rows: Sequence[Row]) -> dict[str, list[str]]:
    """Headers with their cells: a line for each node."""
    words = {True: "yes", False: "no", None: ""}
    packages = ("python", "torch", "ray", "dtsweep")
    return {
        "node": [row["node"] for row in rows],
        "NVML": [words[row["nvml"]] for row in rows],
        "RAPL": [words[row["rapl"]] for row in rows],
        "clock": [row["clock_source"] or "unknown" for row in rows],
        **{package: [row["versions"].get(f"{package}_version", "") for row in rows] for package in packages},
    }
