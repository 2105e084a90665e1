"""Bytes that a rank keeps of model, gradients and optimizer state, exactly, by sync mode."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, distributed, nn
from torch.distributed.tensor import DTensor

from dtsweep.measure.clock import CpuClock
from dtsweep.sweep.point import Point
from dtsweep.sync.mode import Job, load_mode
from dtsweep.sync.passes import batches_of_steps, loss_in_precision, make_optimizer
from tests.ranks import spawn

WORKERS, NODE = 4, 2
MODES = ("ddp", "zero1", "fsdp_grad", "fsdp", "hsdp")
WIDTH = 8
MODEL_BYTES = 4 * 4 * WIDTH * WIDTH
"""Four square layers in fp32."""

Kept = dict[str, int]


@dataclass(frozen=True)
class Layers:
    """Layers of which each rank can have an equal part.

    Notes what is whole between forward and backward.
    """

    seen: list[int] = field(default_factory=list)

    def build(self) -> nn.Module:
        return nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(4)))

    def batch(self, samples: range, device: torch.device) -> Tensor:
        return torch.ones(len(samples), WIDTH, device=device)

    def loss(self, model: nn.Module, batch: Tensor) -> Tensor:
        out: Tensor = model(batch)
        self.seen.append(bytes_of(list(model.parameters())))
        return out.square().mean()


def bytes_of(tensors: list[Any]) -> int:
    """Of what is on this rank; the counter of steps, a number each, is left out."""
    local = [tensor.to_local() if isinstance(tensor, DTensor) else tensor for tensor in tensors]
    return sum(tensor.numel() * tensor.element_size() for tensor in local if tensor.dim())


def kept(mode: str, *, rank: int) -> Kept:
    """What is there when the second update begins, and what of the model is there after forward."""
    workload = Layers()
    point = Point(
        workers=WORKERS,
        micro_batch=1,
        sync=mode,
        optimizer="adamw",
        node_size=NODE if mode == "hsdp" else None,
        workload=workload,
    )
    device = torch.device("cpu")
    job = Job(point=point, rank=rank, device=device, loss=loss_in_precision(point, device))
    sync: Any = load_mode(mode)(job)
    model, steps, clock, found = workload.build(), batches_of_steps(job), CpuClock(), Kept()
    sync.prepare(model, functools.partial(make_optimizer, point=point))
    optimizer = sync._optimizer

    def look(*_: Any) -> None:
        parameters = list(model.parameters())
        state = getattr(optimizer, "optim", optimizer).state.values()
        found["parameters"] = bytes_of(parameters)
        found["gradients"] = bytes_of([parameter.grad for parameter in parameters])
        found["state"] = bytes_of([value for values in state for value in values.values()])

    clock.start()
    sync.step(next(steps), clock)
    optimizer.register_step_pre_hook(look)
    sync.step(next(steps), clock)
    clock.stop()
    found["after_forward"] = workload.seen[-1]
    found["without_exchange"] = sync.bytes_without_exchange()
    sync.close()
    return found


def keep_all(rank: int, folder: Path) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group(
        "gloo", init_method=f"file://{folder}/store", rank=rank, world_size=WORKERS
    )
    torch.save({mode: kept(mode, rank=rank) for mode in MODES}, folder / f"{rank}.pt")
    distributed.barrier()
    distributed.destroy_process_group()


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Kept]]:
    """What each rank keeps, by mode."""
    folder = tmp_path_factory.mktemp("kept")
    spawn(keep_all, args=(folder,), nprocs=WORKERS)
    return [torch.load(folder / f"{rank}.pt") for rank in range(WORKERS)]


@pytest.mark.parametrize(
    ("mode", "parameters", "gradients", "state"),
    [
        ("ddp", 1, 1, 2),
        ("zero1", 1, 1, 2 / WORKERS),
        ("fsdp_grad", 1 / WORKERS, 1 / WORKERS, 2 / WORKERS),
        ("fsdp", 1 / WORKERS, 1 / WORKERS, 2 / WORKERS),
        ("hsdp", 1 / NODE, 1 / NODE, 2 / NODE),
    ],
)
def test_a_rank_keeps_its_share_of_parameters_gradients_and_state(
    ranks: list[dict[str, Kept]], mode: str, parameters: float, gradients: float, state: float
) -> None:
    for found in ranks:
        whole = {
            name: found[mode][name] / MODEL_BYTES for name in ("parameters", "gradients", "state")
        }
        assert whole == {"parameters": parameters, "gradients": gradients, "state": state}


def test_a_step_of_shards_without_the_exchange_needs_what_is_whole_in_no_other_step(
    ranks: list[dict[str, Kept]],
) -> None:
    for found in ranks:
        needed = {mode: found[mode]["without_exchange"] / MODEL_BYTES for mode in MODES}
        # Gradients, and parameters where blocks free theirs.
        assert needed == {"ddp": 0, "zero1": 0, "fsdp_grad": 1, "fsdp": 2, "hsdp": 2}


def test_the_later_the_stage_of_zero_the_less_a_rank_keeps(ranks: list[dict[str, Kept]]) -> None:
    for found in ranks:
        totals = {
            mode: sum(found[mode][part] for part in ("parameters", "gradients", "state"))
            for mode in MODES
        }
        assert (
            totals["ddp"] > totals["zero1"] > totals["hsdp"] > totals["fsdp_grad"] == totals["fsdp"]
        )


def test_fsdp_grad_alone_keeps_the_model_whole_from_forward_to_backward(
    ranks: list[dict[str, Kept]],
) -> None:
    for found in ranks:
        after_forward = {
            mode: found[mode]["after_forward"] / MODEL_BYTES
            for mode in ("fsdp_grad", "fsdp", "hsdp")
        }
        assert after_forward == {"fsdp_grad": 1, "fsdp": 1 / WORKERS, "hsdp": 1 / NODE}
