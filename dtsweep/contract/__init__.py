"""The contract of modes and compressions, for tests of packages that declare some.

Any process that runs such tests; imports torch, and no Ray. In reading order:

    regression         a small problem, and what plain PyTorch makes of it
    training           training of a mode in all cases, on each rank of gloo processes
    promises           what every mode promises
    mode_check         `check_mode`: what a mode breaks, in words
    simulated          workers as threads, for compressions
    compression_check  `check_compression`: what every compression promises, and what one breaks

dtsweep's own modes and compressions are held to the same promises by `tests/`.
"""

from __future__ import annotations

from dtsweep.contract.compression_check import check_compression
from dtsweep.contract.mode_check import check_mode

__all__ = ["check_compression", "check_mode"]
