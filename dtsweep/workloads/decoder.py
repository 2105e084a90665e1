"""The decoder that `Gpt` trains.

Imported when it is built, since a plan must not wait for torch.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class Block(nn.Module):
    """Attention and MLP, each behind a norm and added to what went in."""

    def __init__(self, *, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.attention_norm = nn.LayerNorm(width)
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def attend(self, hidden: Tensor) -> Tensor:
        """Mix (samples, tokens, width) over the tokens up to each."""
        parts: Tensor = self.attention_in(hidden).unflatten(-1, (3, self.heads, -1))
        query, key, value = parts.transpose(1, 3).unbind(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True)
        out: Tensor = self.attention_out(mixed.transpose(1, 2).flatten(2))
        return out

    def forward(self, hidden: Tensor) -> Tensor:
        """Give (samples, tokens, width) for the same."""
        hidden = hidden + self.attend(self.attention_norm(hidden))
        mixed: Tensor = self.mlp(self.mlp_norm(hidden))
        return hidden + mixed


class Decoder(nn.Module):
    """A pre-norm decoder with learned positions; its output layer is not tied to the embedding."""

    def __init__(
        self, *, layers: int, width: int, sequence: int, heads: int, vocabulary: int
    ) -> None:
        super().__init__()
        self.embedding = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.empty(sequence, width))
        self.blocks = nn.Sequential(*(Block(width=width, heads=heads) for _ in range(layers)))
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary, bias=False)
        for name, parameter in self.named_parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("bias"):
                nn.init.zeros_(parameter)

    def forward(self, tokens: Tensor) -> Tensor:
        """Give scores (samples, sequence, vocabulary) for tokens (samples, sequence)."""
        hidden = self.embedding(tokens) + self.positions
        scores: Tensor = self.output(self.norm(self.blocks(hidden)))
        return scores
