"""Trials of a user's loop in the same process: nothing of one reaches the next."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from dtsweep import Measure, Point, Sweep, workloads
from dtsweep.metrics.rank_result import RankResult
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.modes import AS_WRITTEN
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.rank import become_rank

pytestmark = pytest.mark.slow

MEASURE = Measure(
    half_width=None, warmup_steps=2, min_steps=8, min_seconds=0, max_seconds=60, canary=False
)

LOOP = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(100):
    for (inputs,) in DataLoader(TensorDataset(torch.randn(64, 4)), batch_size=8):
        optimizer.zero_grad()
        model(inputs).square().mean().backward()
        optimizer.step()
"""

SEEN = """
import atexit, builtins, gc, json, logging, multiprocessing, os, resource, sys, threading
import warnings
from pathlib import Path

import torch
from torch.nn.modules.module import _global_forward_hooks as forward_hooks

FOLDER = Path(os.environ["FOLDER_OF_THE_TEST"])  # the script runs in a copy of its own

def seen():
    return {
        "variable": os.environ.get("LEFT_BY_A_SCRIPT"),
        "folder": Path.cwd().name,  # each script has a folder of its own
        "grad": torch.is_grad_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
        "autocast": torch.is_autocast_enabled("cpu"),
        "print": builtins.print.__name__,
        "filters": len(warnings.filters),
        "handlers": len(logging.getLogger().handlers),
        "level": logging.getLogger().level,
        "own logger": len(logging.getLogger("left by a script").handlers),
        "excepthook": sys.excepthook.__name__,
        "start method": multiprocessing.get_start_method(allow_none=True),
        "files": resource.getrlimit(resource.RLIMIT_NOFILE),
        "hooks": len(forward_hooks),
        "forward": torch.nn.Linear.forward.__name__,
        "module": hasattr(sys, "left_by_a_script"),
        "argv": sys.argv[1:],
        "thread": [t.name for t in threading.enumerate() if t.name == "left by a script"],
        "frozen": gc.get_freeze_count(),
        "compiler": torch._inductor.config.max_autotune,
        "random": torch.rand(1).item(),
        "calls": len(CALLED.read_text()) if CALLED.exists() else 0,
    }

CALLED = FOLDER / "called.txt"
name = sys.argv[1]
import torch._inductor.config
(FOLDER / f"{name}.json").write_text(json.dumps(seen()))
if name == "leaves":
    os.environ["LEFT_BY_A_SCRIPT"] = "1"
    (FOLDER / "other").mkdir()
    os.chdir(FOLDER / "other")
    torch.autograd.set_detect_anomaly(True)
    torch.set_autocast_enabled("cpu", True)
    print_of_rank_0 = builtins.print
    def quiet(*words): print_of_rank_0(*words)
    builtins.print = quiet
    warnings.simplefilter("ignore")
    logging.basicConfig(filename=FOLDER / "log.txt", level=logging.DEBUG)
    logging.getLogger("left by a script").addHandler(logging.StreamHandler())
    def hook(*_): pass
    sys.excepthook = hook
    multiprocessing.set_start_method("spawn")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    torch.nn.modules.module.register_module_forward_hook(lambda *_: None)
    def forward(self, inputs): return torch.nn.functional.linear(inputs, self.weight, self.bias)
    torch.nn.Linear.forward = forward
    sys.argv.append("left")
    torch._inductor.config.max_autotune = True
    threading.Thread(target=lambda: None, name="left by a script").start()
    gc.collect()
    gc.freeze()
    atexit.register(lambda: CALLED.write_text("x"))
if name == "lasting":
    import time
    threading.Thread(target=time.sleep, args=(3600,), name="lasting", daemon=True).start()
"""

DRIVER = """
import sys
from pathlib import Path
from tests.loops.test_given_back import measured
for name in sys.argv[2:]:
    result = measured(Path(sys.argv[1]), name)
    print("result", name, result.status, result.needs_new_process, *result.left_state)
    if result.reason:
        print(result.reason, file=sys.stderr)
"""
"""Trials in a process of their own, whose main thread runs the scripts."""


def measured(script: Path, name: str) -> RankResult:
    workload = workloads.Script(str(script), args={"0": name})
    return run_attempt(context_for(workload), task_for(workload))


def context_for(workload: Any) -> Any:
    return become_rank(0, torch.device("cpu"), workload=workload, own_variables=())


def task_for(workload: Any) -> Task:
    sweep = Sweep(workload=workload, axes={"workers": [1]}, measure=MEASURE)
    return task_of(sweep, Point(workload=workload, workers=1, sync=AS_WRITTEN))


def run(folder: Path, source: str, *names: str) -> dict[str, str]:
    """Results of the trials with these names, in the same process."""
    script = folder / "train.py"
    script.write_text(source)
    done = subprocess.run(
        [sys.executable, "-c", DRIVER, str(script), *names],
        check=False,
        capture_output=True,
        text=True,
        env=os.environ | {"FOLDER_OF_THE_TEST": str(folder)},
    )
    assert done.returncode == 0, done.stderr
    lines = [line.split(maxsplit=2) for line in done.stdout.splitlines()]
    results = {words[1]: words[2] for words in lines if words[0] == "result"}
    assert all(result.startswith("ok") for result in results.values()), done.stderr
    return results


def test_nothing_that_a_script_changes_reaches_the_next_one(tmp_path: Path) -> None:
    results = run(tmp_path, SEEN + LOOP, "first", "leaves", "next", "after", "lasting")
    # A thread that goes on can't be undone: it needs another process.
    assert results.pop("lasting") == "ok True thread lasting"
    assert set(results.values()) == {"ok False"}
    first, leaves, following, after = (
        json.loads((tmp_path / f"{name}.json").read_text())
        for name in ("first", "leaves", "next", "after")
    )
    # The function for the end of the process was called once, at the end of its own trial.
    assert (leaves.pop("calls"), following.pop("calls"), after.pop("calls")) == (0, 1, 1)
    for seen, name in ((leaves, "leaves"), (following, "next"), (after, "after")):
        assert seen["argv"] == [name]
    ignored = dict.fromkeys(("calls", "argv", "frozen"))
    assert following | ignored == leaves | ignored
    assert after | ignored == first | ignored
    assert following["frozen"] <= leaves["frozen"]


ACCELERATED = """
import sys
from accelerate import Accelerator
accelerator = Accelerator(mixed_precision=sys.argv[1], cpu=True)
assert accelerator.mixed_precision == sys.argv[1]
"""


def test_an_accelerator_of_another_precision_can_follow(tmp_path: Path) -> None:
    pytest.importorskip("accelerate")
    results = run(tmp_path, ACCELERATED + LOOP, "no", "bf16")
    assert set(results.values()) == {"ok False"}
