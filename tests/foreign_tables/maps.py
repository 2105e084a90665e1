"""A map of a small table."""

from __future__ import annotations

from pathlib import Path

MAP = """
[columns]
workers = "gpus"
micro_batch = "batch"
step_mean_s = "step_ms / 1000"
precision = "precision"
[constants]
accumulation = 1
sync = "ddp"
workload = "cnn"
"""


def write_map(folder: Path, text: str = MAP) -> Path:
    (folder / "map.toml").write_text(text)
    return folder / "map.toml"
