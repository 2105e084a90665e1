"""A sweep: one question, as its axes, workload and limits. What a sweep file holds."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, get_args, get_type_hints

from dtsweep.errors import SweepError, quoted
from dtsweep.secret import is_secret
from dtsweep.sweep.checks import (
    INFERENCE,
    REPLICAS,
    axis_values,
    check_axis,
    check_kind,
    check_workload,
    is_search_space,
)
from dtsweep.sweep.goal import (
    FRONTIER_LAUNCHES,
    LAUNCHES,
    Goal,
    Question,
    check_target,
    goal_of,
)
from dtsweep.sweep.point import Point
from dtsweep.sweep.precision import PRECISIONS
from dtsweep.sweep.search import Search
from dtsweep.sweep.values import ARGS, coerced, is_own_loop
from dtsweep.sweep.variables import check_variable_name, check_variable_value

LEAST_HALF_WIDTH = 0.005
"""Least half-width given, as a share of the mean; rare events may not have happened yet."""


P99_FROM = 100
"""Steps from which on a 99th percentile is given."""

ENERGY_FROM_S = 5.0
"""A device's energy counter moves every 0.1 s: in a shorter window that is an error of over 2 %."""


_EXCHANGE = Literal["quick", "precise", "off"]


@dataclass(frozen=True, kw_only=True)
class Measure:
    """Length and number of measurements of a point."""

    repeats: int | None = None
    """Launches of every point: each repeat has sessions of its own.

    A number makes the sweep a plain grid. None: as many as the sweep's question needs.
    """

    half_width: float | None = 0.02
    """Target half-width of the 95 % interval of a launch's mean step time, as a share of it.

    At least 0.005: no interval is given narrower. None ends a window as soon as it has `min_steps`
    and `min_seconds`.
    """

    warmup_steps: int = 3
    """Steps before the window; the last one ends a sync period.

    What is still warm-up after them is found.
    """

    min_steps: int = 20
    """Steps per window, at least."""

    min_seconds: float = 1.0
    """Seconds per window, at least."""

    max_steps: int = 1000
    """Steps per window, at most.

    A maximum beats the default of a minimum; one sync period is always measured.
    """

    max_seconds: float = 60.0
    """Seconds per window, at most, but 5 steps or one sync period are always measured.

    A window without them after ten minutes (or this limit, if it is longer) is a `timeout`.
    """

    max_warmup_seconds: float = 600.0
    """Seconds until all ranks have built and warmed up, at most; then the trial is a `hang`."""

    prune: bool = True
    """True if points that are expected to run out of device memory are skipped.

    `--try-all` stands for False.
    """

    canary: bool = True
    """True if one fixed point is measured at both ends of a session, to show drift."""

    energy: bool = False
    """True if windows last at least 5 s where a device counts its energy; shorter ones lack it."""

    exchange: _EXCHANGE = "quick"
    """Method for the exchange's share of a step, in modes whose exchange overlaps other work.

    `quick` runs steps without the exchange, for at most a quarter of the window's time and 50 ms,
    but at least two, of which one is timed. `precise` alternates steps with and without it until
    the share is known to 2 points, which takes seconds per trial; where no round fits into 10 s it
    is as `quick`. `off` measures none.
    """

    gc: bool = False
    """True if Python's garbage collector stays on inside the window."""

    nested: bool = True
    """True if smaller worlds run in the processes of a larger session, not in their own."""

    turns: bool = True
    """True if rounds after the first measure points of a session in turn, a few steps each.

    What other programs do to the machine then falls on all of them. Points of one session whose
    models fit into memory together, but not training loops of the user, parameter servers, workers
    that are drawn, and goals of energy or of quantiles: those keep whole windows.
    """

    fresh: bool = False
    """True if every trial gets a session of its own: slow, the reference for sessions."""

    def __post_init__(self) -> None:
        """Refuse numbers that can't be meant."""
        _fit(self, repeats=1, warmup_steps=0, min_steps=1, min_seconds=0, max_steps=1)
        _fit(self, max_seconds=0, max_warmup_seconds=0, half_width=0, prune=0, canary=0)
        _fit(self, energy=0, gc=0, nested=0, turns=0, fresh=0)
        _refuse_contradiction(self, "min_steps", "max_steps")
        _refuse_contradiction(self, "min_seconds", "max_seconds")
        if self.exchange not in get_args(_EXCHANGE):
            choices = ", ".join(map(repr, get_args(_EXCHANGE)))
            raise SweepError(
                f"exchange={quoted(self.exchange)} must be one of {choices}", word="exchange"
            )
        if self.half_width is not None and not LEAST_HALF_WIDTH <= self.half_width < 1:
            raise SweepError(
                f"half_width={self.half_width:g} must be at least {LEAST_HALF_WIDTH:g} and below "
                "1: "
                "a share of the mean, such as 0.02",
                word="half_width",
            )
        if self.energy and self.max_seconds < ENERGY_FROM_S:
            raise SweepError(
                f"energy=True needs windows of {ENERGY_FROM_S:g} s, and "
                f"max_seconds={self.max_seconds:g} ends them "
                "before; raise it",
                word="max_seconds",
            )


