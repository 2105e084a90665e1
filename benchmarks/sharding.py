"""Compare the memory that a rank takes in each mode with arithmetic, on 2 and 4 ranks.

The model is 8 blocks of `Linear(1024, 4096)` and `Linear(4096, 1024)`, 256 MiB of parameters in
fp32, trained by AdamW with one sample per pass: activations are 0.2 MiB, a thousandth of the
parameters. A trial runs as any does (`dtsweep.session.attempt`), and what it takes is its
`memory_peak_bytes`, less what the process has before: that is measured after a trial of the same
mode with a model of a few KiB, so that libraries and threads are there. The table has the rank that
took most.

Arithmetic is what a rank keeps from step to step, and what comes to it at the moment when most is
there:

- `ddp`: parameters, DDP's buckets and AdamW's two averages stay. Most is there in the update: all
  gradients, and of one parameter the square root and its quotient.
- `zero1`: the same with 1/n of the averages. It updates parameters of one size one after another,
  so that the quotient of the one before is still there.
- `fsdp_grad`: 1/n of the parameters and averages stay. Most is there at the end of forward: all
  parameters whole, and the last block gathered as it travels, beside gloo's own copy of that.
  With `shard_precision=bf16` parameters have half the size. Most is there when backward has come to
  the second block: the gradients of the last one in fp32, and gloo's own copy of them.
- `fsdp`, `hsdp`: the same stays, in `hsdp` by workers of a node. Most is there when backward has
  come to the second block: the gradients of all blocks behind it in shards, and four blocks: it
  itself, what the one behind it handed to the reduce-scatter, the first one as it is gathered
  ahead, and gloo's copy of that. With `shard_precision=bf16` gathered blocks have half the size.
- `hsdp` with `reshard=never`: as `fsdp_grad`, by workers of a node.

glibc's allocator keeps what it was given back, by thresholds that grow with what a process asks
for, so a peak of resident memory holds more than was in use at once. With
`MALLOC_MMAP_THRESHOLD_=65536` it gives large tensors back to the kernel at once. Both are measured:
with it the peak is held against arithmetic, without it is what a trial shows.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, distributed, nn

from benchmarks.log_entry import heading, table, torchrun
from dtsweep import Measure, Sweep
from dtsweep.hardware.memory import peak_bytes, release_memory
from dtsweep.session.attempt import run_attempt
from dtsweep.sweep.axes import candidates
from dtsweep.sweep.task import task_of
from dtsweep.worker.rank import RankContext, become_rank, take_device

BYTES = 4
"""Of a number in fp32."""

NODE = 2
"""Workers of a pretended node, for `hsdp`."""

THRESHOLD = "MALLOC_MMAP_THRESHOLD_"
"""glibc's variable: from how many bytes on an allocation is a mapping of its own."""


