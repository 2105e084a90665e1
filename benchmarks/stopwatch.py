"""A stopwatch of optimizer steps for a script under torchrun; it needs torch alone.

`torchrun benchmarks/stopwatch.py FOLDER SCRIPT …` runs a script as `torchrun SCRIPT …` does, until
it ends. Each rank writes the time after each step of the first optimizer that steps, in seconds of
`time.perf_counter`, into `FOLDER/RANK.json`.
"""

import json
import os
import runpy
import sys
import time
from pathlib import Path
from typing import Any

from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

ends: list[float] = []
first: list[Optimizer] = []


def note_end(optimizer: Optimizer, *_: Any) -> None:
    """Note when a step ended."""
    if not first:
        first.append(optimizer)
    if optimizer is first[0]:
        ends.append(time.perf_counter())


if __name__ == "__main__":
    folder, script, *arguments = sys.argv[1:]
    sys.argv = [script, *arguments]
    sys.path[0] = str(Path(script).resolve().parent)
    register_optimizer_step_post_hook(note_end)
    try:
        runpy.run_path(script, run_name="__main__")
    finally:
        Path(folder, f"{os.environ['RANK']}.json").write_text(json.dumps(ends))
