"""Versions of what measures, without importing it."""

from __future__ import annotations

import platform
from importlib.metadata import PackageNotFoundError, version


def versions() -> dict[str, str]:
    """Versions by the column that keeps them; a package that has none is left out."""
    found = {"python_version": platform.python_version()}
    for package in ("dtsweep", "torch", "ray"):
        try:
            found[f"{package}_version"] = version(package)
        except PackageNotFoundError:
            # Without Ray, `dtsweep.worker` still measures; an unpacked dtsweep has no metadata.
            continue
    return found


def release(version: str) -> str:
    """A version without the build's label and the patch level: those may differ between a head and its workers.

    >>> release("2.13.0+cu126")
    '2.13'
    """
    return ".".join(version.partition("+")[0].split(".")[:2])
