"""Certificate of a search: a section of the report."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from dtsweep.results.certificate import Certificate
from dtsweep.results.store import Results
from dtsweep.text import say

if TYPE_CHECKING:
    from rich.console import Console


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
