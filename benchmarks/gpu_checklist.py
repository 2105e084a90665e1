"""A checklist of one GPU, without Ray: what a GPU must show, line by line; about ten minutes.

`make gpu-checklist` tries every line, prints what is expected and what was found, and writes all of
it to `gpu-checklist.json`. Limits come from an H100; another GPU may rightly differ.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from benchmarks.checklist import (
    ROOT,
    Bench,
    Found,
    Line,
    NotRunError,
    equal,
    facts_of,
    first_line,
    having,
    lacking,
    last_line,
    need,
    python,
    run_lines,
    within,
)

POINTS = "benchmarks/gpu_points.py"

MODULES = ("numpy", "psutil", "pynvml", "rich", "scipy", "torch")
RAY_MODULES = ("click", "moocore", "pandas", "pyarrow", "ray")
"""Modules that the lines need, and those of the lines with Ray."""

LARGE_MODEL = ("precision=bf16", "workload.layers=12", "workload.width=1024")

LARGE = (*LARGE_MODEL, "workload.sequence=512", "micro_batch=32")
"""A point that keeps a GPU busy: the kernels of shorter samples end before the next launch."""

SMALL = ("workload.layers=2", "workload.width=64", "micro_batch=1")
"""A point whose kernels are shorter than their launch."""

HUGE = (*LARGE_MODEL, "micro_batch=100000")
"""A point that fits on no GPU."""

ENERGY = """
from dataclasses import replace

from benchmarks.gpu_points import sweep as points
from dtsweep import Measure

sweep = replace(points, measure=Measure(repeats=1, energy=True, max_seconds=10))
"""

HOLDER = """
import sys, torch
free, _ = torch.cuda.mem_get_info()
held = torch.zeros(max(1, free - int(sys.argv[1])), dtype=torch.uint8, device="cuda")
torch.cuda.synchronize()
print("held", flush=True)
sys.stdin.read()
"""
"""Another process that leaves this many bytes of the GPU free, until its input ends."""

LEFT_BYTES = 2**30
"""Device memory that is left for a point which needs more."""

AGAIN = 4
"""Further measurements of the point of line 4."""

SMI = "nvidia-smi --query-gpu=power.draw,clocks.sm,temperature.gpu --format=csv,noheader,nounits"

READINGS = 10
"""Of nvidia-smi, the highest ones, every half second: a window of 5 s."""

GPU_TESTS = "tests/gpu/test_{}.py"


def row_of(
    bench: Bench, *settings: str, sweep: str = POINTS, environment: dict[str, str] | None = None
) -> Found:
    """Measure a point by torchrun, with one rank.

    Returns:
        Its row with the `exit_code`; without a row `status` is missing, and `last_words` are the
        end of what the process wrote.
    """
    file = bench.folder / "row.json"
    file.unlink(missing_ok=True)
    launcher = python("torch.distributed.run", "--standalone", "--nproc-per-node", "1")
    worker = ["-m", "benchmarks.by_torchrun", sweep, "workers=1", *settings, "--row", str(file)]
    done = bench.call(*launcher, *worker, environment=environment)
    if file.exists():
        return {**json.loads(file.read_text("utf-8")), "exit_code": done.returncode}
    lines = done.stderr.strip().splitlines()
    words = [line for line in lines if line.startswith("dtsweep: ") or "Error" in line]
    return {"exit_code": done.returncode, "last_words": (words or lines or [""])[0]}


def tests_of(bench: Bench, *names: str, chosen: str = "") -> Found:
    """Run tests of a GPU; count how they ended."""
    need("pytest")
    files = [GPU_TESTS.format(name) for name in names]
    selection = ["-k", chosen] if chosen else []
    done = bench.call(*python("pytest", "-q", "-rfE", "--tb=short", *files, *selection))
    return counts_of(done.stdout)


def counts_of(output: str) -> Found:
    r"""Count tests by how they ended, from what pytest printed.

    >>> counts_of("FAILED a.py::b - no\n1 failed, 12 passed, 2 skipped in 8.20s")["passed"]
    12
    """
    last = next((line for line in reversed(output.splitlines()) if " in " in line), "")
    counts = {kind.rstrip("s"): int(n) for n, kind in re.findall(r"(\d+) (\w+)", last)}
    broken = [line for line in output.splitlines() if line.startswith(("FAILED", "ERROR"))]
    return {
        **{kind: counts.get(kind, 0) for kind in ("passed", "skipped", "failed")},
        "broken": broken,
    }


ALL_PASS = (within("passed", 1), equal("broken", []))


def rates(bench: Bench) -> Found:
    """Measure the rates of the first GPU, after the tests of what measures them."""
    counts = tests_of(bench, "peaks", "bandwidth", "flops")
    return {**counts, **facts_of(bench, "rates")}


def with_copies(bench: Bench) -> Found:
    """Measure the point of line 4 with a batch that waits for the device."""
    without = bench.of_line("4")
    row = row_of(bench, *LARGE, "workload.kind=copies")
    return {**row, "step_over_line_4": ratio(row, without)}


def ratio(row: Found, reference: Found, column: str = "step_p50_s") -> float | None:
    """Divide a column of two rows; None where one of them lacks it."""
    value = row.get(column)
    base = reference.get(column)
    if value is None or not base:
        return None
    return float(value / base)


@contextmanager
def neighbour(*, leaves_bytes: int) -> Iterator[None]:
    """Have another process on the GPU, which leaves this much memory."""
    command = [sys.executable, "-c", HOLDER, str(leaves_bytes)]
    with subprocess.Popen(
        command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        try:
            if holder.stdout is None or not holder.stdout.readline().startswith("held"):
                raise NotRunError("another process could not take memory of the GPU")
            yield
        finally:
            holder.kill()


def beside_a_full_neighbour(bench: Bench) -> Found:
    """Measure line 4's point where another process holds nearly all memory."""
    with neighbour(leaves_bytes=LEFT_BYTES):
        return row_of(bench, *LARGE)


