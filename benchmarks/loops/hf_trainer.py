"""A small BERT classifier trained by Hugging Face's Trainer, in the style of run_glue.py."""

# mypy: ignore-errors

from dataclasses import dataclass

import torch
from torch.utils.data import Dataset
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    HfArgumentParser,
    Trainer,
    TrainingArguments,
    set_seed,
)


@dataclass
class DataTrainingArguments:
    """Data of the training."""

    max_seq_length: int = 32
    max_train_samples: int = 4096


class Sentences(Dataset[dict[str, torch.Tensor]]):
    """Random tokens and labels."""

    def __init__(self, *, samples: int, length: int) -> None:
        self.tokens = torch.randint(1000, (samples, length))
        self.labels = torch.randint(2, (samples,))

    def __len__(self) -> int:
        """Samples."""
        return len(self.labels)

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        """One sample."""
        return {
            "input_ids": self.tokens[index],
            "attention_mask": torch.ones_like(self.tokens[index]),
            "labels": self.labels[index],
        }


def main() -> None:
    """Train from random weights."""
    parser = HfArgumentParser((DataTrainingArguments, TrainingArguments))
    data_args, training_args = parser.parse_args_into_dataclasses()
    set_seed(training_args.seed)
    config = BertConfig(
        vocab_size=1000,
        hidden_size=128,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=256,
    )
    train_dataset = Sentences(samples=data_args.max_train_samples, length=data_args.max_seq_length)
    trainer = Trainer(
        model=BertForSequenceClassification(config),
        args=training_args,
        train_dataset=train_dataset,
    )
    trainer.train()


if __name__ == "__main__":
    main()
