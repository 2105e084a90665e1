"""Operators for which a GPU's host waits, counted without a GPU.

On the `meta` device no tensor has values, as on a GPU whose work is not done yet.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

_WAITING = """
    _local_scalar_dense _unique _unique2 bincount equal is_nonzero item linalg_cholesky linalg_eigh
    linalg_inv linalg_solve linalg_svd masked_select nonzero unique_consecutive unique_dim
"""
WAITING = frozenset(_WAITING.split())
"""Operators of aten whose results, or their sizes, the host needs."""

INDEXING = frozenset({"index", "index_put", "index_put_"})
"""Operators that call `nonzero` where an index is a mask."""

COPYING = frozenset({"_to_copy", "copy_"})
"""Operators that wait where a copy goes from one device to another, and is not `non_blocking`."""


class HostWaits(TorchDispatchMode):
    """Counts, by name, the operators inside for which a GPU's host waits."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(
        self,
        func: Any,
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        named = dict(kwargs or {})
        name = func.overloadpacket.__name__
        is_mask = any(leaf.dtype in (torch.bool, torch.uint8) for leaf in _tensors(args[1:2]))
        if name in WAITING or (name in INDEXING and is_mask):
            self.counts[name] += 1
        if name == "repeat_interleave" and named.get("output_size") is None:
            self.counts[name] += 1
        if name in COPYING and _changes_device(args, named):
            self.counts[name] += 1
        return func(*args, **named)


def _tensors(values: Any) -> Iterator[Tensor]:
    return (leaf for leaf in tree_leaves(values) if isinstance(leaf, Tensor))


def _changes_device(args: Sequence[Any], named: Mapping[str, Any]) -> bool:
    devices = {tensor.device for tensor in _tensors(args)}
    if named.get("device") is not None:
        devices.add(torch.device(named["device"]))
    return len(devices) > 1 and not named.get("non_blocking", False)


def waits_of(work: Callable[[], Any]) -> dict[str, int]:
    """Operators for which the host waits in some work."""
    with HostWaits() as waits:
        work()
    return dict(waits.counts)