def beside_an_idle_neighbour(bench: Bench) -> Found:
    """Measure a small point where another process has the GPU open."""
    with neighbour(leaves_bytes=2**60):
        return row_of(bench, *SMALL)


def blocking_launches(bench: Bench) -> Found:
    """Compare launches that wait for their kernel, by an axis and by the environment."""
    usual = bench.of_line("6")
    by_axis = row_of(bench, *SMALL, "env.CUDA_LAUNCH_BLOCKING=1")
    outside = row_of(bench, *SMALL, environment={"CUDA_LAUNCH_BLOCKING": "1"})
    return {"by_axis": ratio(by_axis, usual), "outside": ratio(outside, usual)}


def again(bench: Bench) -> Found:
    """Measure the point of line 4 several times more."""
    first = bench.of_line("4")["step_p50_s"]
    rows = [row_of(bench, *LARGE) for _ in range(AGAIN)]
    times = [first, *(row["step_p50_s"] for row in rows)]
    return {"step_p50_s": times, "spread": max(times) / min(times) - 1}


def in_process(bench: Bench) -> Found:
    """Run a sweep in one process, and its report."""
    need("click", "pandas", "pyarrow", "moocore")
    results = str(bench.folder / "in-process")
    settings = ["--set", "micro_batch=4,16", "--results", results]
    done = bench.call(*python("dtsweep", POINTS, "--in-process", *settings))
    return {"exit_code": done.returncode, "last_words": last_line(done.stderr)}


def beside_smi(bench: Bench) -> Found:
    """Measure power and energy, next to what nvidia-smi reads."""
    if shutil.which("nvidia-smi") is None:
        raise NotRunError("nvidia-smi is not installed")
    sweep = bench.folder / "gpu_energy.py"
    sweep.write_text(ENERGY, "utf-8")
    file = bench.folder / "smi.csv"
    with file.open("w") as out, subprocess.Popen([*SMI.split(), "-lms", "500"], stdout=out) as smi:
        try:
            row = row_of(bench, *LARGE, sweep=str(sweep))
        finally:
            smi.kill()
    return compared_with_smi(row, file.read_text("utf-8"))


