"""Seven training loops of others, measured as they are, next to a stopwatch under torchrun.

The loops are the scripts in `benchmarks/loops`, in the style of their libraries' documentation.
They have no line of dtsweep in them.

- `sweeps`: a sweep of each over workers × batch × accumulation, and its report.
- `rates`: the mean step of one setting as dtsweep measures it, and as a stopwatch does
  (`benchmarks/stopwatch.py`) that times the same script alone under torchrun. Both leave the first
  10 steps out and time the same number of steps after them. They take turns, ABBA, each in a launch
  of its own; no Ray runs during the stopwatch's. A ratio is the geometric mean of pairs of
  neighbouring launches, with their standard deviation.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.log_entry import ROOT, heading, table
from dtsweep import Measure, Sweep, workloads
from dtsweep import run as run_sweep

if TYPE_CHECKING:
    import pandas as pd

WARMUP = 10
"""Steps that are left out."""


@dataclass(frozen=True, kw_only=True)
class Example:
    """A script, and its arguments."""

    file: str
    """In `benchmarks/loops`."""

    library: str
    """Library or style that it is written in."""

    names: Mapping[str, str]
    """Arguments that take `micro_batch` and `accumulation`."""

    batches: Sequence[int]
    """Values of `micro_batch` in the sweep; the first one is compared with the stopwatch."""

    steps: str = "steps"
    """Argument that ends the script after so many steps."""

    arguments: tuple[str, ...] = ()
    """Arguments for all points."""

    is_counted: bool = True
    """True if it has data loaders, so that its samples are counted."""

    def workload(self) -> workloads.Script:
        """The script as a workload that does not end before it is measured."""
        arguments = (*self.arguments, f"--{self.steps}", "1000000")
        samples = None
        if not self.is_counted:
            samples = tuple(self.names.values())
        path = str(ROOT / "benchmarks" / "loops" / self.file)
        return workloads.Script(
            path, arguments=arguments, names=self.names, samples_per_step=samples
        )

    def sweep(self) -> Sweep:
        """Workers × batch × accumulation, where it accumulates."""
        axes: dict[str, Any] = {"workers": [1, 2], "micro_batch": list(self.batches)}
        if "accumulation" in self.names:
            axes["accumulation"] = [1, 2]
        measure = Measure(repeats=1, half_width=0.05, max_seconds=2)
        return Sweep(workload=self.workload(), axes=axes, measure=measure)

    def one_point(self, *, workers: int, steps: int) -> Sweep:
        """The point that is compared, with so many steps in its window."""
        axes: dict[str, Any] = {"workers": [workers]}
        axes |= {name: [value] for name, value in self.setting().items()}
        measure = Measure(
            repeats=1,
            warmup_steps=WARMUP,
            half_width=None,
            min_steps=steps,
            max_steps=steps,
            min_seconds=0,
            max_seconds=600,
            canary=False,
        )
        return Sweep(workload=self.workload(), axes=axes, measure=measure)

    def setting(self) -> dict[str, int]:
        """Values of the point that is compared."""
        values = {"micro_batch": self.batches[0], "accumulation": 2}
        return {name: value for name, value in values.items() if name in self.names}

    def words(self, *, steps: int) -> list[str]:
        """Arguments of the point that is compared, for the script alone."""
        words = [*self.arguments, f"--{self.steps}", str(steps)]
        for name, value in self.setting().items():
            words += [f"--{self.names[name]}", str(value)]
        return words


_HYPHENS = {"micro_batch": "batch-size", "accumulation": "grad-accum"}
_HUGGING_FACE = {
    "micro_batch": "per_device_train_batch_size",
    "accumulation": "gradient_accumulation_steps",
}
_HAS_GPU = Path("/dev/nvidiactl").exists()

EXAMPLES: Mapping[str, Example] = {
    "ddp": Example(
        file="ddp.py", library="DDP, DistributedSampler", names=_HYPHENS, batches=(8, 16)
    ),
    "fsdp2": Example(file="fsdp2.py", library="FSDP2", names=_HYPHENS, batches=(2, 4)),
    "gan": Example(
        file="gan.py",
        library="GAN, two optimizers",
        names={"micro_batch": "batchSize"},
        batches=(16, 32),
    ),
    "nano_gpt": Example(
        file="nano_gpt.py",
        library="nanoGPT, autocast",
        names={"micro_batch": "batch_size", "accumulation": "gradient_accumulation_steps"},
        batches=(2, 4),
        steps="max_iters",
        is_counted=False,
    ),
    "hf_trainer": Example(
        file="hf_trainer.py",
        library="Hugging Face Trainer",
        names=_HUGGING_FACE,
        batches=(4, 8),
        steps="max_steps",
        arguments=(
            *("--output_dir", "out", "--report_to", "none", "--save_strategy", "no"),
            # Without it the Trainer exchanges nothing on CPUs.
            *(() if _HAS_GPU else ("--use_cpu",)),
        ),
    ),
    "lightning": Example(
        file="lightning_module.py",
        library="Lightning",
        names={"micro_batch": "batch-size", "accumulation": "accumulate-grad-batches"},
        batches=(32, 64),
        steps="max-steps",
    ),
    "accelerate": Example(
        file="accelerate_loop.py",
        library="Accelerate",
        names=_HUGGING_FACE,
        batches=(32, 64),
        steps="max_train_steps",
        arguments=() if _HAS_GPU else ("--cpu",),
    ),
}
"""Loops by name."""


def run(sweep: Sweep, folder: str) -> pd.DataFrame:
    """Run a sweep on a private Ray; return its rows.

    Raises:
        SystemExit: a trial was not ok.
    """
    frame = run_sweep(sweep, folder, address="local")
    failed = frame[~frame["status"].isin(["ok", "skipped"])]
    if len(failed):
        raise SystemExit(f"not ok: {failed[['status', 'reason']].to_dict('records')}")
    return frame


def report(name: str) -> bool:
    """Run the sweep of a loop and print its report; True if all is ok."""
    example = EXAMPLES[name]
    print(f"### {name}: {example.library}\n", flush=True)
    with tempfile.TemporaryDirectory(prefix="dtsweep-own-loops-") as folder:
        frame = run_sweep(example.sweep(), folder, address="local")
        command = [sys.executable, "-m", "dtsweep", "report", folder]
        said = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    print(f"```text\n{said.stdout}{said.stderr}```\n", flush=True)
    return set(frame["status"]) == {"ok"} and said.returncode == 0


def stopwatch(example: Example, *, workers: int, steps: int) -> float:
    """Mean step in seconds of the script alone under torchrun: the mean over ranks.

    Raises:
        SystemExit: the script failed, or a rank took another number of steps.
    """
    last = WARMUP + steps
    with tempfile.TemporaryDirectory(prefix="dtsweep-stopwatch-") as folder:
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
        command += ["--nproc-per-node", str(workers), str(ROOT / "benchmarks" / "stopwatch.py")]
        command += [folder, str(ROOT / "benchmarks" / "loops" / example.file)]
        # As many threads as dtsweep's workers have.
        environment = os.environ | {"OMP_NUM_THREADS": "1"}
        ended = subprocess.run(
            [*command, *example.words(steps=last)],
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        times = [
            np.array(json.loads(Path(folder, f"{rank}.json").read_text()))
            for rank in range(workers)
        ]
    if ended.returncode or any(len(ends) != last for ends in times):
        raise SystemExit(f"{example.file} under torchrun: {ended.stderr[-2000:]}")
    return float(np.mean([(ends[-1] - ends[WARMUP - 1]) / steps for ends in times]))


def compared(name: str, options: argparse.Namespace) -> list[str]:
    """Compare a loop's mean step with the stopwatch's: a row."""
    example, size = EXAMPLES[name], {"workers": options.workers, "steps": options.steps}
    ours: list[float] = []
    theirs: list[float] = []
    for pair in range(options.pairs):
        for is_ours in ((True, False), (False, True))[pair % 2]:
            if not is_ours:
                theirs.append(stopwatch(example, **size))
                continue
            with tempfile.TemporaryDirectory(prefix="dtsweep-own-loops-") as folder:
                row = run(example.one_point(**size), folder).iloc[0]
            ours.append(row["step_mean_s"])
    logs = np.log(np.array(ours) / np.array(theirs))
    setting = {"workers": options.workers, **example.setting()}
    samples = f"{row['global_batch'] / options.workers:.0f}"
    return [
        f"`{example.file}` ({example.library})",
        " ".join(f"{key}={value}" for key, value in setting.items()),
        *(" ".join(f"{value * 1e3:.2f}" for value in values) for values in (ours, theirs)),
        f"{np.exp(logs.mean()):.3f} ± {logs.std(ddof=1) if len(logs) > 1 else np.nan:.3f}",
        row["semantics"],
        samples if example.is_counted else f"{samples} (given)",
    ]


def main() -> None:
    """Print the reports, or the table, as an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.own_loops", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("what", choices=["sweeps", "rates"])
    parser.add_argument("--only", nargs="+", choices=EXAMPLES, default=list(EXAMPLES))
    parser.add_argument("--workers", type=int, default=2, help="of `rates` (default 2)")
    parser.add_argument("--pairs", type=int, default=2, help="of `rates` (default 2)")
    parser.add_argument("--steps", type=int, default=150, help="of a window (default 150)")
    parser.add_argument("--quick", action="store_true", help="1 pair of 30 steps")
    options = parser.parse_args()
    if options.quick:
        options.pairs, options.steps = 1, 30
    if options.what == "sweeps":
        print(heading("Which setting is best for each of seven loops of others?"), end="\n\n")
        failed = [name for name in options.only if not report(name)]
        raise SystemExit(f"not ok: {failed}" if failed else 0)
    rows = [compared(name, options) for name in options.only]
    headers = ["loop", "setting", "dtsweep, ms a step", "stopwatch, ms a step", "ratio"]
    print(
        heading("Is a loop of others measured as a stopwatch measures it under torchrun?"),
        table([*headers, "semantics", "samples a worker and step"], rows),
        f"Mean of {options.steps} steps after {WARMUP}, launch by launch, in ABBA order; ratio ± "
        "standard deviation of its pairs.",
        sep="\n\n",
    )


if __name__ == "__main__":
    main()