@dataclass(frozen=True, kw_only=True)
class Resources:
    """Resources of each worker, and the number of concurrent trials."""

    gpus_per_worker: int | None = None
    """GPUs of a worker: 0 or 1.

    None: one where the cluster has GPUs or can add them, else 0; where it can add nodes of unknown
    types, that must be said. With 0, the processes of workers see no GPU (`CUDA_VISIBLE_DEVICES` is
    empty), except in `--in-process`."""

    cpus_per_worker: int | None = None
    """CPUs of a worker, and its thread count.

    None: 1 without a GPU; with GPUs the node's CPUs ÷ its GPUs for each, at least 1, by the node
    with the fewest. Results that are continued keep theirs. 1 where an autoscaler can add nodes of
    unknown types."""

    concurrent: int = 1
    """Sessions that run at the same time, at most: as many as the nodes have room for.

    Each has nodes of its own unless `share_nodes`.
    """

    share_nodes: bool = False
    """True if sessions that run at the same time may share a node, each worker with its own GPU.

    Trials on one node can slow each other down.
    """

    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    """Variables of the worker processes; stored with the results.

    Of one whose name speaks of a token, key, password, secret or credential, a short hash is stored
    and shown.
    """

    peak_flops_per_s: Mapping[str, float] = field(default_factory=dict)
    """Dense FLOP/s of a worker's device by precision, such as `{"bf16": 989e12}`.

    It replaces dtsweep's own table.
    """

    def __post_init__(self) -> None:
        """Refuse numbers that can't be meant."""
        gpus = self.gpus_per_worker
        if isinstance(gpus, float) and gpus % 1:
            raise SweepError(
                f"gpus_per_worker={gpus} is a fraction, which NCCL refuses; use a whole number",
                word="gpus_per_worker",
            )
        _fit(self, gpus_per_worker=0, cpus_per_worker=1, concurrent=1, share_nodes=0)
        if gpus is not None and gpus > 1:
            raise SweepError(
                f"gpus_per_worker={gpus}, but a worker trains on one GPU, the rest idle; use "
                "gpus_per_worker=1 and more workers",
                word="gpus_per_worker",
            )
        if not isinstance(self.environment, Mapping):
            # Without the value: there may be a secret in it.
            kind = type(self.environment).__name__
            raise SweepError(
                f"environment is a {kind}, it must be names and values: {{'NAME': 'value'}}",
                word="environment",
            )
        for name, value in self.environment.items():
            check_variable_name(name, where="environment")
            if not isinstance(value, str):
                shown = f"={quoted(value)} must be a string, such as {str(value)!r}"
                raise SweepError(
                    f"environment {name}{' must be a string' if is_secret(name) else shown}",
                    word=name,
                )
            check_variable_value(value, where=f"environment {name}", word=name)
        wanted = "must be FLOP/s by precision, such as {'bf16': 989e12}"
        word = "peak_flops_per_s"
        if not isinstance(self.peak_flops_per_s, Mapping):
            raise SweepError(
                f"peak_flops_per_s={quoted(self.peak_flops_per_s)} {wanted}", word=word
            )
        for precision, peak in self.peak_flops_per_s.items():
            if (
                precision not in PRECISIONS
                or type(peak) not in (int, float)
                or not 0 < peak < math.inf
            ):
                raise SweepError(
                    f"peak_flops_per_s has {precision!r}: {quoted(peak)}; it {wanted}", word=word
                )

    def peak(self, precision: str) -> float | None:
        """Peak rate of a device at a precision as the sweep gives it, in FLOP/s."""
        return self.peak_flops_per_s.get(precision)


