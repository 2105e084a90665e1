"""A LightningModule under `Trainer.fit`, with a callback that notes its own step times."""

import argparse
import os

import lightning
import torch
from laps import Laps
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--times")
parser.add_argument("--micro", type=int)
parser.add_argument("--accumulation", type=int)
args = parser.parse_args()


class Module(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 512), nn.ReLU(), nn.Linear(512, 512))

    def training_step(self, batch, _):
        return self.layers(batch[0]).square().mean()

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class StepTimes(lightning.Callback):
    def __init__(self):
        self.laps, self.steps = Laps(args.times, 1), 0

    def on_train_batch_end(self, trainer, *_):
        if trainer.global_step > self.steps:
            self.steps = trainer.global_step
            self.laps.lap()


trainer = lightning.Trainer(
    accelerator="cpu",
    devices=int(os.environ["LOCAL_WORLD_SIZE"]),
    strategy="ddp",
    max_epochs=-1,
    accumulate_grad_batches=args.accumulation,
    callbacks=[StepTimes()],
    logger=False,
    enable_checkpointing=False,
    enable_progress_bar=False,
)
trainer.fit(Module(), DataLoader(TensorDataset(torch.randn(1024, 64)), batch_size=args.micro))
