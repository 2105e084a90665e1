"""Imported rows: compared with each other alone, or with measured ones where that is asked for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dtsweep.errors import SweepError
from dtsweep.results.schema import IMPORTED

if TYPE_CHECKING:
    import pandas as pd


def joined(frame: pd.DataFrame) -> pd.DataFrame:
    """Treat imported rows as measured in the environment of the measured rows.

    They are also of the model of the measured rows of the same workload, where that is one model.

    Args:
        frame: one row per trial, as `dtsweep.load` gives it.

    Raises:
        SweepError: no row is imported or none measured, or the measured ones are of several
            environments.
    """
    is_imported = frame["harness"] == IMPORTED
    measured = frame[~is_imported & (frame["status"] == "ok")]
    if measured.empty or not is_imported.any():
        lacking = "imported" if not is_imported.any() else "measured"
        raise SweepError(
            f"no trial of these results was {lacking}, so imported and measured ones can't be "
            "compared; leave --with-imported out"
        )
    environments = measured["env_id"].unique()
    if len(environments) > 1:
        raise SweepError(
            f"trials were measured in {len(environments)} environments "
            f"({', '.join(map(str, environments))}), and --with-imported needs one; leave it out"
        )
    models = measured.groupby("workload")["model_digest"].agg(["nunique", "first"])
    digests = models["first"].where(models["nunique"] == 1)
    of_workload = frame["workload"].map(digests).astype("object")
    is_of_model = is_imported & frame["model_digest"].isna() & of_workload.notna()
    return frame.assign(
        env_id=frame["env_id"].mask(is_imported, environments[0]),
        model_digest=frame["model_digest"].astype("object").mask(is_of_model, of_workload),
    )
