"""Batches that a training loop takes from its data loaders: their time and their samples."""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sized
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch.utils.data import DataLoader, IterableDataset
from torch.utils.data.dataloader import _BaseDataLoaderIter

from dtsweep.sweep.values import Scalar
from dtsweep.worker.batch_checks import digest_of, tensors_in

_DISPATCHER = "DataLoaderDispatcher"
"""Loader of Accelerate that is not a `DataLoader`: one rank takes batches from one for all."""


_Key = tuple[int, int | None]
"""Loaders that count together: identity of the dataset, and samples of a batch."""

_ASKED = "_dtsweep_asked"
"""Attribute of a loader's iterator: indices of each batch that it has asked for, in order."""

_OWN_BATCHES = "the dataset makes batches of its own (batch_size=None)"
_NOT_BATCH_SIZE = "the dataset is iterable, and no dimension of a batch is its batch_size of {}"
"""Reasons why a batch is not counted."""


@dataclass
class LoaderCount:
    """Batches of one data loader."""

    sizes: list[int | None] = field(default_factory=list)
    """Samples of each batch; None where nothing proves their number."""

    reason: str | None = None
    """Reason for such a batch."""

    ends: list[int] = field(default_factory=list)
    """Batches so far at the end of each step."""


class LoaderWatch:
    """Watches the iterators of all data loaders of this process."""

    def __init__(
        self, mark: Callable[[str], None], settings: Mapping[str, Scalar] = MappingProxyType({})
    ) -> None:
        """Call a function with `loop` when a batch is asked for, with `data` when it is there.

        Args:
            mark: the function.
            settings: arguments that all `DataLoader`s get in place of the loop's, by name; None
                leaves the loop's.
        """
        self._mark = mark
        self._settings = {name: value for name, value in settings.items() if value is not None}
        self._taken: set[str] = set()
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
        signature = inspect.signature(make)
        next_index = _BaseDataLoaderIter._next_index

        @functools.wraps(make)  # Lightning reads its parameters
        def with_dispatcher(loader: DataLoader[Any], *args: Any, **kwargs: Any) -> None:
            # The loop may have imported Accelerate just now.
            dispatcher = getattr(sys.modules.get("accelerate.data_loader"), _DISPATCHER, None)
            if dispatcher is not None and dispatcher not in kinds:
                kinds.append(dispatcher)
                before.append(dispatcher.__iter__)
                dispatcher.__iter__ = self._watched(dispatcher.__iter__)
            if not self._settings:
                make(loader, *args, **kwargs)
                return
            bound = signature.bind(loader, *args, **kwargs)
            bound.arguments |= _fitting(self._settings, bound.arguments)
            make(*bound.args, **bound.kwargs)

        DataLoader.__init__ = with_dispatcher  # type: ignore[method-assign,assignment]  # given back
        DataLoader.__iter__ = self._watched(DataLoader.__iter__)  # type: ignore[method-assign]
        _BaseDataLoaderIter._next_index = _noting(next_index)  # type: ignore[method-assign]
        try:
            yield
        finally:
            _BaseDataLoaderIter._next_index = next_index  # type: ignore[method-assign]  # as it was
            DataLoader.__init__ = make  # type: ignore[method-assign]  # as it was
            for kind, make_iterator in zip(kinds, before, strict=True):
                kind.__iter__ = make_iterator

    @property
    def untaken(self) -> list[str]:
        """Settings that no loader has from which the loop takes batches with gradients on."""
        return [name for name in self._settings if name not in self._taken]

    def restart(self) -> None:
        """Count from now on."""
        self._counts.clear()
        self._datasets.clear()

    def counts(self) -> list[LoaderCount]:
        """Loaders that gave a batch between the restart and now."""
        return [
            replace(count, sizes=[*count.sizes], ends=[*count.ends])
            for count in self._counts.values()
        ]

    def end_step(self) -> None:
        """Note that a step of the loop has ended."""
        for count in self._counts.values():
            count.ends.append(len(count.sizes))

    def begin_digest(self) -> None:
        """Note the bytes of all batches from now on."""
        self._digest = hashlib.sha256()

    def digest(self) -> str | None:
        """Digest of the batches since `begin_digest`, which ends here; None without any."""
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
            if torch.is_grad_enabled():
                self._taken.update(
                    name
                    for name, value in self._settings.items()
                    if getattr(loader, name, None) == value
                )
            # One whose workers persist is used again, perhaps in the middle of an epoch.
            if getattr(loader, "_iterator", None) is not None:
                vars(loader._iterator).pop(_ASKED, None)
            return _WatchedIterator(self, key, make_iterator(loader), _Sizes(loader))

        return watched

    def take(self, loader: _Key, iterator: Iterator[Any], sizes: _Sizes) -> Any:
        """Take a batch of a loader; what that takes from another loader is in it already."""
        if getattr(self._inside, "loader", False):
            return next(iterator)
        # A thread that loads ahead takes no time of the loop.
        takes_time = threading.get_ident() == self._thread
        if takes_time:
            self._mark("loop")
        self._inside.loader = True
        try:
            batch = next(iterator)
        finally:
            self._inside.loader = False
            if takes_time:
                self._mark("data")
        indices = sizes.asked_of(iterator)
        size = sizes.of(batch, indices)
        # Without gradients it is a batch of an evaluation.
        if torch.is_grad_enabled():
            count = self._counts.setdefault(loader, LoaderCount())
            count.sizes.append(size)
            if size is None:
                count.reason = sizes.reason
            if self._digest is not None:
                # Other samples may be equal, as in a data set that is made of constants.
                self._digest.update(repr(indices).encode())
                self._digest.update(digest_of(batch))
        return batch


