"""Statistical efficiency of modes and compressions on small problems: samples to a loss.

`benchmarks/efficiency.py` measures it, and keeps its table next to this file.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from dtsweep.sweep.compressions import COMPRESSIONS, reads_of
from dtsweep.sweep.modes import MODES
from dtsweep.sweep.point import CHOSEN_FIELDS, DEFAULTS
from dtsweep.sweep.values import Scalar

if TYPE_CHECKING:
    import pandas as pd

LANGUAGE_MODEL = "gpt"
"""The problem that reports name; the other one is `regression`."""

TABLE = "statistical_efficiency.json"

SAME_UPDATE = frozenset(
    {"overlap", "bucket_bytes", "node_size", "shards", "reshard", "offload", "compression_coding"}
    | {"server_device", "replicas", "balance"}
)
"""Fields of modes and compressions that don't change an update, or hardly do.

Rows hold for all their values. A field that is not here must be equal.
"""


NOT_MEASURED: Mapping[str, str] = {}
"""Modes and compressions that change the update and have no row, with the reason."""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """Mean over seeds with its 95 % interval; without a mean, `low` is a limit."""

    mean: float | None
    """Geometric mean; None if the loss was not reached with each seed."""

    low: float
    """Lower end; without a mean the smallest ratio of all seeds.

    Of n seeds that is below the median with a probability of 1 − 2⁻ⁿ: 97 % with five.
    """

    high: float | None


@dataclass(frozen=True, kw_only=True)
class Row:
    """Statistical efficiency of one variant on one problem, next to `ddp` with the same seeds."""

    problem: str
    """`regression` or `gpt`."""

    sync: str
    compression: str | None
    settings: Mapping[str, Scalar]
    """The other fields that its mode and compression read, but for `SAME_UPDATE`."""

    check: str = ""
    """Check of the method that it is; empty for a variant."""

    learning_rate: float
    """The best one for this variant, of rates that are powers of 2 apart."""

    limit: float
    """Samples of a run at most, in those of `ddp`."""

    ratios: Sequence[float | None]
    """(seeds,) samples to the loss that `ddp` ends with, in those of `ddp`; None: not reached."""

    loss_differences: Sequence[float | None]
    """(seeds,) held-out loss minus `ddp`'s, after equal samples; None: it diverged."""

    staleness: float | None
    """Mean staleness of an update, in updates; None in modes that do not count it."""

    date: str
    machine: str

    @property
    def name(self) -> str:
        """Mode, compression and settings, as labels of points have them: "ddp compression=int8"."""
        settings = {"compression": self.compression, **self.settings}
        words = [f"{name}={value}" for name, value in settings.items() if value is not None]
        return " ".join([self.sync, *words])

    @property
    def ratio(self) -> Ratio:
        """Mean of `ratios` over seeds, by their logarithms."""
        reached = [ratio for ratio in self.ratios if ratio is not None]
        if len(reached) < len(self.ratios):
            return Ratio(mean=None, low=min([*reached, self.limit]), high=None)
        mean, half = mean_and_half([math.log(ratio) for ratio in reached])
        return Ratio(mean=math.exp(mean), low=math.exp(mean - half), high=math.exp(mean + half))

    @property
    def loss_difference(self) -> tuple[float, float] | None:
        """Mean of `loss_differences`, and half of its 95 % interval; None if a seed diverged."""
        finite = [loss for loss in self.loss_differences if loss is not None]
        if len(finite) < len(self.loss_differences):
            return None
        return mean_and_half(finite)


@dataclass(frozen=True, kw_only=True)
class Measured:
    """A problem as it was measured, with what `ddp` reached."""

    settings: Mapping[str, Any]
    """Settings of the benchmark."""

    learning_rate: float
    """Of `ddp`."""

    targets: Sequence[float]
    """(seeds,) held-out loss of `ddp` at its end, which the others have to reach."""


@dataclass(frozen=True, kw_only=True)
class Table:
    """All that was measured."""

    problems: Mapping[str, Measured] = field(default_factory=dict)
    rows: Sequence[Row] = ()

    def of(self, name: str) -> list[Row]:
        """Rows of a problem."""
        return [row for row in self.rows if row.problem == name]


def mean_and_half(values: Sequence[float]) -> tuple[float, float]:
    """Mean of values over seeds, and half of its 95 % interval by Student's t."""
    import numpy as np
    from scipy import stats

    error = float(np.std(values, ddof=1)) / math.sqrt(len(values))
    return float(np.mean(values)), float(stats.t.ppf(0.975, len(values) - 1)) * error


def table_of(text: str) -> Table:
    """Read a table."""
    values = json.loads(text)
    return Table(
        problems={name: Measured(**problem) for name, problem in values["problems"].items()},
        rows=[Row(**row) for row in values["rows"]],
    )


def text_of(table: Table) -> str:
    """Write a table, a row a line."""
    problems = json.dumps({name: asdict(one) for name, one in table.problems.items()}, indent=1)
    rows = ",\n".join(f"  {json.dumps(asdict(row))}" for row in table.rows)
    return f'{{"problems": {problems},\n "rows": [\n{rows}\n]}}\n'


@cache
def stored() -> Table:
    """The table in the package."""
    return table_of(files("dtsweep.analysis").joinpath(TABLE).read_text("utf-8"))


def settings_of(values: Mapping[str, Any]) -> dict[str, Scalar]:
    """Fields that change an update beyond mode and compression, of a point by its columns.

    >>> settings_of({"sync": "local_sgd", "sync_period": 8, "compression": None})
    {'sync_period': 8}
    """
    reads = [*MODES[values["sync"]].reads, *reads_of(values["compression"])]
    settings = {name: values.get(name) for name in reads if name not in SAME_UPDATE}
    # What is set to the default of all points is not set.
    return {
        name: value
        for name, value in settings.items()
        if value is not None and value != DEFAULTS[name]
    }


def efficiency_of(
    point: Mapping[str, Any] | pd.Series[Any],
    *,
    table: Table | None = None,
    problem: str = LANGUAGE_MODEL,
) -> Row | None:
    """Find the row of a point: of its mode, compression, and all settings that change an update.

    Args:
        point: a row of `over_launches` or `frontier`, or columns of a `Point`.
        table: to look in; None for the one in the package.
        problem: of the row.

    Returns:
        None if nothing like it was measured; other settings are not a guess for these.
    """
    import pandas as pd

    names = ("sync", "compression", *CHOSEN_FIELDS)
    values = {name: point.get(name) for name in names}
    values = {name: None if pd.isna(value) else value for name, value in values.items()}
    if values["sync"] not in MODES or values["compression"] not in (None, *COMPRESSIONS):
        return None
    wanted = (values["sync"], values["compression"], settings_of(values))
    for row in (table or stored()).of(problem):
        if not row.check and wanted == (row.sync, row.compression, row.settings):
            return row
    return None
