"""Blocks of a model: the units that a sharding mode gathers, computes and releases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from torch import nn


def blocks_of(workload: Any, model: nn.Module) -> list[nn.Module]:
    """Blocks of a model: the workload's own, else its repeated modules; none shares a parameter.

    Repeated modules are the outermost ones made of others that have siblings of their class; in a
    model without such, its layers. Tied parameters must be gathered together: modules that have one
    in common with the rest are left to the model, and blocks are looked for inside them.

    Args:
        workload: may have `blocks(model)`, which gives modules of the model, none inside another.
        model: freshly built.

    Raises:
        ValueError: `blocks` gave something else.
    """
    blocks_method = getattr(workload, "blocks", None)
    if not callable(blocks_method):
        uses = _uses(model)
        found = _siblings(model, uses, made_of_others=True)
        # Composite modules that all share a parameter leave no block: their layers are too small.
        if found or _siblings(model, None, made_of_others=True):
            return found
        return _siblings(model, uses, made_of_others=False)
    blocks = list(blocks_method(model))
    parts = set(model.modules()) - {model}
    inside = {
        part
        for block in blocks
        if isinstance(block, nn.Module)
        for part in block.modules()
        if part is not block
    }
    if not all(isinstance(block, nn.Module) and block in parts - inside for block in blocks):
        name = type(workload).__name__
        raise ValueError(
            f"{name}.blocks(model) must give modules inside the model, none inside another"
        )
    uses = _uses(model)
    return [block for block in blocks if _has_own_parameters(block, uses)]


def has_repeated_modules(model: nn.Module) -> bool:
    """True if a model has modules next to others of their class, which could be blocks."""
    return bool(
        _siblings(model, None, made_of_others=True) or _siblings(model, None, made_of_others=False)
    )


def _has_own_parameters(block: nn.Module, uses: Counter[int]) -> bool:
    return all(uses[parameter] == count for parameter, count in _uses(block).items())


def _uses(module: nn.Module) -> Counter[int]:
    """Count the places of a module in which each parameter is, by its identity."""
    return Counter(
        id(parameter) for _, parameter in module.named_parameters(remove_duplicate=False)
    )


WHOLE = "the whole model"
"""Name of the units of a model without blocks."""


def described(blocks: Sequence[nn.Module]) -> str:
    """Blocks in words: a count for each class.

    >>> described([nn.Linear(1, 1), nn.Linear(1, 1), nn.Bilinear(1, 1, 1)])
    '2 Linear, 1 Bilinear'
    """
    counts = Counter(type(block).__name__ for block in blocks)
    return ", ".join(f"{count} {name}" for name, count in counts.items()) or WHOLE


def _siblings(
    module: nn.Module, uses: Counter[int] | None, *, made_of_others: bool
) -> list[nn.Module]:
    """Find the outermost modules with siblings of their class and no shared parameter.

    Those that share a parameter may have such modules inside.

    Args:
        module: in which.
        uses: places of each parameter in the whole model; None: shared ones don't matter.
        made_of_others: composite modules; else layers.
    """
    children = _with_parameters(module)
    counts = Counter(
        type(child) for child in children if _can_be(child, made_of_others=made_of_others)
    )
    blocks = []
    for child in children:
        is_own = uses is None or _has_own_parameters(child, uses)
        if counts[type(child)] > 1 and is_own:
            blocks.append(child)
        else:
            blocks += _siblings(child, uses, made_of_others=made_of_others)
    return blocks


def _with_parameters(module: nn.Module) -> list[nn.Module]:
    return [child for child in module.children() if any(True for _ in child.parameters())]


def _can_be(module: nn.Module, *, made_of_others: bool) -> bool:
    if isinstance(module, (nn.ModuleList, nn.ModuleDict)):
        return False  # never called itself
    return any(True for _ in module.children()) == made_of_others
