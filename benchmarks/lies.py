"""What is said of trials that did something else than their row would say, and of honest ones?

Each lie is one that a user told without knowing it. Workers that don't exchange, batches that are
not what was asked for, and numbers that can't be are tried by `torchrun -m benchmarks.by_torchrun
benchmarks/liar.py`; results that are resumed with other code or data by `dtsweep run --in-process`,
twice with a change in between. `--before FOLDER` tries the same with the code of another checkout,
beside this one. What the checks cost is the time in them, of that of the attempt, on rank 0 of
honest trials under torchrun with windows of up to 4 s.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import distributed

from benchmarks.log_entry import ROOT, heading, table, torchrun
from dtsweep import Measure, Point, Sweep, workloads
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.task import task_of
from dtsweep.worker import after_window, mode_trial, timing
from dtsweep.worker.rank import become_rank

BYPASS = [
    f"workload.lie={lie} learning_rate={rate} precision={precision} workers=2"
    for lie in ("module", "inside")
    for rate in ("1e-2", "1e-7", "0")
    for precision in ("fp32", "bf16")
]
RUN = {
    **{settings: settings for settings in BYPASS},
    "a batch of 64 samples where 32 were asked for": "workload.lie=size",
    "data that runs out in the window": "workload.lie=ends",
    "other data for the same numbers": "workload.lie=whims",
    "a thousand times the FLOPs": "workload.lie=flops workload.width=512",
    "honest, fp32": "workers=2",
    "honest, bf16": "workers=2 precision=bf16",
    "honest, learning rate 0": "workers=2 learning_rate=0",
}
"""What is tried by torchrun: the lie, and the settings that tell it."""

LIAR = str(ROOT / "benchmarks" / "liar.py")

SMALL = {"n_layer": 2, "n_embd": 128, "n_head": 4, "vocab_size": 2048}

HONEST: Mapping[str, tuple[Any, int]] = {
    "Gpt, 2 layers of 128": (workloads.Gpt(layers=2, width=128, sequence=64), 4),
    "Cifar10Cnn": (workloads.Cifar10Cnn(), 32),
    "gpt2, 2 layers of 128": (workloads.Transformers("gpt2", SMALL, sequence=32), 8),
}
"""By name: the workload and the micro-batch."""

ATTEMPTS = 6
"""The first one, which starts everything, does not count."""

MODULE = """
from torch import nn
{more}
def make():
    return nn.Linear(4, {width})
