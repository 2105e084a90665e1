"""A small GPT in the style of nanoGPT's train.py: accumulation, autocast, no data loader."""

# mypy: ignore-errors

import argparse
import math
import os
from contextlib import nullcontext

import torch
import torch.nn.functional as F  # noqa: N812  # as PyTorch's own examples have it
from torch import nn
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel


class Block(nn.Module):
    """Attention and a feed-forward network."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.ln_1, self.ln_2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.c_attn, self.c_proj = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x with what this block adds."""
        samples, length, width = x.shape
        q, k, v = (
            part.view(samples, length, self.heads, -1).transpose(1, 2)
            for part in self.c_attn(self.ln_1(x)).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.c_proj(y.transpose(1, 2).reshape(samples, length, width))
        return x + self.mlp(self.ln_2(x))


class GPT(nn.Module):
    """Tokens to the loss of the next ones."""

    def __init__(self, *, vocabulary: int, width: int, layers: int, context: int) -> None:
        super().__init__()
        self.wte, self.wpe = nn.Embedding(vocabulary, width), nn.Embedding(context, width)
        self.h = nn.Sequential(*(Block(width, 4) for _ in range(layers)))
        self.ln_f = nn.LayerNorm(width)
        self.lm_head = nn.Linear(width, vocabulary, bias=False)
        self.wte.weight = self.lm_head.weight

    def forward(self, tokens: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """Return the mean loss."""
        x = self.wte(tokens) + self.wpe(torch.arange(tokens.shape[1], device=tokens.device))
        logits = self.lm_head(self.ln_f(self.h(x)))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def get_lr(it: int, *, learning_rate: float, warmup_iters: int, lr_decay_iters: int) -> float:
    """Warm-up, then a cosine."""
    if it < warmup_iters:
        return learning_rate * (it + 1) / (warmup_iters + 1)
    ratio = min(1.0, (it - warmup_iters) / (lr_decay_iters - warmup_iters))
    return learning_rate * (0.1 + 0.45 * (1.0 + math.cos(math.pi * ratio)))


def main() -> None:
    """Train for `max_iters` iterations."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch_size", type=int, default=4)
    parser.add_argument("--gradient_accumulation_steps", type=int, default=2, help="per worker")
    parser.add_argument("--block_size", type=int, default=64)
    parser.add_argument("--max_iters", type=int, default=1_000_000)
    parser.add_argument("--learning_rate", type=float, default=6e-4)
    parser.add_argument("--dtype", choices=["float32", "bfloat16", "float16"], default="bfloat16")
    config = parser.parse_args()

    ddp = int(os.environ.get("RANK", "-1")) != -1
    device = "cpu"
    if torch.cuda.is_available():
        device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}"
        torch.cuda.set_device(device)
    seed_offset = 0
    if ddp:
        init_process_group("nccl" if torch.cuda.is_available() else "gloo")
        seed_offset = int(os.environ["RANK"])
    torch.manual_seed(1337 + seed_offset)
    device_type = device.split(":", maxsplit=1)[0]
    ptdtype = getattr(torch, config.dtype)
    ctx = torch.amp.autocast(device_type, dtype=ptdtype) if config.dtype != "float32" else None

    data = torch.randint(512, (1_000_000,), dtype=torch.int16)

    def get_batch() -> tuple[torch.Tensor, torch.Tensor]:
        ix = torch.randint(len(data) - config.block_size, (config.batch_size,)).tolist()
        x = torch.stack([data[i : i + config.block_size].long() for i in ix])
        y = torch.stack([data[i + 1 : i + 1 + config.block_size].long() for i in ix])
        return x.to(device), y.to(device)

    model: nn.Module = GPT(vocabulary=512, width=128, layers=2, context=config.block_size)
    model = model.to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=config.learning_rate, betas=(0.9, 0.95))
    scaler = torch.amp.GradScaler(device_type, enabled=config.dtype == "float16")
    if ddp:
        model = DistributedDataParallel(model)

    x, y = get_batch()
    for it in range(config.max_iters):
        for group in optimizer.param_groups:
            group["lr"] = get_lr(
                it, learning_rate=config.learning_rate, warmup_iters=100, lr_decay_iters=10_000
            )
        for micro_step in range(config.gradient_accumulation_steps):
            if ddp:
                is_last = micro_step == config.gradient_accumulation_steps - 1
                model.require_backward_grad_sync = is_last
            with ctx or nullcontext():
                loss = model(x, y) / config.gradient_accumulation_steps
            x, y = get_batch()
            scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad(set_to_none=True)
    if ddp:
        destroy_process_group()


if __name__ == "__main__":
    main()
