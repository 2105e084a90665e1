"""Questions to the table of trials: pure functions from a frame to a frame."""

from __future__ import annotations

from dtsweep.analysis.frontier import frontier, on_frontier
from dtsweep.analysis.launches import over_launches, setting_columns
from dtsweep.analysis.scaling import scaling

__all__ = ["frontier", "on_frontier", "over_launches", "scaling", "setting_columns"]
