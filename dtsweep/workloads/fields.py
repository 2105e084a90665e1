"""Checks of a workload's fields that need no heavy import."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from dtsweep.errors import SweepError, nearest


def check_counts(workload: object, *names: str) -> None:
    """Refuse a field that is not a whole number from 1.

    Raises:
        SweepError: names the first such field and its value.
    """
    for name in names:
        value = getattr(workload, name)
        if type(value) is not int or value < 1:
            raise SweepError(
                f"{type(workload).__name__}({name}={value!r}): {name} is a whole number from 1"
            )


def check_new_tokens(workload: Any) -> None:
    """Refuse a number of new tokens that leaves none of a sample's as the prompt.

    Raises:
        SweepError: it is not from 0 to below `sequence`.
    """
    value, sequence = workload.new_tokens, workload.sequence
    if type(value) is not int or not 0 <= value < sequence:
        raise SweepError(
            f"{type(workload).__name__}(new_tokens={value!r}): a whole number from 0 to "
            f"{sequence - 1}, since prompt and new tokens make a sequence of {sequence}"
        )


def absolute_data(workload: object, data: object, *, names: Collection[str]) -> str:
    """Check the field `data`: one of `names`, or a path, which comes back absolute.

    A relative path is taken from the folder where dtsweep is started; the ranks may have another
    one. An absolute path is not looked up here, because it may lie on the workers' nodes alone.

    Raises:
        SweepError: neither one of `names` nor the path of something that exists.
    """
    if data in names or (isinstance(data, str) and Path(data).is_absolute()):
        return str(data)
    if isinstance(data, str) and data and Path(data).exists():
        return str(Path(data).absolute())
    allowed = " or ".join(map(repr, names))
    raise SweepError(
        f"{type(workload).__name__}(data={data!r}) is neither {allowed} nor a path that exists in "
        f"{Path.cwd()}"
        + (f"; did you mean {near!r}?" if (near := nearest(str(data), names)) else "")
    )


def refused_division(sizes: Mapping[str, int], workers: int) -> str | None:
    """Say which size of a model can't be divided evenly among so many workers, or None.

    >>> refused_division({"heads": 4}, 3)
    'tensor_parallel=3 does not divide heads=4'
    """
    for name, size in sizes.items():
        if size % workers:
            return f"tensor_parallel={workers} does not divide {name}={size}"
    return None


def refused_stages(layers: int, stages: int) -> str | None:
    """Say that a model has too few layers for a pipeline's stages, or None.

    >>> refused_stages(2, 4)
    'layers=2 are too few for 4 stages of a pipeline'
    """
    if layers < stages:
        return f"layers={layers} are too few for {stages} stages of a pipeline"
    return None
