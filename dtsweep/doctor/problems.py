"""Problems of examined nodes, each in one line with the next step."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from dtsweep.doctor.examine import Row
from dtsweep.doctor.gpu_problems import find_slow_gpus
from dtsweep.provenance.versions import mismatches

_LOW_SHARE_OF_PEAK = 0.4
"""A matrix product that reaches less of the data sheet's peak is a problem."""

_LOW_SHARE_OF_FASTEST = 0.8
"""So is one that reaches less of the rate of the fastest node with this device."""

_SLOW_CLOCK_SOURCES = frozenset({"hpet", "acpi_pm", "pit", "jiffies", "refined-jiffies"})
"""Clock sources of the kernel that take microseconds to read."""


def find_problems(
    rows: Sequence[Row],
    *,
    driver_versions: Mapping[str, str],
    can_grow: bool = False,
) -> list[str]:
    """Say in one line each what is wrong and what to do about it."""
    if not rows and not can_grow:
        return ["no node has CPUs or GPUs: add a worker node (ray start --address HOST:PORT)"]
    return named_problems(rows, lambda row: _problems_of(row, rows, driver_versions))


def named_problems(rows: Sequence[Row], problems_of: Callable[[Row], list[str]]) -> list[str]:
    """Problems of rows with the names of their nodes; one without an answer has that one."""
    named = []
    for row in rows:
        problems = [row["error"]] if "error" in row else problems_of(row)
        named += [f"{row['node']}: {problem}" for problem in problems]
    return named


def _problems_of(row: Row, rows: Sequence[Row], driver_versions: Mapping[str, str]) -> list[str]:
    problems = mismatches(row["versions"], driver_versions)
    if row["misses_gpu"]:
        torch_version = row["versions"].get("torch_version")
        problems.append(
            f"Ray has a GPU that torch {torch_version} can't use; install its CUDA or ROCm build"
        )
    if row["nvml"] is False:
        problems.append(
            "NVML gives no energy; make libnvidia-ml visible (in containers "
            "NVIDIA_DRIVER_CAPABILITIES)"
        )
    if row["clock_source"] in _SLOW_CLOCK_SOURCES:
        problems.append(
            f"clock source {row['clock_source']} is slow to read; boot with clocksource=tsc"
        )
    return [
        *problems,
        *row["unexamined"],
        *_rate_problems(row, rows),
        *find_slow_gpus(row["gpus"]),
    ]


def _rate_problems(row: Row, rows: Sequence[Row]) -> list[str]:
    problems = []
    device = (row["device"], row["threads"])
    examined = [peer for peer in rows if "error" not in peer]
    alike = [peer["rates"] for peer in examined if (peer["device"], peer["threads"]) == device]
    for precision, speed in row["rates"].items():
        best = max(rates[precision]["measured_flops_per_s"] for rates in alike)
        if speed["share"] is not None and speed["share"] < _LOW_SHARE_OF_PEAK:
            reached = f"{speed['share']:.0%} of the data sheet's peak"
        elif speed["measured_flops_per_s"] < _LOW_SHARE_OF_FASTEST * best:
            reached = (
                f"{speed['measured_flops_per_s'] / best:.0%} of what the fastest node with this "
                "device does"
            )
        else:
            continue
        problems.append(
            f"{precision} reaches {reached}; look for other jobs, heat and power limits"
        )
    return problems
