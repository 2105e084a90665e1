"""Ladders of simulated throughput: worlds whose rates follow a law, with noise of launches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from tests.frames import trials

PUBLISHED = Path(__file__).parents[1] / "data" / "ladder" / "resnet50_v100.csv"


def ladder(
    rates: dict[int, float],
    *,
    strong: bool = False,
    launches: int = 1,
    error: float = 0.0,
    rng: np.random.Generator | None = None,
    count: int = 1,
    **fields: Any,
) -> pd.DataFrame:
    """Trials of worlds: weak scaling of 4 samples per worker, or strong scaling of 64 per step.

    Args:
        rates: samples/s by workers.
        strong: which of the two.
        launches: of each world, each in a session with the others.
        error: standard error of a window, as a share; drawn where there is an `rng`.
        rng: of the noise.
        count: how many such ladders, each in an environment of its own.
        fields: other columns.
    """
    noise = (
        np.zeros((count, len(rates), launches))
        if rng is None
        else rng.normal(0, error, (count, len(rates), launches))
    )
    return trials(
        *(
            {
                "workers": workers,
                "micro_batch": 64 // workers if strong else 4,
                "global_batch": 64 if strong else 4 * workers,
                "point_id": f"{workers} workers",
                "env_id": f"{number:03}",
                "session": f"launch {launch}",
                "repeat": launch + 1,
                "samples_per_s": rate * np.exp(noise[number, row, launch]),
                "samples_per_s_error": rate * error if error else np.nan,
            }
            for number in range(count)
            for row, (workers, rate) in enumerate(rates.items())
            for launch in range(launches)
        ),
        **fields,
    )


def published() -> dict[int, float]:
    """Images per second by GPUs, of the published ladder."""
    known = pd.read_csv(PUBLISHED)
    return dict(
        zip(known["gpus"].tolist(), known["images_per_s"].astype(float).tolist(), strict=True)
    )