_OF_PROCESSES = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
"""Arguments of `DataLoader` that it refuses where it has no processes."""


def _fitting(settings: Mapping[str, Scalar], given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments of a `DataLoader` that replace those given, without those that it would refuse.

    >>> _fitting({"num_workers": 0}, {"num_workers": 2, "timeout": 9, "shuffle": True})
    {'num_workers': 0, 'timeout': 0}
    >>> _fitting({"prefetch_factor": 4}, {"shuffle": True})
    {}
    """
    changes = dict(settings)
    if changes.get("num_workers", given.get("num_workers", 0)):
        return changes
    changes.pop("prefetch_factor", None)
    if "num_workers" in changes:
        defaults = inspect.signature(DataLoader).parameters
        changes |= {name: defaults[name].default for name in _OF_PROCESSES if name in given}
    return changes


class _WatchedIterator:
    """An iterator of a loader, with the attributes of the loader's own one."""

    def __init__(
        self, watch: LoaderWatch, loader: _Key, iterator: Iterator[Any], sizes: _Sizes
    ) -> None:
        self._watch, self._loader, self._iterator, self._sizes = watch, loader, iterator, sizes

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return self._watch.take(self._loader, self._iterator, self._sizes)

    def __len__(self) -> int:
        return len(self._iterator)  # type: ignore[arg-type]  # a loader's has a length

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)