@dataclass(frozen=True, kw_only=True)
class Sweep:
    """One question: points of a workload, how to measure them, and resources."""

    workload: Any
    """One of `dtsweep.workloads`, or a dataclass of your own with `build`, `batch` and `loss`."""

    axes: Mapping[str, Any]
    """By name: a list of JSON scalars, a Ray Tune search-space object, or a function of the point.

    Functions are called in the order of the axes, each with the point that the lists, the drawn
    values and the functions before it make.
    """

    kind: str = "training"
    """`training`, or `inference`: then `serve` of the workload is measured, and workers are its
    replicas, also named `replicas`.

    A point with a `rate` is an open loop on Ray Serve, one
    without a closed loop; what a loop does not read is left out of its points.
    """

    skip: Callable[[Point], str | None] | None = None
    """Says why a point should be left out, or None."""

    measure: Measure = field(default_factory=Measure)
    """Length and number of measurements."""

    resources: Resources = field(default_factory=Resources)
    """Resources of each worker."""

    goal: Goal | str | None = None
    """Question that is measured until it is decided: a goal, its name, or `frontier`.

    None: `frontier`, unless `Measure(repeats=N)` asks for a plain grid.
    """

    indifference: float = 0.03
    """Indifference zone: points that differ by at most this share count as equal."""

    confidence: float = 0.95
    """Probability of a right answer, over all looks at the data."""

    max_launches: int | None = None
    """Launches of a point, at most. None: 3 for the frontier, 8 for a goal."""

    search: Search | None = None
    """Search that measures few of the points, `Search()` by default; None measures all of them."""

    samples: int | None = None
    """Points drawn from the search spaces for each combination of the lists, with equal draws."""

    seed: int = 0
    """Seeds weights, data, drawn points and the order of trials."""

    file: Path | None = None
    """The sweep file; set by anyone who reads it."""

    def __post_init__(self) -> None:
        """Check what needs no point: the workload and the names and kinds of the axes."""
        if not isinstance(self.axes, Mapping):
            raise SweepError(
                f"axes={quoted(self.axes)} must be names and lists, such as {{'workers': [1, 2]}}",
                word="axes",
            )
        check_kind(self.kind, self.axes)
        check_workload(self.workload, kind=self.kind)
        if self.kind == INFERENCE:
            axes = {REPLICAS.get(name, name): axis for name, axis in self.axes.items()}
            object.__setattr__(self, "axes", axes)
        for name, axis in self.axes.items():
            check_axis(name, axis, workload=self.workload)
        if is_own_loop(self.workload):
            self._take_arguments()
        if {"global_batch", "accumulation"} <= set(self.axes):
            raise SweepError(
                "axes 'global_batch' and 'accumulation' exclude each other: accumulation follows; "
                "leave one out",
                word="global_batch",
            )
        if self.skip is not None and not callable(self.skip):
            raise SweepError(
                f"skip={quoted(self.skip)} must be a function of the point: lambda p: …",
                word="skip",
            )
        for name, kind in {"measure": Measure, "resources": Resources}.items():
            if not isinstance(value := getattr(self, name), kind):
                raise SweepError(f"{name}={quoted(value)} must be {kind.__name__}(…)", word=name)
        _fit(self, samples=1, seed=0, indifference=0, confidence=0, max_launches=0)
        self._check_samples()
        self._check_question()

    def _take_arguments(self) -> None:
        """Give the workload the arguments that the axes name."""
        listed = {}
        for name, axis in self.axes.items():
            if name.startswith(ARGS):
                values = axis_values(axis)
                is_list = isinstance(values, (list, tuple, range))
                listed[name.removeprefix(ARGS)] = list(values) if is_list else None
        is_made_of_passes = "global_batch" not in self.workload.reads()
        if "global_batch" in self.axes and is_made_of_passes and "micro_batch" not in self.axes:
            raise SweepError(
                "axis 'global_batch' needs an axis 'micro_batch', so that accumulation follows",
                word="global_batch",
            )
        object.__setattr__(self, "workload", self.workload.with_axes(listed, self.axes))

    def _check_samples(self) -> None:
        drawn = [name for name, axis in self.axes.items() if is_search_space(axis)]
        if drawn and self.samples is None:
            raise SweepError(
                f"axis {drawn[0]!r} is drawn from a search space: say how often, Sweep(samples=N)",
                word=drawn[0],
            )
        if self.samples is not None and not drawn:
            raise SweepError(
                "samples is set, but no axis is a search space such as tune.uniform(…); leave it "
                "out",
                word="samples",
            )

    def _check_question(self) -> None:
        """Refuse a question that can't be meant, and one of a plain grid."""
        repeats = self.measure.repeats
        for name in ("goal", "max_launches", "search"):
            value = getattr(self, name)
            if value is not None and repeats is not None:
                raise SweepError(
                    f"{name}={quoted(value)} and Measure(repeats={repeats}) exclude each other: "
                    f"repeats measures a plain grid; leave repeats out, or {name}",
                    word=name,
                )
        if self.search is not None and not isinstance(self.search, Search):
            raise SweepError(
                f"search={quoted(self.search)} must be Search(…), or None", word="search"
            )
        question = self._asked()
        if question.goal is not None:
            check_target(question.goal)
            if question.goal.trains and is_own_loop(self.workload):
                raise SweepError(
                    "a training loop of your own can't be trained for a goal yet; give a workload "
                    "with build, batch and loss",
                    word="target",
                )
        if self.kind == INFERENCE:
            self._check_inference(question.goal)
        if self.search is not None:
            self.search.check(question.goal)

    def _check_inference(self, goal: Goal | None) -> None:
        """Refuse a goal or a search that has no meaning where a model is served."""
        if goal is None:
            return
        if goal.trains:
            raise SweepError("kind='inference' trains nothing: take a goal without a target")
        if self.search is not None and goal.where and "rate" in self.axes:
            raise SweepError(
                "rates that meet a condition are found by bisection; leave search out",
                word="search",
            )
        if "step_p99_s" in goal.columns_text and self.measure.max_steps < P99_FROM:
            raise SweepError(
                f"max_steps={self.measure.max_steps} leaves request_p99_s unknown; take at least "
                f"{P99_FROM}",
                word="max_steps",
            )

    def _asked(self) -> Question:
        goal = goal_of(self.goal)
        launches = self.max_launches
        if launches is None:
            launches = FRONTIER_LAUNCHES if goal is None else LAUNCHES
        return Question(
            goal=goal,
            indifference=self.indifference,
            confidence=self.confidence,
            max_launches=launches,
        )

    @property
    def question(self) -> Question | None:
        """Question that decides how often each point is launched; None of a plain grid.

        Its goal is None where it asks for the frontier.
        """
        if self.measure.repeats is not None:
            return None
        return self._asked()

    # Cached, because the name of each trial reads it.
    @cached_property
    def training_goal(self) -> Goal | None:
        """Goal for which launches train; None where they don't."""
        question = self.question
        if question is None or question.goal is None or not question.goal.trains:
            return None
        return question.goal

    @property
    def name(self) -> str:
        """Default name of the results: the file's name without its ending."""
        if not self.file:
            return "sweep"
        return self.file.stem


def of_one_launch(sweep: Sweep) -> Sweep:
    """The sweep as a plain grid with one launch of each point."""
    measure = replace(sweep.measure, repeats=1)
    return replace(sweep, goal=None, max_launches=None, search=None, measure=measure)


def _fit(settings: Any, **least: float) -> None:
    """Give these settings the types of their fields, and refuse what is below its least value."""
    hints = get_type_hints(type(settings))
    for name, smallest in least.items():
        value = coerced(name, getattr(settings, name), hints[name])
        if value is not None and value < smallest:
            raise SweepError(f"{name}={value} must be at least {smallest}", word=name)
        object.__setattr__(settings, name, value)


def _refuse_contradiction(measure: Measure, minimum: str, maximum: str) -> None:
    """Refuse a minimum that was given and lies above its maximum."""
    least, most = getattr(measure, minimum), getattr(measure, maximum)
    if least > most and least != getattr(Measure, minimum):
        raise SweepError(
            f"{minimum}={least:g} is more than {maximum}={most:g}; lower it, or raise {maximum}",
            word=minimum,
        )
