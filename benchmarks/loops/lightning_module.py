"""An autoencoder as a LightningModule, in the style of Lightning's introduction."""

# mypy: ignore-errors

import argparse
import os

import lightning as L  # noqa: N812  # as its documentation has it
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class LitAutoEncoder(L.LightningModule):
    """Encodes images, and decodes them again."""

    def __init__(self, *, width: int, lr: float) -> None:
        super().__init__()
        self.lr = lr
        self.encoder = nn.Sequential(nn.Linear(28 * 28, width), nn.ReLU(), nn.Linear(width, 16))
        self.decoder = nn.Sequential(nn.Linear(16, width), nn.ReLU(), nn.Linear(width, 28 * 28))

    def training_step(self, batch: list[torch.Tensor], batch_idx: int) -> torch.Tensor:  # noqa: ARG002
        """Return the loss of a batch."""
        (images,) = batch
        x = images.view(images.size(0), -1)
        loss = nn.functional.mse_loss(self.decoder(self.encoder(x)), x)
        self.log("train_loss", loss)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        """Return the optimizer."""
        return torch.optim.Adam(self.parameters(), lr=self.lr)


def main() -> None:
    """Train for some steps."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--accumulate-grad-batches", type=int, default=1)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--max-steps", type=int, default=1_000_000)
    args = parser.parse_args()

    L.seed_everything(0)
    images = TensorDataset(torch.rand(8192, 28, 28))
    train_loader = DataLoader(images, batch_size=args.batch_size, shuffle=True, drop_last=True)
    trainer = L.Trainer(
        accelerator="auto",
        devices=int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        strategy="ddp",
        max_epochs=-1,
        max_steps=args.max_steps,
        accumulate_grad_batches=args.accumulate_grad_batches,
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    )
    trainer.fit(LitAutoEncoder(width=args.width, lr=1e-3), train_loader)


if __name__ == "__main__":
    main()
