"""Other optimisers on the problems of `search_jobs.py`: the order in which they measure."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np

from benchmarks.search_jobs import Numbers, Problem
from dtsweep.search.first_points import first_points

AXES = ("nodes", "workers", "batch")
"""Axes of the candidates."""

INITIAL = 10
"""Random trials with which BoTorch, TPE and GPSampler begin."""


class Peer(NamedTuple):
    """Optimiser to compare with."""

    package: str | None
    """Package that it needs."""
    seeds: int
    most: int | None
    """Trials of a run; None for all candidates."""
    order: Callable[[Problem, int], Iterator[int]]
    """Yields candidates in the order of their measurement, by problem and seed."""


def random_order(problem: Problem, seed: int) -> Iterator[int]:
    """Measure the candidates in random order."""
    yield from np.random.default_rng(seed).permutation(len(problem.step_s)).tolist()


def places_of(problem: Problem) -> Numbers:
    """Coordinates of the candidates, (n, 3): logarithms of nodes, workers, batch from 0 to 1."""
    setups = problem.setups
    logs = np.log(np.stack([setups.nodes, setups.workers, setups.micro_batch], axis=1))
    return np.asarray((logs - logs.min(axis=0)) / np.ptp(logs, axis=0), dtype=np.float64)


def by_optuna(problem: Problem, sampler: Any) -> Iterator[int]:
    """Ask an Optuna sampler for points, and measure the nearest candidates."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    places, log_costs = places_of(problem), problem.log_costs
    study = optuna.create_study(directions=["minimize"] * 2, sampler=sampler)
    distributions = {name: optuna.distributions.FloatDistribution(0, 1) for name in AXES}
    is_left = np.ones(len(places), dtype=np.bool_)
    while is_left.any():
        trial = study.ask()
        asked = [trial.suggest_float(name, 0, 1) for name in AXES]
        distance = ((places - asked) ** 2).sum(axis=1)
        row = int(np.where(is_left, distance, np.inf).argmin())
        is_left[row] = False
        yield row
        # The sampler learns of the candidate that was measured, not of the place that it asked for.
        study.tell(trial, state=optuna.trial.TrialState.FAIL)
        study.add_trial(
            optuna.trial.create_trial(
                params=dict(zip(AXES, places[row].tolist(), strict=True)),
                distributions=distributions,
                values=log_costs[row].tolist(),
                system_attrs=study.trials[trial.number].system_attrs,
            )
        )


def by_tpe(problem: Problem, seed: int) -> Iterator[int]:
    """Tree-structured Parzen estimator, multivariate."""
    import optuna

    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    yield from by_optuna(problem, optuna.samplers.TPESampler(multivariate=True, seed=seed))


def by_nsga(problem: Problem, seed: int) -> Iterator[int]:
    """NSGA-II with a population of 20."""
    import optuna

    yield from by_optuna(problem, optuna.samplers.NSGAIISampler(population_size=20, seed=seed))


def by_gp_sampler(problem: Problem, seed: int) -> Iterator[int]:
    """Optuna's Gaussian process."""
    import optuna

    warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
    sampler = optuna.samplers.GPSampler(seed=seed, n_startup_trials=INITIAL)
    yield from by_optuna(problem, sampler)


def by_botorch(problem: Problem, seed: int) -> Iterator[int]:
    """Noisy expected hypervolume improvement (qLogNEHVI), over all candidates."""
    yield from by_log_nehvi(problem, list(islice(random_order(problem, seed), INITIAL)), seed=seed)


def by_botorch_from_ours(problem: Problem, seed: int) -> Iterator[int]:
    """Begin qLogNEHVI with the first points of dtsweep's search."""
    rows = first_points(problem.setups, problem.launch_s, seed=seed).tolist()
    yield from by_log_nehvi(problem, rows, seed=seed)


def by_log_nehvi(problem: Problem, rows: list[int], *, seed: int) -> Iterator[int]:
    """Measure these candidates first, then each time the one of the largest acquisition."""
    yield from rows
    while len(rows) < len(problem.step_s):
        acquisition = _log_nehvi(problem, rows, seed=seed)
        acquisition[rows] = -np.inf
        rows.append(int(acquisition.argmax()))
        yield rows[-1]


def _log_nehvi(problem: Problem, rows: Sequence[int], *, seed: int) -> Numbers:
    """Acquisition of all candidates, (n,)."""
    import torch
    from botorch.acquisition.multi_objective import logei
    from botorch.fit import fit_gpytorch_mll
    from botorch.models import SingleTaskGP
    from botorch.models.transforms import Standardize
    from botorch.sampling.normal import SobolQMCNormalSampler
    from botorch.utils.multi_objective.hypervolume import infer_reference_point
    from gpytorch.mlls.exact_marginal_log_likelihood import ExactMarginalLogLikelihood

    # A kernel in C++ would be compiled first; a run that is killed meanwhile blocks all later ones.
    logei._load_attempted = True
    torch.manual_seed(seed)
    inputs = torch.tensor(places_of(problem))
    known, values = inputs[rows], torch.tensor(-problem.log_costs[rows])
    model = SingleTaskGP(known, values, outcome_transform=Standardize(m=2))
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    acquisition = logei.qLogNoisyExpectedHypervolumeImprovement(
        model,
        ref_point=infer_reference_point(values),
        X_baseline=known,
        sampler=SobolQMCNormalSampler(torch.Size([64]), seed=seed),
        prune_baseline=True,
    )
    with torch.no_grad():
        return np.asarray(acquisition(inputs[:, None, :]).numpy(), dtype=np.float64)


PEERS = {
    "random": Peer(None, 10, None, random_order),
    "Optuna NSGA-II": Peer("optuna", 5, None, by_nsga),
    "Optuna TPE": Peer("optuna", 5, 250, by_tpe),
    "Optuna GPSampler": Peer("optuna", 2, 60, by_gp_sampler),
    "BoTorch qLogNEHVI": Peer("botorch", 2, 50, by_botorch),
    "BoTorch qLogNEHVI, our first points": Peer("botorch", 2, 50, by_botorch_from_ours),
}
