"""Modules that the server of `tests.ranks` imports: those of ranks, and of commands without Ray.

Also what they import only later: `torch._dynamo` comes with the first optimizer.
"""

import gc

import pytest  # noqa: F401
import scipy.stats  # noqa: F401
import torch._dynamo
import torch.distributed.fsdp
import torch.distributed.optim
import torch.distributed.tensor  # noqa: F401

import dtsweep.analysis
import dtsweep.cli
import dtsweep.driver.in_process_run
import dtsweep.report.as_json
import dtsweep.report.terminal
import dtsweep.session.in_process  # noqa: F401

# An attempt collects garbage several times: 0.2 s each time while all of these modules are looked
# through.
gc.freeze()