def _noting(next_index: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`_next_index` of a loader's iterator, which notes the samples that it asks for."""

    @functools.wraps(next_index)
    def noting(iterator: Any) -> Any:
        index = next_index(iterator)
        asked = None
        # Without collation a sampler may give lists, too: those of a batch.
        if isinstance(index, list) or (iterator._auto_collation and isinstance(index, Sized)):
            asked = index
        vars(iterator).setdefault(_ASKED, deque()).append(asked)
        return index

    return noting


class _Sizes:
    """Numbers of samples of the batches of one loader, in one epoch."""

    def __init__(self, loader: Any) -> None:
        self._batch_size = getattr(loader, "batch_size", None)
        self._is_iterable = isinstance(getattr(loader, "dataset", None), IterableDataset)
        self._is_dispatched = not isinstance(loader, DataLoader)
        self._place: int | None = None
        """Index in `_dimensions` of the one that is the batch size."""

    @property
    def reason(self) -> str:
        """Reason why a batch is not counted."""
        if self._batch_size is None:
            return _OWN_BATCHES
        return _NOT_BATCH_SIZE.format(self._batch_size)

    def asked_of(self, iterator: Iterator[Any]) -> Sized | None:
        """Indices of the batch that a loader's iterator has just given; None if it has none."""
        asked = getattr(iterator, _ASKED, None)
        if not asked:
            return None
        indices: Sized | None = asked.popleft()
        if self._is_iterable:
            return None
        return indices

    def of(self, batch: Any, indices: Sized | None) -> int | None:
        """Samples of a batch: those that the loader asked for; None if nothing proves them."""
        if self._is_dispatched:
            # It has cut batches of all ranks along their first dimension.
            return _dimensions(batch)[0]
        if self._is_iterable:
            return self._of_iterable(batch)
        if indices is None:
            return None
        return len(indices)

    def _of_iterable(self, batch: Any) -> int | None:
        """The dimension that is `batch_size`, or was in an earlier batch of this epoch."""
        dimensions = _dimensions(batch)
        if self._batch_size is None:
            return None
        if self._batch_size in dimensions:
            self._place = dimensions.index(self._batch_size)
        if self._place is None:
            return None
        size = dimensions[self._place]
        # The last one of an epoch may be smaller.
        if size is None or size > self._batch_size:
            return None
        return size


def _dimensions(batch: Any) -> tuple[int | None, int | None]:
    """First dimension of all tensors in a batch, and length of a list; None where it has none.

    >>> _dimensions([torch.zeros(8, 128), torch.zeros(8)])
    (8, 2)
    >>> _dimensions({"boxes": torch.zeros(93, 6), "pictures": torch.zeros(16, 3, 8, 8)})
    (None, None)
    """
    sizes = {tensor.shape[0] for tensor in tensors_in(batch) if tensor.ndim}
    first = sizes.pop() if len(sizes) == 1 else None
    length = len(batch) if isinstance(batch, (list, tuple)) else None
    return first, length


_MANY_BATCHES = 40
"""Batches of a window among which two that were loaded ahead are at most 5 %."""


_MOST_STEPS = 0.6
"""Share of the steps with as many batches, from which on these are a usual step's."""


@dataclass(frozen=True, kw_only=True)
class _SampleCount:
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
    return int(usual) if steps > _MOST_STEPS * len(count.ends) else mean


def samples_per_step(counts: list[LoaderCount], *, steps: int, ahead: int = 2) -> _SampleCount:
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
        return _SampleCount(reason=f"no DataLoader gave a batch in each step; {_GIVE}")
    if len(training) > 1:
        return _SampleCount(reason=f"several DataLoaders gave batches in each step; {_GIVE}")
    sizes = training[0].sizes
    known = [size for size in sizes if size is not None]
    if len(known) < len(sizes):
        return _SampleCount(reason=f"{training[0].reason}; {_GIVE}")
    passes = round(len(sizes) / steps)
    usual = Counter(known).most_common(1)[0][0] * _usual_passes(training[0], passes)
    if abs(len(sizes) - passes * steps) > ahead:
        reason = f"{len(sizes)} batches in {steps} steps are not a whole number of batches a step"
        if len(sizes) < _MANY_BATCHES:
            return _SampleCount(reason=f"{reason}; {_GIVE}")
        # Such as where an epoch ends with fewer passes.
        return _SampleCount(
            mean=sum(known) / steps, usual=usual, reason=f"{reason}: rates are of their mean"
        )
    varies = None
    if len(set(known)) > 1:
        varies = f"batches have from {min(known)} to {max(known)} samples: rates are of their mean"
    return _SampleCount(mean=sum(known) / len(known) * passes, usual=usual, reason=varies)


_GIVE = "give samples_per_step=…"
