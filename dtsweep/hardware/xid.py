"""Names of NVIDIA's Xid, the numbers by which its driver reports errors."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

XID_NAMES: Mapping[int, str] = MappingProxyType(
    {
        13: "graphics engine exception",
        31: "GPU memory page fault",
        32: "invalid or corrupted push buffer",
        43: "GPU stopped processing",
        45: "preemptive cleanup after an earlier error",
        48: "double-bit ECC error",
        63: "page retirement or row remapping recorded",
        64: "page retirement or row remapping failed",
        69: "graphics engine class error",
        74: "NVLink error",
        79: "GPU has fallen off the bus",
        92: "high single-bit ECC error rate",
        94: "contained ECC error",
        95: "uncontained ECC error",
        119: "GSP RPC timeout",
        120: "GSP error",
    }
)
"""The frequent ones, as docs.nvidia.com/deploy/xid-errors describes them for all drivers.

GSP is the GPU's system processor.
"""


def xid_text(number: int) -> str:
    """Write an Xid with its name, if it is a frequent one.

    >>> xid_text(79), xid_text(7)
    ('Xid 79 (GPU has fallen off the bus)', 'Xid 7')
    """
    if number in XID_NAMES:
        return f"Xid {number} ({XID_NAMES[number]})"
    return f"Xid {number}"
