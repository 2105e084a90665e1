"""ZeRO of DeepSpeed, in the style of its getting-started page."""

import argparse

import deepspeed
import torch
from laps import Laps
from torch import nn
from torch.utils.data import TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--times")
parser.add_argument("--stage", type=int)
parser.add_argument("--micro", type=int)
parser.add_argument("--accumulation", type=int)
args = parser.parse_args()
deepspeed.init_distributed(dist_backend="gloo")
torch.manual_seed(0)
model = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512), nn.Linear(512, 1))
engine, _, loader, _ = deepspeed.initialize(
    model=model,
    training_data=TensorDataset(torch.randn(1024, 64)),
    config={
        "train_micro_batch_size_per_gpu": args.micro,
        "gradient_accumulation_steps": args.accumulation,
        "zero_optimization": {"stage": args.stage},
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    },
)
laps = Laps(args.times, args.stage)
while True:
    for (inputs,) in loader:
        engine.backward(engine(inputs.to(engine.device)).square().mean())
        is_step = engine.is_gradient_accumulation_boundary()
        engine.step()
        if is_step:
            laps.lap()
