"""`powersgd` against torch's own hook on one bucket: as many bytes, as near to the mean."""

from __future__ import annotations

import os
from pathlib import Path

import torch
from torch import Tensor, distributed, nn
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel

from dtsweep.compression.exchange import mean_for, unmarked
from dtsweep.sweep.point import Point
from tests.contract.simulated import Simulated, on_ranks
from tests.ranks import spawn

RANKS, RANK, EXACT, STEPS = 2, 4, 2, 12
SHAPES = [torch.Size(shape) for shape in ((60, 50), (50,), (60, 50), (40, 30), (3, 4))]


def gradients(rank: int, step: int) -> list[Tensor]:
    """Matrices with a constant part, in directions of falling size, and a little noise by step."""
    random, found = torch.Generator().manual_seed(7 * rank), []
    for index, shape in enumerate(SHAPES):
        kept = torch.randn(shape, generator=random) * 0.8 ** torch.arange(shape[-1])
        found.append(
            kept
            + 0.1
            * torch.randn(shape, generator=random.manual_seed(1000 * step + 10 * rank + index))
        )
    return found


class Given(nn.Module):
    """Parameters whose gradients are what it is called with."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = nn.ParameterList(nn.Parameter(torch.zeros(shape)) for shape in SHAPES)

    def forward(self, gradients: list[Tensor]) -> Tensor:
        products = [
            (weight * given).sum() for weight, given in zip(self.weights, gradients, strict=True)
        ]
        return torch.stack(products).sum()


def by_torch(rank: int, folder: Path) -> None:
    """Have DDP exchange gradients with the hook, which does so exactly at first."""
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=RANKS
    )
    model = Given()
    wrapped = DistributedDataParallel(model, bucket_cap_mb=100)
    state = PowerSGDState(
        None,
        matrix_approximation_rank=RANK,
        start_powerSGD_iter=EXACT,
        min_compression_rate=1,
        random_seed=3,
    )
    wrapped.register_comm_hook(state, powerSGD_hook)
    means, numbers = [], 0
    for step in range(EXACT + STEPS):
        before = state.total_numel_after_compression
        model.zero_grad()
        wrapped(gradients(rank, max(0, step - EXACT))).backward()
        if step >= EXACT:
            means.append([parameter.grad.clone() for parameter in model.weights])
            numbers = state.total_numel_after_compression - before
    if rank == 0:
        torch.save((means, numbers), folder / "0.pt")
    distributed.barrier()
    # The hook leaves a thread of gloo in its callbacks now and then, which aborts a process that
    # ends in order.
    os._exit(0)


def ours(worker: Simulated) -> tuple[list[list[Tensor]], int]:
    """Exchange the same gradients."""
    flat = torch.empty(sum(shape.numel() for shape in SHAPES))
    point = Point(workers=RANKS, compression="powersgd", compression_rank=RANK)
    mean, means = mean_for(point, flat, worker, shapes=SHAPES, seed=3), []
    for step in range(STEPS):
        flat = torch.cat([each.view(-1) for each in gradients(worker.rank, step)])
        mean.begin(flat, unmarked)
        mean.finish(flat, unmarked)
        parts = flat.split([shape.numel() for shape in SHAPES])
        means.append([part.view(shape) for part, shape in zip(parts, SHAPES, strict=True)])
    return means, sum(count for _, count in worker.sent) // STEPS


def far(means: list[list[Tensor]], *, from_step: int) -> Tensor:
    """Difference of the sum since a step to the exact sum, as a share of it, for each parameter."""
    exact = [
        [torch.stack(both).mean(dim=0) for both in zip(*of_ranks, strict=True)]
        for of_ranks in ([gradients(rank, step) for rank in range(RANKS)] for step in range(STEPS))
    ]
    sums = (
        [torch.stack(steps).sum(dim=0) for steps in zip(*each[from_step:], strict=True)]
        for each in (means, exact)
    )
    return torch.stack(
        [(got - given).norm() / given.norm() for got, given in zip(*sums, strict=True)]
    )


def test_it_sends_as_many_bytes_as_torch_s_hook_and_comes_as_near(tmp_path: Path) -> None:
    spawn(by_torch, args=(tmp_path,), nprocs=RANKS)
    means, numbers = torch.load(tmp_path / "0.pt")
    own, own_bytes = on_ranks(RANKS, ours)[0]
    assert own_bytes == 4 * numbers < sum(4 * shape.numel() for shape in SHAPES) / 2
    for from_step in (0, STEPS - 1):
        theirs, found = far(means, from_step=from_step), far(own, from_step=from_step)
        matrices = torch.tensor([0, 2, 3])
        assert (theirs[matrices] > 0.01).all()
        assert (found <= 1.1 * theirs + 1e-6).all()
        assert (found[[1, 4]] < 1e-6).all()
