"""Models that `model.py` compares: AdaptDL's formula, a Gaussian process, boosted trees, ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from dtsweep.model.setups import Measured, Prediction, Setups, setups_of
from dtsweep.model.step_time import StepTimeModel, fit_step_time

if TYPE_CHECKING:
    import pandas as pd

Numbers = NDArray[np.float64]

SMALLEST = 1e-8
"""Lower bound of AdaptDL's parameters, and its network time of one worker."""

ADAPTDL = ("compute", "per_sample", "nodes", "per_node_worker", "local", "per_worker", "overlap")
"""AdaptDL's parameters: α and β of compute, of several nodes, of one node; and γ."""


def features(rows: pd.DataFrame) -> Numbers:
    """Logarithms of micro-batch, workers, nodes and workers of a node: (n, 4)."""
    per_node = -(-rows["workers"] // rows["nodes"])
    columns = [rows["micro_batch"], rows["workers"], rows["nodes"], per_node]
    values = np.array([column.to_numpy(np.float64) for column in columns])
    logs: Numbers = np.log2(values.T)
    return logs


def adaptdl_times(values: Numbers, rows: pd.DataFrame) -> tuple[Numbers, Numbers]:
    """Pass times and step times by AdaptDL's formula: (…, n) for (…, 7) parameters."""
    one = dict(zip(ADAPTDL, np.moveaxis(values[..., None], -2, 0), strict=True))
    further = np.maximum(rows["workers"].to_numpy() - 2, 0)
    one_pass = one["compute"] + one["per_sample"] * rows["micro_batch"].to_numpy()
    across = one["nodes"] + one["per_node_worker"] * further
    within = one["local"] + one["per_worker"] * further
    network = np.where(rows["nodes"] > 1, across, within)
    network = np.where(rows["workers"] > 1, network, SMALLEST)
    power = one["overlap"]
    return one_pass, (one_pass**power + network**power) ** (1 / power)


def _fixed(rows: pd.DataFrame) -> dict[str, float]:
    """Parameters that AdaptDL does not fit, for want of measurements."""
    fixed = {}
    if rows["micro_batch"].nunique() == 1:
        fixed["compute"] = float(rows["pass_s"].mean()) / 2
    is_many = rows["nodes"] > 1
    if not is_many.any():
        fixed |= {"nodes": SMALLEST, "per_node_worker": SMALLEST}
    if not (~is_many & (rows["workers"] > 1)).any():
        fixed |= {"local": SMALLEST, "per_worker": SMALLEST}
    if not (rows["workers"] > 2).any():
        fixed |= {"per_node_worker": SMALLEST, "per_worker": SMALLEST}
    return fixed


def by_adaptdl(train: pd.DataFrame, test: pd.DataFrame) -> Numbers:
    """Predict with AdaptDL's formula, fitted as AdaptDL does: L-BFGS-B on RMSLE of both times."""
    from scipy.optimize import minimize

    fixed = _fixed(train)
    start = dict(zip(ADAPTDL, [0.1, 0.01] * 3 + [1.001], strict=True)) | fixed
    bounds = dict.fromkeys(ADAPTDL, (SMALLEST, np.inf)) | {"overlap": (1.0, 10.0)}
    bounds |= {name: (value, value) for name, value in fixed.items()}
    times = [np.log(train[name].to_numpy()) for name in ("pass_s", "step_s")]

    def cost(values: Numbers) -> Any:
        both = zip(adaptdl_times(values, train), times, strict=True)
        errors = [np.sqrt(np.mean((np.log(one) - time) ** 2, axis=-1)) for one, time in both]
        ratios = values[..., [3, 5]] / values[..., [2, 4]]
        overlap = 1e-3 * (values[..., 6] - 1) ** 2
        return errors[0] + errors[1] + overlap + 1e-2 * np.sum(ratios**2, axis=-1)

    def with_slope(values: Numbers) -> tuple[float, Numbers]:
        moves = np.diag(1e-6 * values)
        slope = (cost(values + moves) - cost(values - moves)) / (2e-6 * values)
        return float(cost(values)), slope

    fit = minimize(
        with_slope,
        np.array([start[name] for name in ADAPTDL]),
        jac=True,
        method="L-BFGS-B",
        bounds=[bounds[name] for name in ADAPTDL],
    )
    values = fit.x.copy()
    if "nodes" in fixed:
        values[2:4] = np.maximum(values[2:4], 1.1 * values[4:6])
    return adaptdl_times(values, test)[1]


def by_process(train: pd.DataFrame, test: pd.DataFrame) -> Numbers:
    """Predict with a Gaussian process on logarithms: Matérn-5/2, a length for each axis, noise."""
    import warnings

    from sklearn.exceptions import ConvergenceWarning
    from sklearn.gaussian_process import (
        GaussianProcessRegressor,
    )
    from sklearn.gaussian_process.kernels import (
        ConstantKernel,
        Matern,
        WhiteKernel,
    )

    kernel = ConstantKernel(1.0) * Matern([2.0] * 4, (0.1, 100), nu=2.5)
    kernel += WhiteKernel(1e-3, (1e-6, 1.0))
    process = GaussianProcessRegressor(
        kernel, normalize_y=True, n_restarts_optimizer=2, random_state=0
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        process.fit(features(train), np.log(train["step_s"]))
    times: Numbers = np.exp(process.predict(features(test)))
    return times


def by_trees(train: pd.DataFrame, test: pd.DataFrame) -> Numbers:
    """Predict with gradient boosting on logarithms, as scikit-learn sets it."""
    from sklearn.ensemble import GradientBoostingRegressor

    trees = GradientBoostingRegressor(random_state=0)
    trees.fit(features(train), np.log(train["step_s"]))
    times: Numbers = np.exp(trees.predict(features(test)))
    return times


def setups_from(rows: pd.DataFrame) -> Setups:
    """Settings of the rows."""
    return setups_of(
        workers=rows["workers"].to_numpy(),
        nodes=rows["nodes"].to_numpy(),
        micro_batch=rows["micro_batch"].to_numpy(),
    )


def ours(train: pd.DataFrame) -> StepTimeModel:
    """Fit our model; the windows' errors are not published, and each row is a launch."""
    measured = Measured(
        step_s=train["step_s"].to_numpy(),
        error=np.zeros(len(train)),
        pass_s=train["pass_s"].to_numpy(),
        launch=np.arange(len(train)),
    )
    return fit_step_time(setups_from(train), measured)


def covered(prediction: Prediction, times: Numbers) -> Numbers:
    """1 where the 90 % interval holds the time."""
    away = np.abs(prediction.log_step_s - np.log(times))
    return (away < 1.645 * prediction.error).astype(np.float64)
