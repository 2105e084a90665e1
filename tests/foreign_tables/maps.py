"""A map of a small table."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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


def columns_of(known: Mapping[str, str], header: Collection[str]) -> str:
    """Lines of `[columns]` or `[settings]` for the columns that a table has."""
    return "\n".join(f'{name} = "{column}"' for name, column in known.items() if column in header)
