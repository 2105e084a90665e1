"""Declarations, which plans read: nothing here imports torch."""

from dtsweep.sweep.compressions import CompressionInfo
from dtsweep.sweep.mode_info import ModeInfo

DELAYED = ModeInfo(
    implementation="dtsweep_delayed.delayed:Delayed",
    semantics=lambda point: "stale",
    reads={},
    agree="gradients",
    can_exchange_alone=True,
    sends="2 (n−1)/n S",
    memory="(4 + k) S + 2 P",
)

FP8 = CompressionInfo(
    implementation="dtsweep_delayed.fp8:Fp8",
    exchange="all_gather",
    payload="N bytes",
    sends="(n−1) S/4",
)
