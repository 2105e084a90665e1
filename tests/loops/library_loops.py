"""Training loops as the documentation of their libraries has them, with a small model."""

from __future__ import annotations

import os
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset


class Sequences(Dataset[dict[str, torch.Tensor]]):
    """Tokens with labels, made on the spot."""

    def __init__(self, count: int = 96) -> None:
        self.tokens = torch.randint(0, 64, (count, 8), generator=torch.Generator().manual_seed(0))

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        return {"input_ids": self.tokens[index], "labels": self.tokens[index, 0] % 2}


class Endless(IterableDataset[torch.Tensor]):
    """Samples without end, which Accelerate reads on one rank for all."""

    def __iter__(self) -> Any:
        while True:
            yield torch.ones(4)


def make_trainer(point: Any) -> Any:
    from transformers import BertConfig, BertForSequenceClassification, Trainer, TrainingArguments

    config = BertConfig(
        vocab_size=64,
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=8,
    )
    return Trainer(
        model=BertForSequenceClassification(config),
        args=TrainingArguments(
            per_device_train_batch_size=point.micro_batch,
            gradient_accumulation_steps=point.accumulation,
            num_train_epochs=1,
            save_steps=3,
            use_cpu=True,
            report_to=[],
        ),
        train_dataset=Sequences(),
    )


def make_lightning(point: Any) -> Any:
    import lightning

    class Module(lightning.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(4, 1)

        def training_step(self, batch: Any, _: int) -> torch.Tensor:
            return self.layer(batch[0]).square().mean()

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return torch.optim.AdamW(self.parameters(), lr=1e-3)

    trainer = lightning.Trainer(
        accelerator="cpu",
        devices=int(os.environ["LOCAL_WORLD_SIZE"]),
        strategy="ddp",
        max_epochs=1,
        accumulate_grad_batches=point.accumulation,
        logger=False,
        enable_progress_bar=False,
    )
    data = TensorDataset(torch.randn(96, 4))
    return trainer, Module(), DataLoader(data, batch_size=point.micro_batch)


def train_with_accelerate(point: Any, accelerator: Any) -> None:
    data = TensorDataset(torch.randn(96, 4))
    _train(accelerator, DataLoader(data, batch_size=point.micro_batch, shuffle=True))


def train_with_dispatcher(point: Any, accelerator: Any) -> None:
    _train(accelerator, DataLoader(Endless(), batch_size=point.micro_batch))


def _train(accelerator: Any, loader: DataLoader[Any]) -> None:
    model = nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for _ in range(1000):
        for batch in loader:
            inputs = batch if isinstance(batch, torch.Tensor) else batch[0]
            with accelerator.accumulate(model):
                loss = functional.mse_loss(model(inputs), torch.zeros(len(inputs), 1))
                accelerator.backward(loss)
                optimizer.step()
                optimizer.zero_grad()
