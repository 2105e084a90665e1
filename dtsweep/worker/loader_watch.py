"""Batches that a training loop takes from its data loaders: their time and their samples."""

from __future__ import annotations

import functools
import hashlib
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader

from dtsweep.worker.batch_checks import digest_of

DISPATCHER = "DataLoaderDispatcher"
"""Loader of Accelerate that is not a `DataLoader`: one rank takes batches from one for all."""


_Key = tuple[int, int | None]
"""Loaders that count together: identity of the dataset, and samples of a batch."""


@dataclass
class LoaderCount:
    """Batches of one data loader."""

    sizes: list[int | None] = field(default_factory=list)
    """Samples of each batch; None where its first dimension is not known."""

    ends: list[int] = field(default_factory=list)
    """Batches so far at the end of each step."""


class LoaderWatch:
    """Watches the iterators of all data loaders of this process."""

    def __init__(self, mark: Callable[[str], None]) -> None:
        """Call a function with `loop` when a batch is asked for, with `data` when it is there."""
        self._mark = mark
        self._counts: dict[_Key, LoaderCount] = {}
        self._datasets: list[Any] = []
        self._inside = threading.local()
        self._thread = threading.get_ident()
        self._digest: Any = None

    @contextmanager
    def watched(self) -> Iterator[None]:
        """Watch the loaders that are iterated over in this context."""
        kinds: list[Any] = [DataLoader]
        before = [DataLoader.__iter__]
        make = DataLoader.__init__

        @functools.wraps(make)  # Lightning reads its parameters
        def with_dispatcher(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
            # The loop may have imported Accelerate just now.
            dispatcher = getattr(sys.modules.get("accelerate.data_loader"), DISPATCHER, None)
            if dispatcher is not None and dispatcher not in kinds:
                kinds.append(dispatcher)
                before.append(dispatcher.__iter__)
                dispatcher.__iter__ = self._watched(dispatcher.__iter__)
            make(loader, *args, **kwargs)

        DataLoader.__init__ = with_dispatcher  # type: ignore[method-assign,assignment]  # given back
        DataLoader.__iter__ = self._watched(DataLoader.__iter__)  # type: ignore[method-assign]
        try:
            yield
        finally:
            DataLoader.__init__ = make  # type: ignore[method-assign]  # as it was
            for kind, make_iterator in zip(kinds, before, strict=True):
                kind.__iter__ = make_iterator

    def restart(self) -> None:
        """Count from now on."""
        self._counts.clear()
        self._datasets.clear()

    def counts(self) -> list[LoaderCount]:
        """Loaders that gave a batch between the restart and now."""
        return [LoaderCount([*count.sizes], [*count.ends]) for count in self._counts.values()]

    def end_step(self) -> None:
        """Note that a step of the loop has ended."""
        for count in self._counts.values():
            count.ends.append(len(count.sizes))

    def begin_digest(self) -> None:
        """Note the bytes of all batches from now on."""
        self._digest = hashlib.sha256()

    def digest(self) -> str | None:
        """Digest of the batches since `begin_digest`, of which no more are noted; None if none."""
        digest, self._digest = self._digest, None
        if digest is None or digest.digest() == hashlib.sha256().digest():
            return None
        return str(digest.hexdigest())

    def _watched(self, make_iterator: Callable[[Any], Iterator[Any]]) -> Callable[..., Any]:
        @functools.wraps(make_iterator)
        def watched(loader: Any) -> Iterator[Any]:
            # A loop may make a new loader in each epoch: those of one dataset count together.
            dataset = getattr(loader, "dataset", loader)
            # Held, so that no other one gets its id.
            self._datasets.append(dataset)
            key = (id(dataset), getattr(loader, "batch_size", None))
            return _WatchedIterator(self, key, make_iterator(loader))

        return watched

    def take(self, loader: _Key, iterator: Iterator[Any]) -> Any:
        """Take a batch of a loader; what that takes from another loader is in it already."""
        if getattr(self._inside, "loader", False):
            return next(iterator)
        # A thread that loads ahead takes no time of the loop.
        mark = self._mark if threading.get_ident() == self._thread else _no_mark
        mark("loop")
        self._inside.loader = True
        try:
            batch = next(iterator)
        finally:
            self._inside.loader = False
            mark("data")
        # Without gradients it is a batch of an evaluation.
        if torch.is_grad_enabled():
            self._counts.setdefault(loader, LoaderCount()).sizes.append(samples_in(batch))
            if self._digest is not None:
                self._digest.update(digest_of(batch))
        return batch


def _no_mark(_: str) -> None:
    """Divide no step."""


class _WatchedIterator:
    """An iterator of a loader, with the attributes of the loader's own one."""

    def __init__(self, watch: LoaderWatch, loader: _Key, iterator: Iterator[Any]) -> None:
        self._watch, self._loader, self._iterator = watch, loader, iterator

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._watch.take(self._loader, self._iterator)

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]  # a loader's has a length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def samples_in(batch: Any) -> int | None:
    """Number of samples of a batch: the first dimension of the first tensor in it, or None.

    >>> samples_in({"input_ids": torch.zeros(8, 128), "labels": torch.zeros(8)})
    8
    """
    if isinstance(batch, torch.Tensor):
        return batch.shape[0] if batch.ndim else None
    parts: Any = ()
    if isinstance(batch, Mapping):
        parts = batch.values()
    elif isinstance(batch, (list, tuple)):
        parts = batch
    for part in parts:
        size = samples_in(part)
        if size is not None:
            return size
    return None