"""
OWN = '''"""A workload whose model and data lie elsewhere."""
from dataclasses import dataclass
from pathlib import Path
import torch
from dtsweep import Measure, Sweep

@dataclass(frozen=True)
class Own:
    data: str = {data!r}

    def build(self):
        from net import make
        return make()

    def batch(self, samples, device):
        size = float(len(Path(self.data).read_bytes()))
        return torch.full((len(samples), 4), size, device=device)

    def loss(self, model, batch):
        return model(batch).square().mean()

sweep = Sweep(
    workload=Own(),
    axes={{"workers": [1]}},
    measure=Measure(repeats=1, half_width=None, max_seconds=0.5, min_seconds=0),
)
'''


def changes() -> Mapping[str, Callable[[Path], None]]:
    """What happens between a run and its resumption, by what it is called."""

    def write(folder: Path, name: str, text: str) -> None:
        (folder / name).write_text(text)

    def write_nothing_new(folder: Path) -> None:
        write(folder, "net.py", "# new\n" + MODULE.format(more="import deep", width="deep.WIDTH"))
        write(folder, "unused.py", "X = 1\n")

    return {
        "a module that `build` imports is edited": lambda f: write(
            f, "net.py", MODULE.format(more="", width=9)
        ),
        "a module that that one imports is edited": lambda f: write(f, "deep.py", "WIDTH = 9\n"),
        "the data file is replaced by one of its size": lambda f: write(
            f, "data.bin", "other bytes!"
        ),
        "honest: a comment, and another file beside it": write_nothing_new,
    }


def resumed(change: Callable[[Path], None], code: Path) -> str:
    """Run a sweep, make a change, run it again; say what the second run did."""
    with tempfile.TemporaryDirectory(prefix="dtsweep-lies-") as name:
        folder = Path(name)
        (folder / "deep.py").write_text("WIDTH = 8\n")
        (folder / "net.py").write_text(MODULE.format(more="import deep", width="deep.WIDTH"))
        (folder / "data.bin").write_text("twelve bytes")
        (folder / "own.py").write_text(OWN.format(data=str(folder / "data.bin")))
        run = ["-m", "dtsweep", "run", "own.py", "--in-process"]
        first = called(run, code=code, folder=folder)
        if first.returncode:
            raise SystemExit(f"the first run failed: {first.stderr}")
        change(folder)
        second = called(run, code=code, folder=folder)
    if second.returncode == 2:
        return "refused: " + second.stderr.strip().splitlines()[-1].removeprefix("dtsweep: ")
    return "measured again" if "[1/1]" in second.stderr else "the old row is kept"


def tried(settings: str, code: Path) -> str:
    """Run a trial by torchrun; say how its row describes it."""
    workers = "2" if "workers=2" in settings else "1"
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", workers]
    ended = called([*launch, "-m", "benchmarks.by_torchrun", LIAR, *settings.split()], code=code)
    rows = [line for line in ended.stdout.splitlines() if line.startswith("{")]
    if not rows:
        return f"no row: {ended.stderr.strip().splitlines()[-1]}"
    row = json.loads(rows[-1])
    if row["status"] != "ok":
        return f"`{row['status']}`: {row['reason']}"
    flags = [flag for flag in row["flags"] if flag in ("unrepeatable", "implausible")]
    agree = {True: ", gradients seen to agree"}.get(row.get("gradients_agree"), "")
    return (
        "`ok`"
        + agree
        + "".join(f", flagged `{flag}`" for flag in flags)
        + f" {row.get('implausible') or ''}"
    )


def cost(name: str, workers: int) -> str:
    """The share of an attempt that its checks take."""
    shares = json.loads(torchrun("benchmarks.lies", "--share-of", name, workers=workers))
    return f"{np.median(shares):.1%} ({min(shares):.1%}–{max(shares):.1%})"


def shares_of(name: str) -> list[float]:
    """Run the attempts of a rank, with a clock around each check."""
    workload, micro_batch = HONEST[name]
    distributed.init_process_group("gloo")
    context = become_rank(
        distributed.get_rank(), torch.device("cpu"), workload=workload, own_variables=()
    )
    spent: list[float] = []

    def timed(check: Callable[..., Any]) -> Callable[..., Any]:
        def run(*arguments: Any, **named: Any) -> Any:
            began = time.perf_counter()
            try:
                return check(*arguments, **named)
            finally:
                spent.append(time.perf_counter() - began)

        return run

    checks = (
        (mode_trial, "check_batch"),
        (timing, "check_late_batch"),
        (after_window, "_inspect_step"),
    )
    for module, check in checks:
        setattr(module, check, timed(getattr(module, check)))
    point = Point(workers=distributed.get_world_size(), micro_batch=micro_batch, workload=workload)
    shares = []
    for _ in range(ATTEMPTS):
        tasks = [
            task_of(
                Sweep(
                    workload=workload,
                    axes={"workers": [1]},
                    measure=Measure(repeats=1, max_seconds=4),
                ),
                point,
            )
        ]
        distributed.broadcast_object_list(tasks, src=0)
        spent.clear()
        began = time.perf_counter()
        ended = run_attempt(context, tasks[0])
        assert ended.status == "ok", ended.reason
        shares.append(sum(spent) / (time.perf_counter() - began))
    distributed.destroy_process_group()
    return shares[1:]


def called(
    arguments: Sequence[str], *, code: Path, folder: Path | None = None
) -> subprocess.CompletedProcess[str]:
    """Run Python with the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(code), "OMP_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder or code,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )


def main() -> None:
    """Print an entry for docs/log/."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--share-of", choices=HONEST, help=argparse.SUPPRESS)
    parser.add_argument(
        "--before", type=Path, metavar="FOLDER", help="Another checkout, tried as well."
    )
    options = parser.parse_args()
    if options.share_of:
        shares = shares_of(options.share_of)
        print(json.dumps(shares) if int(os.environ["RANK"]) == 0 else "", end="")
        return
    codes = (
        {"now": ROOT}
        if options.before is None
        else {"before": options.before.resolve(), "now": ROOT}
    )
    rows = [
        [lie, *(tried(settings, code) for code in codes.values())] for lie, settings in RUN.items()
    ]
    rows += [
        [lie, *(resumed(change, code) for code in codes.values())]
        for lie, change in changes().items()
    ]
    costs = [[name, *(cost(name, workers) for workers in (1, 2))] for name in HONEST]
    print(heading("What is said of trials that did something else than their row would say?"))
    print("", table(["what happened", *codes], rows), sep="\n")
    print("", table(["share of an attempt in checks", "1 worker", "2 workers"], costs), sep="\n")
    print(f"\nMedian (least–most) of {ATTEMPTS - 1} attempts.")


if __name__ == "__main__":
    main()
