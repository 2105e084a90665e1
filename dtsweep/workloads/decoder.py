"""The decoder that `Gpt` trains.

Imported when it is built, since a plan must not wait for torch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class _Embedding(nn.Module):
    """Tokens with learned positions."""

    def __init__(self, *, vocabulary: int, sequence: int, width: int) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocabulary, width)
        self.positions = nn.Parameter(torch.empty(sequence, width))

    def forward(self, tokens: Tensor) -> Tensor:
        """Give (samples, sequence, width) for tokens (samples, sequence)."""
        return self.from_place(tokens, 0)

    def from_place(self, tokens: Tensor, place: int) -> Tensor:
        """Give (samples, tokens, width) for tokens that stand at a place of the sequence."""
        embedded: Tensor = self.tokens(tokens)
        return embedded + self.positions[place : place + tokens.size(1)]


class Block(nn.Module):
    """Attention and MLP, each behind a norm and added to what went in."""

    def __init__(self, *, width: int, heads: int) -> None:
        super().__init__()
        self.head_size = width // heads
        self.attention_norm = nn.LayerNorm(width)
        # Query, key and value of a head are next to each other: workers can share the heads.
        self.attention_in = nn.Linear(width, 3 * width)
        self.attention_out = nn.Linear(width, width)
        self.mlp_norm = nn.LayerNorm(width)
        self.mlp_in = nn.Linear(width, 4 * width)
        self.mlp_out = nn.Linear(4 * width, width)

    def attend(self, hidden: Tensor, cache: list[Tensor] | None = None) -> Tensor:
        """Mix (samples, tokens, width) over the tokens up to each.

        Args:
            hidden: of the tokens; with a cache that has some, of one that follows those.
            cache: keys and values of earlier tokens, to which these are added.
        """
        heads: Tensor = self.attention_in(hidden).unflatten(-1, (-1, 3, self.head_size))
        query, key, value = heads.transpose(1, 2).unbind(3)
        if cache is not None:
            if cache:
                key, value = torch.cat([cache[0], key], 2), torch.cat([cache[1], value], 2)
            cache[:] = [key, value]
        # One token after others attends to all of them.
        is_causal = query.size(2) == key.size(2)
        mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=is_causal)
        out: Tensor = self.attention_out(mixed.transpose(1, 2).flatten(2))
        return out

    def forward(self, hidden: Tensor, cache: list[Tensor] | None = None) -> Tensor:
        """Give (samples, tokens, width) for the same; `cache` as in `attend`."""
        hidden = hidden + self.attend(self.attention_norm(hidden), cache)
        mixed: Tensor = self.mlp_out(functional.gelu(self.mlp_in(self.mlp_norm(hidden))))
        return hidden + mixed


class _Head(nn.Module):
    """A norm, and an output layer that is not tied to the embedding."""

    def __init__(self, *, width: int, vocabulary: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.output = nn.Linear(width, vocabulary, bias=False)

    def forward(self, hidden: Tensor) -> Tensor:
        """Give scores (samples, tokens, vocabulary) for (samples, tokens, width)."""
        scores: Tensor = self.output(self.norm(hidden))
        return scores


def make_decoder(
    *, layers: int, width: int, sequence: int, heads: int, vocabulary: int
) -> nn.Sequential:
    """Make a pre-norm decoder with learned positions: embedding, blocks and head, in a row."""
    blocks = [Block(width=width, heads=heads) for _ in range(layers)]
    embedding = _Embedding(vocabulary=vocabulary, sequence=sequence, width=width)
    decoder = nn.Sequential(embedding, *blocks, _Head(width=width, vocabulary=vocabulary))
    for name, parameter in decoder.named_parameters():
        if parameter.dim() == 2:
            nn.init.normal_(parameter, std=0.02)
        elif name.endswith("bias"):
            nn.init.zeros_(parameter)
    return decoder


def generate(decoder: Any, prompt: Tensor, new_tokens: int) -> Iterator[Tensor]:
    """Yield the likeliest next tokens, one after the other.

    Args:
        decoder: of `make_decoder`.
        prompt: tokens (samples, tokens); with the new ones they fit into its sequence.
        new_tokens: how many follow.

    Yields:
        (samples,) tokens.
    """
    embedding, *blocks, head = decoder
    caches: list[list[Tensor]] = [[] for _ in blocks]
    tokens, place = prompt, 0
    for _ in range(new_tokens):
        hidden = embedding.from_place(tokens, place)
        for block, cache in zip(blocks, caches, strict=True):
            hidden = block(hidden, cache)
        place += tokens.size(1)
        tokens = head(hidden[:, -1:]).argmax(-1)
        yield tokens[:, 0]


def parallel_plan(decoder: nn.Module, *, shares_tokens: bool) -> dict[str, Any]:
    """Styles of torch's `parallelize_module` by module: each worker has a share of the heads.

    Args:
        decoder: of `make_decoder`.
        shares_tokens: True if each worker has a share of the tokens between the layers.
    """
    from torch.distributed.tensor import Replicate, Shard
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        PrepareModuleInput,
        RowwiseParallel,
        SequenceParallel,
    )

    whole = Replicate()
    between = Shard(1) if shares_tokens else whole
    columns = ColwiseParallel(input_layouts=between)
    rows = RowwiseParallel(output_layouts=between)
    styles: dict[str, Any] = {
        "attention_in": columns,
        "mlp_in": columns,
        "attention_out": rows,
        "mlp_out": rows,
        "output": ColwiseParallel(input_layouts=between, output_layouts=whole),
    }
    plan: dict[str, Any] = {}
    if shares_tokens:
        styles |= dict.fromkeys(("attention_norm", "mlp_norm", "norm"), SequenceParallel())
        # The first block takes its share of the tokens.
        plan["1"] = PrepareModuleInput(
            input_layouts=whole, desired_input_layouts=between, use_local_output=True
        )
    modules = [name for name, _ in decoder.named_modules()]
    ends = {name: name.rpartition(".")[2] for name in modules}
    return plan | {name: styles[end] for name, end in ends.items() if end in styles}
