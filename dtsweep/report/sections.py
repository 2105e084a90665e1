"""Importance of the swept axes and the certificate of a search: sections of the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.report.records import records_of
from dtsweep.results.certificate import Certificate
from dtsweep.results.store import Results
from dtsweep.text import in_percent, say

if TYPE_CHECKING:
    import pandas as pd
    from rich.console import Console

_LEAST_SHOWN = 0.01
"""Share of the variance, below which a row is part of `all else`."""

_SHARES_OF = (
    "These are shares of the variance of its logarithm, by the performance model, over the "
    "measured values of all axes."
)


@dataclass(frozen=True, eq=False)
class Importance:
    """Section of a report: shares of the variation of the step time, by axis."""

    rows: pd.DataFrame
    """Rows of `dtsweep.predict.importance`."""

    def print(self, *, console: Console) -> None:
        """Print a sentence for each model and environment, and name axes that count as one."""
        rows = self.rows
        if rows.empty:
            return
        say(console, "\nWhat matters for the step time", style="bold")
        groups = rows.groupby(["model_digest", "env_id"], dropna=False, sort=False)
        for (model, env_id), group in groups:
            name = ""
            if groups.ngroups > 1:
                name = f"Model {model} in {env_id}: "
            say(console, f"{name}{_shares(group)}.")
        for axes in rows.loc[~rows["is_identifiable"].astype(bool), "axes"].unique():
            say(console, f"Not identifiable: {axes} were varied together, and count as one.")
        say(console, _SHARES_OF)

    def as_json(self) -> dict[str, Any]:
        """Give the rows as JSON values, under `importance`."""
        return {"importance": records_of(self.rows)}


def _shares(group: pd.DataFrame) -> str:
    """Name axes and pairs with their shares, the largest first."""
    is_shown = (group["share"] >= _LEAST_SHOWN) & (group["kind"] != "rest")
    shares = group[is_shown].set_index("axes")["share"]
    words = ", ".join(f"{axes} {in_percent(share)}" for axes, share in shares.items())
    rest = float(group.loc[~is_shown, "share"].sum())
    if rest < _LEAST_SHOWN / 2:
        return words
    return f"{words}; all else {in_percent(rest)}"


def certificate_in(store: Results) -> _SearchSection:
    """Make the section of the last run's search: points that were not measured are in no row."""
    records = [run.record for run in store.run_records()]
    return _SearchSection(records[-1].certificate if records else None)


@dataclass(frozen=True)
class _SearchSection:
    """Section of a report: the certificate of a search."""

    certificate: Certificate | None
    """None where the last run was no search."""

    def print(self, *, console: Console) -> None:
        """Print the certificate as a sentence."""
        if self.certificate is not None:
            say(console, f"\n{self.certificate.words}")

    def as_json(self) -> dict[str, Any]:
        """Give the certificate as JSON values, under `certificate`; None if there is not one."""
        return {"certificate": self.certificate and asdict(self.certificate)}
