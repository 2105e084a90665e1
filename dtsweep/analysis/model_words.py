"""Parameters of the step time in sentences, in units that a person can check."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dtsweep.analysis.setting_values import axis_name
from dtsweep.model.formula import PRIORS
from dtsweep.model.offsets import Offset
from dtsweep.model.parameters import seconds
from dtsweep.model.posterior import Posterior
from dtsweep.model.setups import NORMAL_90, Flags, Numbers

MOST_LINES = 8
"""Lines of the parameters."""

_NAMES = [prior.name for prior in PRIORS]


class _Effect(NamedTuple):
    """Effect of a value of a setting, or of a number."""

    words: str
    strength: float
    """Distance from no effect, in standard deviations."""


def model_words(posterior: Posterior, *, gradient_bytes: float | None = None) -> list[str]:
    """Say what the parameters mean, in at most `MOST_LINES` lines.

    Times are of the most measured value of each category, among configurations that have such a
    time. Other values follow as ratios to the most measured one, if their 90 % interval excludes 1,
    the most significant first.

    Args:
        posterior: of the step time.
        gradient_bytes: bytes of a worker's gradients; None where the parameters are not counted.
    """
    lines = _Times(posterior, gradient_bytes).lines()
    effects = sorted(_effects(posterior), key=lambda effect: -effect.strength)
    return [*lines, *(effect.words for effect in effects)][:MOST_LINES]


class _Times:
    """Times of the most measured value of each category."""

    def __init__(self, posterior: Posterior, gradient_bytes: float | None) -> None:
        self._posterior = posterior
        self._gradient_bytes = gradient_bytes
        slope = posterior.evidence.slope
        self._is_known = dict(zip(_NAMES, np.any(slope != 0, axis=0), strict=False))

    def lines(self) -> list[str]:
        """Sentences of the pass, the exchange, and waiting."""
        lines = [
            f"pass: {self._time('pass_overhead')} + {self._time('sample')} per sample, at least "
            f"{self._time('pass_floor')} for all samples"
        ]
        if self._is_known["node_bandwidth"]:
            slower = f"; {self._share('node_contention')} slower per further worker of a node"
            lines.append(
                f"exchange between nodes: {self._time('node_latency')} × log2 nodes + "
                f"{self._bytes('node_bandwidth')}{slower}"
            )
        if self._is_known["local_bandwidth"]:
            lines.append(
                f"exchange within a node: {self._time('local_latency')} × (workers − 1) + "
                f"{self._bytes('local_bandwidth')}"
            )
        has_servers = self._posterior.setups.servers > 0
        if self._is_known["queue"]:
            lines.append(
                f"exchange with servers: {self._time('queue')} × workers / servers + "
                f"{self._time('worker_latency', has_servers)}"
            )
        if self._is_known["worker_latency"]:
            others = self._time("worker_latency", ~has_servers)
            if not has_servers.all():
                lines.append(f"exchange of all workers: {others} × log2 workers")
            lines[-1] += f"; {self._waiting()}"
        return lines

    def _waiting(self) -> str:
        """Say what of the exchange compute hides, and what stragglers cost, in the largest job."""
        setups = self._posterior.setups
        largest = setups.take([int(np.argmax(setups.workers))])
        workers = float(largest.workers[0])
        frame = self._posterior.linear.frame
        hidden = float(frame.hidden_share(self._posterior.parameters()[0], largest)[0])
        words = f"compute hides {hidden:.0%} at {workers:g} workers"
        if self._is_known["stragglers"]:
            slower = self._value("stragglers") * np.sqrt(2 * np.log(workers))
            words += f", whose slowest is {slower:.1%} slower than the mean"
        return words

    def _bytes(self, name: str) -> str:
        """Time of the bytes of a ring, by the bandwidth where they are known."""
        time_s = self._value(name)
        ring = "× 2 (workers − 1) / workers"
        if self._gradient_bytes is None:
            return f"{seconds(time_s)} {ring}"
        bandwidth = self._gradient_bytes / time_s / 1e9
        return f"{self._gradient_bytes / 1e6:,.3g} MB / {bandwidth:.2g} GB/s {ring}"

    def _time(self, name: str, rows: Flags | None = None) -> str:
        return seconds(self._value(name, rows))

    def _share(self, name: str) -> str:
        return f"{self._value(name):.1%}"

    def _value(self, name: str, rows: Flags | None = None) -> float:
        """Most probable value, in seconds or as a ratio.

        Args:
            name: of the parameter.
            rows: (n,) True for the configurations whose most measured values count; by default
                those that the parameter has an effect on.
        """
        frame = self._posterior.linear.frame
        index = _NAMES.index(name)
        contrast = np.zeros(len(frame.means))
        contrast[index] = 1
        unit = 1.0
        if PRIORS[index].unit != "1":
            if rows is None:
                rows = self._posterior.evidence.slope[: len(self._posterior.setups), index] != 0
            bases = _bases(self._posterior, rows)
            contrast[_columns(self._posterior, name in _OF_EXCHANGE, bases)] = 1
            unit = float(np.exp(frame.log_pass))
        if PRIORS[index].unit == "s/sample":
            unit /= frame.typical_batch
        means, _ = self._posterior.contrasts(contrast[None, :])
        return unit * float(np.exp(means[0]))


_OF_EXCHANGE = (
    *("node_bandwidth", "node_latency", "local_bandwidth", "local_latency"),
    *("worker_latency", "queue"),
)
"""Parameters that the factors of the exchange multiply."""


def _bases(posterior: Posterior, rows: Flags) -> list[int]:
    """Numbers of the offsets of the most measured value of each category, in some rows."""
    offsets = posterior.linear.frame.offsets
    most = {
        name: Counter(map(str, values[rows])).most_common(1)
        for name, values in posterior.setups.categories.items()
    }
    return [
        number
        for number, offset in enumerate(offsets)
        if offset.value in [value for value, _ in most.get(offset.setting, ())]
    ]


def _columns(posterior: Posterior, is_exchange: bool, numbers: Sequence[int]) -> list[int]:
    """Numbers of parameters of some offsets: of compute, or of the exchange."""
    count = len(posterior.linear.frame.offsets)
    return [len(_NAMES) + is_exchange * count + number for number in numbers]


def _effects(posterior: Posterior) -> list[_Effect]:
    """List the effects whose intervals exclude that there is none."""
    offsets = posterior.linear.frame.offsets
    every = np.ones(len(posterior.setups), dtype=np.bool_)
    bases = {offsets[number].setting: number for number in _bases(posterior, every)}
    is_known = np.any(posterior.evidence.slope != 0, axis=0)
    effects = []
    for part in ("compute", "exchange"):
        for number, offset in enumerate(offsets):
            base = bases.get(offset.setting)
            own, *others = _columns(
                posterior, part == "exchange", [number] if base is None else [number, base]
            )
            if number == base or not is_known[own]:
                continue
            contrast = np.zeros(len(is_known))
            contrast[own] = 1
            contrast[others] = -1
            means, deviations = posterior.contrasts(contrast[None, :])
            ends = means[0] + NORMAL_90 * deviations[0] * np.array([0.0, -1.0, 1.0])
            if ends[1] <= 0 <= ends[2]:
                continue
            words = _effect_words(offset, part, ends, None if base is None else offsets[base])
            effects.append(_Effect(words, abs(means[0]) / deviations[0]))
    return effects


def _effect_words(offset: Offset, part: str, ends: Numbers, base: Offset | None) -> str:
    """Say the effect of a value, next to the most measured one, or of a number."""
    name = axis_name(offset.setting)
    if base is None:
        value, low, high = ends
        return f"{part} grows with {name} to the power {value:.2g} ({low:.2g} to {high:.2g})"
    value, low, high = np.exp(ends)
    return f"{part} of {name}={offset.value}: {value:.2g} ({low:.2g} to {high:.2g}) × {base.value}"
