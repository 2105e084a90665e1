"""A stopwatch in a training script: the time after each of its steps, by the script's own clock."""

import os
import time
from pathlib import Path


class Laps:
    """Writes a line of `time.perf_counter` for each step of this rank."""

    def __init__(self, folder: str, name: int) -> None:
        path = Path(folder, f"{name}-{os.environ['RANK']}.txt")
        self._file = path.open("w", buffering=1)  # it ends with the process

    def lap(self) -> None:
        self._file.write(f"{time.perf_counter()!r}\n")
