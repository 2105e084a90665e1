"""A module that the sweep needs: a rank that imports it lacks a package until the mark exists."""

import os
from pathlib import Path

from torch import nn

if "RANK" in os.environ and not Path(os.environ["DTSWEEP_TEST_MARK"], "installed").exists():
    import no_such_package.layers  # noqa: F401


def layer() -> nn.Module:
    """A layer that would come from it."""
    return nn.Linear(4, 1)
