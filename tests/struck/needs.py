"""What the sweep beside it needs. A rank that imports this lacks a package until the mark says that it is there."""

import os
from pathlib import Path

from torch import nn

if "RANK" in os.environ and not Path(os.environ["DTSWEEP_TEST_MARK"], "installed").exists():
    import no_such_package.layers  # noqa: F401


def layer() -> nn.Module:
    """A layer that would come from it."""
    return nn.Linear(4, 1)
