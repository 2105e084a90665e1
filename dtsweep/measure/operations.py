"""The operations of a pass and of an update, noted as they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from dtsweep.measure.work import Noted, Numbers

_MOVES_NOTHING = frozenset(
    f"aten::{name}"
    for name in ("empty", "empty_like", "empty_strided", "new_empty", "_unsafe_view", "lift_fresh")
)
"""Operations that only allocate or reinterpret memory, which torch does not list as views."""

_PICKS = frozenset(f"aten::{name}" for name in ("embedding", "index", "index_select", "gather"))
"""Operations that read no more of a tensor than they give."""

_EDGE = 4
"""Rows and columns of the sample parameter with which an optimizer's operations are counted."""


class OperationLog(TorchDispatchMode):
    """Notes the operations that run under it, those left out that move nothing."""

    def __init__(self, flops: Callable[[], int] = lambda: 0) -> None:
        """Take what tells how many FLOPs were counted so far."""
        super().__init__()  # type: ignore[no-untyped-call]  # has no types in torch
        self._flops = flops
        self.noted: list[Noted] = []
        self.scores: set[tuple[int, ...]] = set()
        """Scores of fused attention, which are never in memory: elements, and both lengths."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run an operation, and note it."""
        before = self._flops()
        result = func(*args, **(kwargs or {}))
        name = func.name().partition(".")[0]
        # `prim` are questions to a tensor, such as for its device.
        if not func.is_view and func.namespace != "prim" and name not in _MOVES_NOTHING:
            written = [leaf for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)]
            read = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
            moved = [
                t
                for t in written + (written if name in _PICKS else read)
                if _lengths(t) not in self.scores
            ]
            numels = tuple(tensor.numel() for tensor in moved)
            self.noted.append(Noted(self._flops() - before, moved_bytes(moved), numels))
        return result


class Attention(TorchFunctionMode):
    """Records the sizes of attention's scores, which torch's fused kernels do not expose."""

    def __init__(self, recorder: OperationLog) -> None:
        """Register a listener."""
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Run a function, and record the sizes of its scores where it is attention."""
        named = kwargs or {}
        if getattr(func, "__name__", "") == "scaled_dot_product_attention":
            tensors = dict(zip(("query", "key"), args, strict=False)) | named
            query = tensors["query"]
            key = tensors["key"]
            query_length = query.shape[-2]
            key_length = key.shape[-2]
            self._recorder.scores.add(
                (
                    query.numel() // query.shape[-1] * key_length,
                    min(query_length, key_length),
                    max(query_length, key_length),
                )
            )
        return func(*args, **named)


def _lengths(tensor: torch.Tensor) -> tuple[int, ...]:
    """Elements and the last two sizes, in whichever order."""
    return (tensor.numel(), *sorted(tensor.shape[-2:]))


def moved_bytes(tensors: Iterable[torch.Tensor]) -> int:
    """Bytes that an operation moves: those in memory of each tensor that it reads or writes.

    >>> moved_bytes([torch.zeros(10), torch.zeros(1).expand(10)])
    44
    """
    return sum(map(_bytes, tensors))


def _bytes(tensor: torch.Tensor) -> int:
    full_bytes = tensor.numel() * tensor.element_size()
    # A sparse tensor has no storage of its own; its numbers take at most that.
    if tensor.layout is not torch.strided:
        return full_bytes
    return min(full_bytes, tensor.untyped_storage().nbytes())


def update_operations(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer],
    sizes: Sequence[int],
    *,
    device: torch.device,
) -> tuple[Numbers, int]:
    """Count what an optimizer's update does, by its second step on one small parameter, and on two.

    Args:
        make: the optimizer of some parameters.
        sizes: elements of the parameters that are trained, in fp32.
        device: where it runs.

    Returns:
        (update operations × parameters,) bytes that each moves; and how many operations are
        launched: on a GPU one may update all parameters.
    """
    one, two = (_second_step(make, count, device) for count in (1, 2))
    tensors = np.array([noted.numels.count(_EDGE**2) for noted in one.noted], dtype=float)
    moved: Numbers = np.outer(np.array(sizes, dtype=float), 4 * tensors).ravel()
    of_each_more = len(two.noted) - len(one.noted)
    return moved, len(one.noted) + (len(sizes) - 1) * of_each_more


def _second_step(
    make: Callable[[list[nn.Parameter]], torch.optim.Optimizer], count: int, device: torch.device
) -> OperationLog:
    parameters = [nn.Parameter(torch.ones(_EDGE, _EDGE, device=device)) for _ in range(count)]
    optimizer = make(parameters)
    for parameter in parameters:
        parameter.grad = torch.ones_like(parameter)
    # The first step makes the optimizer's state.
    optimizer.step()
    recorder = OperationLog()
    with recorder:
        optimizer.step()
    return recorder
