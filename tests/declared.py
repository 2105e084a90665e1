"""Modes of tests, next to dtsweep's own for the time of a test."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from dtsweep.sweep.compressions import COMPRESSIONS, CompressionInfo
from dtsweep.sweep.mode_info import ModeInfo
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point_axes import AXES


def declare(
    patch: pytest.MonkeyPatch,
    modes: Mapping[str, ModeInfo],
    compressions: Mapping[str, CompressionInfo] | None = None,
) -> None:
    """Declare modes and compressions in this process, for as long as the patch lasts."""
    added = {"sync": (MODES, modes), "compression": (COMPRESSIONS, compressions or {})}
    for axis, (table, infos) in added.items():
        for name, info in infos.items():
            patch.setitem(table, name, info)  # type: ignore[arg-type]  # a dict, read as a mapping
        choices = (*AXES[axis].choices, *infos)
        patch.setitem(AXES, axis, replace(AXES[axis], choices=choices))  # type: ignore[arg-type]
