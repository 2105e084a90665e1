"""The control measurement: one point under torchrun, without Ray, giving the same row.

`torchrun --nproc-per-node 2 -m benchmarks.by_torchrun SWEEP.py workers=2 sync=ddp` prints it as
JSON. `--row FILE` also writes it to a file, where no other output comes between.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import pickle
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from dtsweep.errors import SweepError
from dtsweep.hardware.device import compute_capability
from dtsweep.hardware.gpu_place import GpuPlace, pci_bus_id, shared_gpu
from dtsweep.hardware.variables import NCCL_SETTINGS, NO_GPUS, set_defaults
from dtsweep.metrics.rank_result import RankResult
from dtsweep.metrics.rows import trial_row, with_warmup_marked
from dtsweep.provenance.sources import sources_of
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.axes import Candidate, parse_setting
from dtsweep.sweep.constraints import Harness, impossible
from dtsweep.sweep.file import read_sweep
from dtsweep.sweep.point import Point
from dtsweep.sweep.settings import Sweep, of_one_launch
from dtsweep.sweep.task import Task, task_of
from dtsweep.worker.rank import become_rank, cpus_here, take_device

CAUSE_FIRST_S = 1.0
"""A rank that lost its peer waits so long for the peer to print its row, which says why."""

RESTARTED = "DTSWEEP_RESTARTED"
"""Variable of a process that was started again with the variables of its point."""


def main(arguments: Sequence[str]) -> int:
    """Run one point under torchrun; rank 0 prints its row as JSON. Returns the exit code."""
    try:
        row_file, words = _row_file(arguments)
        if "RANK" not in os.environ or not words:
            raise SweepError(
                "run it as: torchrun --nproc-per-node N -m benchmarks.by_torchrun SWEEP.py "
                "workers=N [axis=value …] [--row FILE]"
            )
        settings = dict(parse_setting(text) for text in words[1:])
        sweep, candidates = read_sweep(words[0], settings)
        point = _only_point(candidates, workers=int(os.environ["WORLD_SIZE"]))
        _restart_with({**sweep.resources.environment, **point.environment})
        if sweep.resources.gpus_per_worker == 0:
            os.environ.update(NO_GPUS)
        cpus = cpus_here(sweep.resources)
        sweep = of_one_launch(sweep)
        sweep = replace(sweep, resources=replace(sweep.resources, cpus_per_worker=cpus))
        device = take_device(sweep.resources, index=int(os.environ["LOCAL_RANK"]))
        _check_possible(point, device)
    except SweepError as error:
        print(f"dtsweep: {error}", file=sys.stderr)  # this is a command
        return 2
    backend = "gloo"
    if device.type == "cuda":
        backend = "nccl"
        set_defaults(NCCL_SETTINGS)
    distributed.init_process_group(backend)
    if shared := shared_gpu(_places(device)):
        print(f"dtsweep: {shared}", file=sys.stderr)  # this is a command
        return 2
    task = task_of(sweep, point)
    # The attempt's name is drawn: all ranks take rank 0's.
    task = replace(task, attempt_id=_told("attempt", task.attempt_id)[0])
    result = _run(sweep, point, task, device, row_file=row_file)
    if result.is_spent:
        # A GPU that has failed gives a warning for each event that is freed.
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1)
    if result.status == "ok":
        return 0
    return 1


def _row_file(arguments: Sequence[str]) -> tuple[Path | None, list[str]]:
    """Take `--row FILE` out of the arguments."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, exit_on_error=False)
    parser.add_argument("--row", type=Path)
    try:
        options, words = parser.parse_known_args(arguments)
    except argparse.ArgumentError as error:
        raise SweepError(str(error)) from None
    if options.row is not None and not options.row.parent.is_dir():
        raise SweepError(f"there is no folder {options.row.parent} for --row; make it first")
    return options.row, words


