"""`ddp`: synchronous data parallel, gradients averaged while backward still runs."""

from __future__ import annotations

from dtsweep.sync.wrapped import WrappedMode


class Ddp(WrappedMode):
    """torch's `DistributedDataParallel`, and an optimizer of all parameters on every rank."""
