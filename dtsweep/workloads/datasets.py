"""Batches of any workload: by its own `batch`, or collated from the items of its `dataset`."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Mapping, MutableMapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch

MakeBatch = Callable[[range, "torch.device"], Any]
"""Gives the samples with these numbers on a device, as the `batch` of a workload."""


def batch_maker(workload: Any) -> MakeBatch:
    """Give the workload's `batch`, or without one a function that collates items of its dataset.

    Sample i is item i modulo the dataset's length.

    Raises:
        TypeError: `dataset()` has no length, or can't be asked for an item.
        ValueError: it is empty.
    """
    if callable(getattr(workload, "batch", None)):
        make: MakeBatch = workload.batch
        return make
    from torch.utils.data import default_collate

    dataset = workload.dataset()
    name, kind = type(workload).__name__, type(dataset).__name__
    if not (hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")):
        raise TypeError(
            f"{name}.dataset gave a {kind}, which is not a map-style dataset; give one with "
            "__len__ and __getitem__"
        )
    count = len(dataset)
    if not count:
        raise ValueError(f"{name}.dataset gave a {kind} without items; give one with items")
    own_collate = getattr(workload, "collate", None)
    collate = own_collate if callable(own_collate) else default_collate

    def from_items(samples: range, device: torch.device) -> Any:
        return to_device(collate([dataset[number % count] for number in samples]), device)

    return from_items


def to_device(batch: Any, device: torch.device) -> Any:
    """Copy a batch's tensors to a device, in mappings, sequences and dataclasses of any depth.

    From pinned memory to a GPU the host does not wait for the copy.
    """
    return _changed(batch, lambda movable: movable.to(device, non_blocking=True), "to")


def pinned(batch: Any) -> Any:
    """Copy those of a batch's tensors to pinned memory that are not in it yet."""

    def pin(movable: Any) -> Any:
        if movable.is_pinned():
            return movable
        return movable.pin_memory()

    return _changed(batch, pin, "is_pinned")


def _changed(batch: Any, change: Callable[[Any], Any], method: str) -> Any:
    """A batch with its tensors, and other objects that have this method, changed."""

    def inside(value: Any) -> Any:
        return _changed(value, change, method)

    if callable(getattr(batch, method, None)):
        return change(batch)
    if isinstance(batch, Mapping):
        changed = {key: inside(value) for key, value in batch.items()}
        if not isinstance(batch, MutableMapping):
            return changed
        again = copy.copy(batch)  # of its own class, such as one of Transformers
        again.update(changed)
        return again
    if isinstance(batch, list | tuple):
        make = getattr(batch, "_make", type(batch))  # of a named tuple
        return make(map(inside, batch))
    if dataclasses.is_dataclass(batch) and not isinstance(batch, type):
        record = copy.copy(batch)
        for field in dataclasses.fields(batch):
            # It may be frozen, and a field need not be an argument of it.
            object.__setattr__(record, field.name, inside(getattr(batch, field.name)))
        return record
    return batch
