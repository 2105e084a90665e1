"""FSDP2 by Accelerate: a plugin of version 2 in place of a configuration file."""

import argparse

import torch
from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
from laps import Laps
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--times")
parser.add_argument("--micro", type=int)
parser.add_argument("--accumulation", type=int)
args = parser.parse_args()
plugin = FullyShardedDataParallelPlugin(
    fsdp_version=2, auto_wrap_policy="size_based_wrap", min_num_params=1000
)
accelerator = Accelerator(cpu=True, gradient_accumulation_steps=args.accumulation)
# Accelerate takes a plugin of FSDP on accelerators alone; `fully_shard` runs on CPUs, too.
accelerator.state.distributed_type, accelerator.state.fsdp_plugin = DistributedType.FSDP, plugin
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 1))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(1024, 64)), batch_size=args.micro, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
assert type(model).__name__.startswith("FSDP"), type(model)
laps = Laps(args.times, 1)
while True:
    for (inputs,) in loader:
        with accelerator.accumulate(model):
            accelerator.backward(model(inputs).square().mean())
            optimizer.step()
            optimizer.zero_grad()
        if accelerator.sync_gradients:
            laps.lap()