def compared_with_smi(row: Found, readings: str) -> Found:
    """Compare a row's power and energy with the highest readings of nvidia-smi.

    Args:
        row: of a trial.
        readings: a line each: watts, MHz, degrees Celsius.
    """
    watts = [float(word) for word in re.findall(r"^([\d.]+),", readings, re.MULTILINE)]
    if len(watts) < READINGS:
        raise NotRunError(f"nvidia-smi gave {len(watts)} readings of power")
    smi_power_w = sorted(watts)[-READINGS // 2]
    energy_j = row.get("energy_j")
    window_s = row.get("window_s")
    found = {**row, "smi_power_w": smi_power_w, "power_over_smi": None, "energy_over_smi": None}
    if row.get("power_w") is not None:
        found["power_over_smi"] = row["power_w"] / smi_power_w
    if energy_j is not None and window_s is not None:
        found["energy_over_smi"] = energy_j / window_s / smi_power_w
    return found


OK = (equal("status", "ok"), equal("backend", "nccl"), lacking("flags", "timer_mismatch"))
FAILURE = ("status", "reason", "exit_code", "last_words")
IDLE = ("device_idle_low", "device_idle_high")
TIMES = ("step_p50_s", "reason", "last_words", "flags", *IDLE)

LINES = (
    first_line("torch, driver and NVML see the GPU", gpus=1),
    Line(
        name="2",
        title="tests of clock and telemetry",
        find=lambda bench: tests_of(bench, "clock", "telemetry"),
        expected=(*ALL_PASS, equal("skipped", 0)),
    ),
    Line(
        name="3",
        title="tests and values of the device's rates",
        find=rates,
        expected=(
            *ALL_PASS,
            within("skipped", 0, 2),
            within("bf16_share", 0.6, 0.85),
            within("moved_share", 0.75, 0.96),
            within("launch_s", 3e-6, 15e-6),
        ),
        shows=("device", "bf16_flops_per_s", "moved_bytes_per_s"),
    ),
    Line(
        name="4",
        title="a large model in bf16",
        find=lambda bench: row_of(bench, *LARGE),
        expected=(*OK, within("mfu", 0.2, 0.6)),
        shows=TIMES,
    ),
    Line(
        name="5",
        title="line 4 with batches that wait for the device, which is busy all the same",
        find=with_copies,
        expected=(*OK, within("step_over_line_4", 0.99, 1.01), within("device_idle_low", 0, 0.1)),
        shows=TIMES,
    ),
    Line(
        name="6",
        title="a small model, which waits for the host",
        find=lambda bench: row_of(bench, *SMALL),
        expected=(*OK, within("device_idle_low", 0.3, 1), within("launch_share", 0.2, 1)),
        shows=TIMES,
    ),
    Line(
        name="7",
        title="a device-side assert is the trial's error",
        find=lambda bench: row_of(bench, *SMALL, "workload.kind=asserts"),
        expected=(equal("status", "user_error"), having("reason", "device-side assert")),
        shows=FAILURE,
    ),
    Line(
        name="8",
        title="a batch that does not fit",
        find=lambda bench: row_of(bench, *HUGE),
        expected=(equal("status", "oom_device"), equal("exit_code", 1)),
        shows=FAILURE,
    ),
    Line(
        name="8b",
        title="line 4 where another process leaves 1 GiB",
        find=beside_a_full_neighbour,
        expected=(equal("status", "oom_device"),),
        shows=FAILURE,
    ),
    Line(
        name="8c",
        title="a small model next to another process",
        find=beside_an_idle_neighbour,
        expected=(equal("status", "ok"), having("flags", "shared_gpu")),
        shows=("reason", "last_words"),
    ),
    Line(
        name="9",
        title="CUDA_LAUNCH_BLOCKING slows line 6 as an axis and from outside",
        find=blocking_launches,
        expected=(within("by_axis", 1.05), within("outside", 1.05)),
    ),
    Line(
        name="10",
        title="line 4 again and again",
        find=again,
        expected=(within("spread", 0, 0.01),),
        shows=("step_p50_s",),
    ),
    Line(
        name="11",
        title="tests of modes and compressions",
        find=lambda bench: tests_of(bench, "modes", chosen="fsdp or topk or int8 or powersgd"),
        expected=ALL_PASS,
        shows=("skipped",),
    ),
    Line(
        name="11b",
        title="a sweep in one process",
        find=in_process,
        expected=(equal("exit_code", 0),),
        shows=("last_words",),
    ),
    Line(
        name="12",
        title="power and energy next to nvidia-smi",
        find=beside_smi,
        expected=(
            equal("status", "ok"),
            within("power_over_smi", 0.9, 1.1),
            within("energy_over_smi", 0.9, 1.1),
        ),
        shows=("power_w", "smi_power_w", "energy_j", "window_s", "flags"),
    ),
)


def run_checklist(lines: Sequence[Line], *, name: str, about: str, address: bool = False) -> int:
    """Read the options, run the lines, and return the exit code.

    Args:
        lines: of the checklist.
        name: of its module.
        about: what it does.
        address: whether it takes the address of a Ray.
    """
    parser = argparse.ArgumentParser(prog=f"python -m benchmarks.{name}", description=about)
    parser.add_argument("--report", type=Path, default=ROOT / f"{name.replace('_', '-')}.json")
    parser.add_argument("--only", help="names of lines, for example 4,6; the first always runs")
    if address:
        parser.add_argument(
            "--address", default="local", help="of Ray, for example auto (default: a private one)"
        )
    options = parser.parse_args()
    if options.only is not None:
        names = options.only.split(",")
        lines = [lines[0], *(line for line in lines[1:] if line.name in names)]
    try:
        need(*MODULES, *(RAY_MODULES if address else ()))
    except NotRunError as reason:
        print(f"the checklist can't run: {reason}", file=sys.stderr)
        return 2
    folder = Path(tempfile.mkdtemp(prefix="dtsweep-checklist-"))
    bench = Bench(folder, address=getattr(options, "address", "local"))
    try:
        return run_lines(lines, bench, tell=tell, report=options.report)
    except KeyboardInterrupt:
        print(f"interrupted; {options.report} has the lines before", file=sys.stderr)
        return 130


def tell(text: str) -> None:
    """Print without delay: a line may take a minute."""
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(run_checklist(LINES, name="gpu_checklist", about=(__doc__ or "").split("\n")[0]))