def _run(
    sweep: Sweep, point: Point, task: Task, device: torch.device, *, row_file: Path | None
) -> RankResult:
    """Run the task on this rank; one rank prints the row."""
    variables = {"OMP_NUM_THREADS", *sweep.resources.environment, *point.environment}
    packages = sources_of(sweep.workload, file=sweep.file).packages
    context = become_rank(
        distributed.get_rank(),
        device,
        workload=sweep.workload,
        own_variables=variables,
        packages=packages,
    )
    # A training loop has a group of its own, and destroys this one.
    store = distributed.distributed_c10d._get_default_store()
    workers = distributed.get_world_size()
    if workers > 1:
        meeting = distributed.distributed_c10d.PrefixStore(task.attempt_id, store)
        context = replace(context, store=meeting)
    result = run_attempt(context, task)
    if result.status == "collateral":
        time.sleep(CAUSE_FIRST_S)
    if result.measured is None:
        # The others may wait for this rank in an exchange: no collective here. torchrun ends them.
        if store.add(f"failed/{task.attempt_id}", 1) == 1:
            rank = {context.rank: result}
            _print_row(
                trial_row(
                    sweep, point, task, {context.rank: context.facts}, rank, harness="torchrun"
                ),
                row_file,
            )
        return result
    sent = base64.b64encode(pickle.dumps((context.facts, result))).decode()
    store.set(f"measured/{context.rank}", sent)
    if context.rank == 0:
        texts = [store.get(f"measured/{rank}") for rank in range(workers)]
        gathered = [pickle.loads(base64.b64decode(text)) for text in texts]
        facts = {rank: facts for rank, (facts, _) in enumerate(gathered)}
        results = with_warmup_marked(
            point, {rank: result for rank, (_, result) in enumerate(gathered)}
        )
        _print_row(trial_row(sweep, point, task, facts, results, harness="torchrun"), row_file)
    if distributed.is_initialized():
        distributed.destroy_process_group()
    return result


def _places(device: torch.device) -> dict[int, GpuPlace | None]:
    """Places of all ranks' GPUs, through the store of the group: NCCL is not used yet."""
    place = None
    if device.type == "cuda":
        gpu = torch.cuda.get_device_properties(device)
        place = GpuPlace(
            node=socket.gethostname(), node_id=_machine_id(), pci_bus_id=pci_bus_id(gpu)
        )
    places = _told("gpu", place and asdict(place))
    return {rank: place and GpuPlace(**place) for rank, place in enumerate(places)}


def _machine_id() -> str | None:
    """Number that the kernel draws when it starts, the same in all containers of a machine."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return None


def _told(what: str, value: Any) -> list[Any]:
    """Values of all ranks, through the store of the group."""
    store = distributed.distributed_c10d._get_default_store()
    store.set(f"{what}/{distributed.get_rank()}", json.dumps(value))
    return [json.loads(store.get(f"{what}/{rank}")) for rank in range(distributed.get_world_size())]


def _print_row(row: dict[str, Any], row_file: Path | None) -> None:
    text = json.dumps(row, default=str)
    print(text, flush=True)  # this is a command
    if row_file is not None:
        row_file.write_text(f"{text}\n", "utf-8")


def _restart_with(variables: Mapping[str, str]) -> None:
    """Start this process again with variables that it lacks.

    Libraries read some of them when they are loaded, and the sweep file that names the variables
    may have loaded any library.

    Raises:
        SweepError: it was started again already, and the sweep file names other values each time.
    """
    lacking = {name: value for name, value in variables.items() if os.environ.get(name) != value}
    if not lacking:
        return
    if RESTARTED in os.environ:
        raise SweepError(
            f"the value of {', '.join(lacking)} changes each time the sweep file is read; give a "
            "constant one"
        )
    sys.stdout.flush()
    sys.stderr.flush()
    environment = {**os.environ, **lacking, RESTARTED: "1"}
    command = [sys.executable, *sys.orig_argv[1:]]
    os.execve(sys.executable, command, environment)  # as it was started


def _only_point(candidates: Sequence[Candidate], *, workers: int) -> Point:
    """Take the first possible point, with the first values of its axes."""
    possible = [candidate.point for candidate in candidates if candidate.reason is None]
    if not possible:
        raise SweepError(f"no point to measure: {candidates[0].reason}")
    point = possible[0]
    if point.workers != workers:
        raise SweepError(
            f"workers={point.workers}, but torchrun started {workers}; say workers={workers}"
        )
    return point


def _check_possible(point: Point, device: torch.device) -> None:
    harness = Harness(
        name="torchrun",
        has_gpus=device.type == "cuda",
        compute_capability=compute_capability(device),
    )
    if reason := impossible(point, harness):
        raise SweepError(f"{reason}; use python -m dtsweep, or another value here")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
