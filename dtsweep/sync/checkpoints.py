"""Activation checkpointing of a model's blocks: the axis `checkpointing`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from dtsweep.sync.model_blocks import blocks_of

_NO_BLOCKS = (
    "checkpointing='blocks' found no block made of several layers in the model, so nothing would "
    "be saved; give the workload blocks(model), or leave checkpointing out"
)
"""Message where every activation would still be kept."""


def checkpoint_blocks(model: nn.Module, workload: Any) -> Sequence[nn.Module]:
    """Let each block keep its input alone, and compute again in backward what it needs.

    Names of modules and parameters stay as they are, and a deep copy of the model has checkpoints
    of its own. Random states are restored for what is computed again, so that dropout draws the
    same numbers.

    Args:
        model: freshly built, in place.
        workload: may name the blocks by `blocks(model)`.

    Returns:
        The blocks.

    Raises:
        ValueError: the model has none, or only single layers that the workload did not name.
    """
    blocks = blocks_of(workload, model)
    is_named = callable(getattr(workload, "blocks", None))
    if not blocks or not (is_named or any(list(block.children()) for block in blocks)):
        raise ValueError(_NO_BLOCKS)
    for block in blocks:
        # On the object: `deepcopy` binds the method to the copied block.
        block.forward = functools.partial(_checkpointed, block.forward)
    return blocks


def _checkpointed(forward: Callable[..., Any], *inputs: Any, **named: Any) -> Any:
    """Call a block's forward in a checkpoint.

    In a frame of its own, which `torch.compile` traces: it leaves alone what `checkpoint` itself
    calls.
    """
    return checkpoint(forward, *inputs, use_reentrant=False, **named)
