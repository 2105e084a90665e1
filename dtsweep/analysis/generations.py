"""Which rows are of an earlier source of their workload: what has changed since makes another job of it."""

from __future__ import annotations

import json
from collections.abc import Hashable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from dtsweep.provenance.sources import changes, in_a_line

if TYPE_CHECKING:
    import pandas as pd

FIELD = "field "
"""Begins the names of what fields name, in the column `sources`."""


@dataclass(frozen=True)
class Generation:
    """What a workload was made of while some rows were measured."""

    digest: str
    sources: dict[str, str] | None
    """None where earlier versions stored the digest alone. Of all its rows: not each sees all packages and data."""

    change: str | None
    """What is otherwise in the newest one; None for that."""

    def changed_since(self, digest: str, sources: dict[str, str] | None) -> str | None:
        """Say in a line what a row has that this one has otherwise; None where it is of this generation."""
        if sources is None or self.sources is None:
            return None if digest == self.digest else "another source"
        return in_a_line(changes(sources, self.sources), place="") or None


def older_source(frame: pd.DataFrame) -> pd.Series[Any]:
    """Say of each row in what its workload's source, packages or data differ from those of the newest `ok` trial.

    Workloads are told apart by their names. An interrupted `--rerun all` leaves rows of two generations.

    Args:
        frame: one row per trial.

    Returns:
        For each row a line that all rows of its generation have, and no others of the workload; null in the newest,
        where the source is not known, and where the row is not `ok`.
    """
    import pandas as pd

    fields = [c for c in frame.columns if c.startswith("workload_") and c != "workload_digest"]
    rows = frame[["workload", "workload_digest", "sources", *fields]].assign(place=range(len(frame)))
    # What watches the machine makes no trial an older one.
    age = frame[["started_at"]].assign(is_trial=~frame["role"].isin(["canary"])).reset_index(drop=True)
    age = age.sort_values(["is_trial", "started_at"], kind="stable", na_position="first")
    known = ((frame["status"] == "ok") & frame["workload_digest"].notna()).to_numpy()
    order = [place for place in age.index[::-1] if known[place]]
    names: list[str | None] = [None] * len(frame)
    generations: dict[str, dict[str | None, Generation]] = {}
    # Rows of the same sources and fields are of one generation: most are.
    found: dict[Any, str | None] = {}
    for row in rows.iloc[order].to_dict("records"):
        place = row.pop("place")
        key = tuple(map(str, row.values()))
        if key not in found:
            found[key] = _name_of(row, generations.setdefault(str(row["workload"]), {}))
        names[place] = found[key]
    return pd.Series(names, index=frame.index, dtype=object)


def _name_of(row: Mapping[Hashable, Any], generations: dict[str | None, Generation]) -> str | None:
    """Find the generation of a row, or add it to those of newer rows, the newest of which comes first."""
    digest, sources = row["workload_digest"], None
    if isinstance(row["sources"], str):
        sources = {_with_value(name, row): content for name, content in json.loads(row["sources"]).items()}
    changed = {name: each.changed_since(digest, sources) for name, each in generations.items()}
    for name, change in changed.items():
        if change is None:
            known = generations[name].sources
            generations[name] = replace(generations[name], sources={**(sources or {}), **known} if known else known)
            return name
    change = next(iter(changed.values()), None)
    alike = [each for each in generations.values() if each.change == change]
    name = f"{change} ({len(alike) + 1})" if alike else change
    generations[name] = Generation(digest, sources, change)
    return name


def _with_value(name: str, row: Mapping[Hashable, Any]) -> str:
    """The name of an entry of `sources`: each value of a field names data of its own."""
    # A list of paths has an entry for each: "field data[0]".
    field = name.removeprefix(FIELD).partition("[")[0]
    return f"{name} {row.get(f'workload_{field}')}" if name.startswith(FIELD) else name