@dataclass(frozen=True)
class Blocks:
    """Wide layers one behind another, on samples of ones."""

    width: int = 1024
    hidden: int = 4096
    depth: int = 8

    def build(self) -> nn.Module:
        """Make the blocks."""
        return nn.Sequential(*(self._block() for _ in range(self.depth)))

    def _block(self) -> nn.Module:
        return nn.Sequential(
            nn.Linear(self.width, self.hidden), nn.ReLU(), nn.Linear(self.hidden, self.width)
        )

    def batch(self, samples: range, device: torch.device) -> Tensor:
        """Make rows of ones."""
        return torch.ones(len(samples), self.width, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        """Mean square of what comes out."""
        out: Tensor = model(batch)
        return out.square().mean()

    @property
    def block_bytes(self) -> int:
        """Of the parameters of a block."""
        return BYTES * (2 * self.width * self.hidden + self.width + self.hidden)

    @property
    def largest_bytes(self) -> int:
        """Of the largest parameter."""
        return BYTES * self.width * self.hidden


MODEL, FEW = Blocks(), Blocks(width=16, hidden=64, depth=2)
"""What is measured, and what starts libraries and threads."""


@dataclass(frozen=True, kw_only=True)
class Memory:
    """Bytes on a rank."""

    kept: float
    """From one step to the next."""

    more: float
    """At the moment when most is there, beside what is kept."""


def of_ddp(model: Blocks, workers: int) -> Memory:  # noqa: ARG001  # all of it on each
    """Parameters, buckets, two averages; gradients, two numbers for each of one parameter."""
    whole = model.depth * model.block_bytes
    return Memory(kept=4 * whole, more=whole + 2 * model.largest_bytes)


def of_zero1(model: Blocks, workers: int) -> Memory:
    """Parameters, buckets, a share of averages; gradients, and three of the largest parameter."""
    whole = model.depth * model.block_bytes
    return Memory(kept=2 * whole + 2 * whole / workers, more=whole + 3 * model.largest_bytes)


def of_fsdp_grad(model: Blocks, workers: int) -> Memory:
    """A share of parameters and averages; all parameters, two blocks on their way."""
    whole = model.depth * model.block_bytes
    return Memory(kept=3 * whole / workers, more=whole + 2 * model.block_bytes)


def of_fsdp(model: Blocks, workers: int) -> Memory:
    """A share of parameters and averages; that of the gradients but for two blocks, four blocks."""
    whole, block = model.depth * model.block_bytes, model.block_bytes
    return Memory(kept=3 * whole / workers, more=(whole - 2 * block) / workers + 4 * block)


def of_hsdp(model: Blocks, workers: int) -> Memory:  # noqa: ARG001  # nodes are copies
    """As `fsdp` with the workers of a node."""
    return of_fsdp(model, NODE)


def of_fsdp_grad_bf16(model: Blocks, workers: int) -> Memory:
    """As `fsdp_grad` with parameters of half the size; two blocks of gradients are in fp32."""
    whole = model.depth * model.block_bytes
    return Memory(kept=3 * whole / workers, more=whole / 2 + 2 * model.block_bytes)


def of_fsdp_bf16(model: Blocks, workers: int) -> Memory:
    """As `fsdp` with two of the four blocks of half the size."""
    whole, block = model.depth * model.block_bytes, model.block_bytes
    return Memory(kept=3 * whole / workers, more=(whole - 2 * block) / workers + 3 * block)


def of_hsdp_never(model: Blocks, workers: int) -> Memory:  # noqa: ARG001  # nodes are copies
    """As `fsdp_grad` with the workers of a node."""
    return of_fsdp_grad(model, NODE)


ARITHMETIC: Mapping[str, Callable[[Blocks, int], Memory]] = {
    "ddp": of_ddp,
    "zero1": of_zero1,
    "fsdp_grad": of_fsdp_grad,
    "fsdp": of_fsdp,
    "hsdp": of_hsdp,
    "fsdp_grad, bf16": of_fsdp_grad_bf16,
    "fsdp, bf16": of_fsdp_bf16,
    "hsdp, never": of_hsdp_never,
}
"""Memory of a rank by variant, from the model and the number of workers."""

AXES: Mapping[str, Mapping[str, Any]] = {
    **{mode: {"sync": mode} for mode in ("ddp", "zero1", "fsdp_grad", "fsdp")},
    "hsdp": {"sync": "hsdp", "node_size": NODE},
    "fsdp_grad, bf16": {"sync": "fsdp_grad", "precision": "bf16", "shard_precision": "bf16"},
    "fsdp, bf16": {"sync": "fsdp", "precision": "bf16", "shard_precision": "bf16"},
    "hsdp, never": {"sync": "hsdp", "reshard": "never", "node_size": NODE},
}
"""Axes of each variant."""


def taken_bytes(context: RankContext, variant: str) -> int:
    """What a trial takes on this rank beside the process itself."""
    peak_of(context, AXES[variant], FEW)
    gc.collect()
    release_memory(context.device)
    base = peak_bytes(context.device)
    return peak_of(context, AXES[variant], MODEL) - base


def peak_of(context: RankContext, axes: Mapping[str, Any], workload: Blocks) -> int:
    """`memory_peak_bytes` of a trial on this rank, with AdamW and one sample unless axes say so."""
    workers = distributed.get_world_size()
    usual = {"workers": workers, "optimizer": "adamw", "micro_batch": 1}
    steps = Measure(
        repeats=1,
        warmup_steps=2,
        min_steps=3,
        max_steps=3,
        min_seconds=0,
        half_width=None,
        max_seconds=600,
        exchange="off",
    )
    sweep = Sweep(
        workload=workload,
        axes={name: [value] for name, value in {**usual, **axes}.items()},
        measure=steps,
    )
    tasks = [task_of(sweep, candidates(sweep)[0].point)]
    distributed.broadcast_object_list(tasks, src=0)
    measured = run_attempt(replace(context, workload=workload), tasks[0]).measured
    assert measured is not None, "this rank's attempt failed; its traceback is above"
    assert measured.memory_peak_bytes is not None, "a whole window has its peak"
    return measured.memory_peak_bytes


def be_a_rank(modes: list[str]) -> None:
    """Measure modes in one launch; rank 0 prints as JSON what the rank took that took most."""
    sweep = Sweep(workload=MODEL, axes={}, measure=Measure(repeats=1))
    device = take_device(sweep.resources, index=int(os.environ["LOCAL_RANK"]))
    distributed.init_process_group("nccl" if device.type == "cuda" else "gloo")
    context = become_rank(
        distributed.get_rank(), device, workload=MODEL, own_variables=["OMP_NUM_THREADS"]
    )
    taken: dict[str, int] = {}
    for mode in modes:
        everyone: list[Any] = [None] * distributed.get_world_size()
        distributed.all_gather_object(everyone, taken_bytes(context, mode))
        taken[mode] = max(everyone)
    if context.rank == 0:
        print(json.dumps(taken), flush=True)
    distributed.destroy_process_group()


def launched(modes: list[str], *, workers: int, threshold: str | None) -> dict[str, int]:
    """What the modes take in a launch, with glibc's threshold or as it comes."""
    os.environ.pop(THRESHOLD, None)
    if threshold:
        os.environ[THRESHOLD] = threshold
    taken: dict[str, int] = json.loads(
        torchrun("benchmarks.sharding", "--ranks", *modes, workers=workers)
    )
    return taken


def rows_of(workers: int) -> list[list[str]]:
    """A row of the table for each mode."""
    modes = [mode for mode in ARITHMETIC if "node_size" not in AXES[mode] or workers > NODE]
    given_back = launched(modes, workers=workers, threshold="65536")
    as_it_comes = launched(modes, workers=workers, threshold=None)
    rows = []
    for mode in modes:
        memory = ARITHMETIC[mode](MODEL, workers)
        total = memory.kept + memory.more
        found = given_back[mode]
        cells = [memory.kept, memory.more, total, found]
        kept = as_it_comes[mode]
        rows.append(
            [
                mode,
                str(workers),
                *(f"{cell / 2**20:.0f}" for cell in cells),
                f"{found / total - 1:+.1%}",
                f"{kept / 2**20:.0f} ({kept / total - 1:+.1%})",
            ]
        )
    return rows


def main() -> None:
    """Measure all modes and print an entry for docs/log/."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.sharding", description=(__doc__ or "").split("\n")[0]
    )
    parser.add_argument("--workers", type=int, nargs="+", default=[2, 4], help="(default 2 4)")
    parser.add_argument("--ranks", nargs="+", choices=ARITHMETIC, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.ranks:
        be_a_rank(options.ranks)
        return
    rows = [cells for workers in options.workers for cells in rows_of(workers)]
    headers = [
        "mode",
        "ranks",
        "kept, MiB",
        "more at most, MiB",
        "arithmetic, MiB",
        f"measured with {THRESHOLD}, MiB",
    ]
    print(heading("Does a rank take the memory that arithmetic says?"), end="\n\n")
    print(table([*headers, "difference", "as malloc comes, MiB"], rows), end="\n\n")
    print(
        f"{MODEL.depth * MODEL.block_bytes / 2**20:.0f} MiB of parameters; "
        "the arithmetic is in benchmarks/sharding.py."
    )


if __name__ == "__main__":
    main()
