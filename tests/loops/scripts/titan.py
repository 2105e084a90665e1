"""A trainer in the style of torchtitan: sections of configuration, a mesh, `parallelize`."""

import argparse

import torch
from laps import Laps
from torch import distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.norm = nn.RMSNorm(width, elementwise_affine=False)
        self.up, self.down = nn.Linear(width, 256), nn.Linear(256, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


def parallelize(model, mesh):
    """Divide the layers of each block over `tp`, and shard the parameters over `dp_shard`."""
    policy = MixedPrecisionPolicy(param_dtype=torch.float32, reduce_dtype=torch.float32)
    for block in model:
        if mesh["tp"].size() > 1:
            plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
            parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp_shard"], mp_policy=policy)
    return fully_shard(model, mesh=mesh["dp_shard"], mp_policy=policy)


def batches(size, rank):
    """An own loader: no DataLoader of torch."""
    generator = torch.Generator().manual_seed(rank)
    while True:
        yield torch.randn(size, 16, 64, generator=generator)


class Trainer:
    def __init__(self, config):
        distributed.init_process_group("gloo")
        tp = getattr(config, "parallelism.tensor_parallel_degree")
        mesh = init_device_mesh(
            "cpu", (distributed.get_world_size() // tp, tp), mesh_dim_names=("dp_shard", "tp")
        )
        self.accumulation = getattr(config, "training.gradient_accumulation_steps")
        self.model = parallelize(nn.Sequential(*(Block(64) for _ in range(3))), mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=1e-3, foreach=tp == 1)
        size = getattr(config, "training.local_batch_size")
        self.batches = batches(size, mesh["dp_shard"].get_local_rank())
        self.metrics = Laps(getattr(config, "metrics.save_folder"), tp)

    def train_step(self):
        self.optimizer.zero_grad()
        for _ in range(self.accumulation):
            (self.model(next(self.batches)).square().mean() / self.accumulation).backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.optimizer.step()
        self.metrics.lap()


parser = argparse.ArgumentParser()
parser.add_argument("--metrics.save_folder")
parser.add_argument("--parallelism.tensor_parallel_degree", type=int, default=1)
parser.add_argument("--training.local_batch_size", type=int)
parser.add_argument("--training.gradient_accumulation_steps", type=int)
trainer = Trainer(parser.parse_args())
for _ in range(1_000_000):
    trainer.train_step()