MANY_BATCHES = 40
"""Batches of a window among which two that were loaded ahead are at most 5 %."""


MOST_STEPS = 0.6
"""Share of the steps with as many batches, from which on these are a usual step's."""


@dataclass(frozen=True, kw_only=True)
class SampleCount:
    """Samples of an optimizer step on one rank."""

    mean: float | None = None
    """Over the window; None if unknown."""

    usual: int | None = None
    """Of a step whose batches have the most frequent size."""

    reason: str | None = None
    """Reason why the mean is unknown, or why it is not the same in each step."""


def _usual_passes(count: LoaderCount, mean: int) -> int:
    """Batches of most steps, if most have as many; an epoch may end with fewer.

    A loader that runs ahead gives now more and now fewer than a step needs: then it is the mean.
    """
    if not count.ends:
        return mean
    batches = Counter(np.diff(count.ends, prepend=0).tolist())
    usual, steps = batches.most_common(1)[0]
    return int(usual) if steps > MOST_STEPS * len(count.ends) else mean


def samples_per_step(counts: list[LoaderCount], *, steps: int, ahead: int = 2) -> SampleCount:
    """Count the samples of an optimizer step on one rank, from the batches of a window.

    Loaders may run ahead of the loop, so a few batches more or less than whole steps need are
    nothing.

    Args:
        counts: of the loaders in the window.
        steps: of the window.
        ahead: batches by which a loader may be ahead at its beginning or end.
    """
    # Of few steps no other number of batches a step may explain as much.
    ahead = min(ahead, (steps - 1) // 2)
    training = [count for count in counts if len(count.sizes) >= steps - ahead]
    if not training:
        return SampleCount(reason=f"no DataLoader gave a batch in each step; {_GIVE}")
    if len(training) > 1:
        return SampleCount(reason=f"several DataLoaders gave batches in each step; {_GIVE}")
    sizes = training[0].sizes
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return SampleCount(reason=f"batches have no first dimension to count; {_GIVE}")
    passes = round(len(sizes) / steps)
    usual = Counter(known).most_common(1)[0][0] * _usual_passes(training[0], passes)
    if abs(len(sizes) - passes * steps) > ahead:
        reason = f"{len(sizes)} batches in {steps} steps are not a whole number of batches a step"
        if len(sizes) < MANY_BATCHES:
            return SampleCount(reason=f"{reason}; {_GIVE}")
        # Such as where an epoch ends with fewer passes.
        return SampleCount(
            mean=sum(known) / steps, usual=usual, reason=f"{reason}: rates are of their mean"
        )
    varies = None
    if len(set(known)) > 1:
        varies = f"batches have from {min(known)} to {max(known)} samples: rates are of their mean"
    return SampleCount(mean=sum(known) / len(known) * passes, usual=usual, reason=varies)


_GIVE = "give samples_per_step=…"
