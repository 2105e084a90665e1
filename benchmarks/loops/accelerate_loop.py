"""A regression in the style of Accelerate's documentation: prepare, accumulate, backward."""

# mypy: ignore-errors

import argparse

import torch
from accelerate import Accelerator
from accelerate.utils import set_seed
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--per_device_train_batch_size", type=int, default=32)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=1)
    parser.add_argument("--max_train_steps", type=int, default=1_000_000)
    parser.add_argument("--learning_rate", type=float, default=1e-3)
    parser.add_argument("--cpu", action="store_true")
    args = parser.parse_args()

    accelerator = Accelerator(
        cpu=args.cpu, gradient_accumulation_steps=args.gradient_accumulation_steps
    )
    set_seed(0)
    inputs = torch.randn(8192, 256)
    dataset = TensorDataset(inputs, inputs.square().mean(dim=1, keepdim=True))
    train_dataloader = DataLoader(
        dataset, batch_size=args.per_device_train_batch_size, shuffle=True, drop_last=True
    )
    model = nn.Sequential(
        nn.Linear(256, 768), nn.ReLU(), nn.Linear(768, 768), nn.ReLU(), nn.Linear(768, 1)
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.learning_rate)
    lr_scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, 10_000)
    model, optimizer, train_dataloader, lr_scheduler = accelerator.prepare(
        model, optimizer, train_dataloader, lr_scheduler
    )

    completed_steps = 0
    while completed_steps < args.max_train_steps:
        for x, y in train_dataloader:
            with accelerator.accumulate(model):
                loss = nn.functional.mse_loss(model(x), y)
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                lr_scheduler.step()
                optimizer.zero_grad()
            completed_steps += accelerator.sync_gradients
            if completed_steps >= args.max_train_steps:
                break
    accelerator.end_training()


if __name__ == "__main__":
    main()
