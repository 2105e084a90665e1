from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pyarrow as pa
import pytest

import dtsweep
from dtsweep.errors import SweepError
from dtsweep.metrics.breakdown import PHASE_COLUMNS
from dtsweep.metrics.rank_result import RankColumns, RankFacts, TrialColumns
from dtsweep.results.schema import RANKS, SCHEMA_VERSION, STEPS, TABLES, TRIALS, table_schema
from dtsweep.results.statuses import FINAL, FLAG_MEANINGS, RETRIED, STATUSES


@pytest.mark.parametrize("table", TABLES)
def test_every_column_is_declared_once_and_says_what_it_means(table: str) -> None:
    names = [column.name for column in TABLES[table]]
    assert len(names) == len(set(names))
    assert all(column.meaning for column in TABLES[table])


def test_a_suffix_and_the_unit_agree() -> None:
    units = {"per_s": "/s", "bytes": "bytes", "usd": "USD", "j": "J", "w": "W", "hz": "Hz"}
    units |= {"celsius": "°C", "s": "s"}
    for column in (column for columns in TABLES.values() for column in columns):
        suffix = next((suffix for suffix in units if column.name.endswith(f"_{suffix}")), None)
        if suffix == "s":
            assert column.unit == "s", column
        elif suffix:
            assert column.unit.endswith(units[suffix]), column


def test_units_meanings_and_version_travel_with_the_schema() -> None:
    schema = table_schema("trials")
    assert schema.metadata == {b"dtsweep.schema_version": str(SCHEMA_VERSION).encode()}
    assert schema.field("window_s").metadata[b"unit"] == b"s"
    assert schema.field("window_s").metadata[b"meaning"]
    assert schema.field("started_at").type == pa.timestamp("us", tz="UTC")


def test_a_workload_field_can_not_take_the_name_of_a_column() -> None:
    with pytest.raises(SweepError, match=r"'digest'.*workload_digest.*rename"):
        table_schema("trials", workload_types={"digest": str})


def test_what_is_final_is_not_retried() -> None:
    assert STATUSES >= FINAL | RETRIED
    assert not FINAL & RETRIED


def test_every_flag_says_what_it_means_and_some_module_raises_it() -> None:
    package = Path(dtsweep.__file__).parent
    # Rooms where flags are declared or shown, not raised.
    others = (package / "results", package / "report")
    raising = [file for file in package.rglob("*.py") if not {*others} & {*file.parents}]
    source = "".join(file.read_text("utf-8") for file in raising)
    assert all(FLAG_MEANINGS.values())
    assert [flag for flag in FLAG_MEANINGS if f'"{flag}"' not in source] == []


def test_what_ranks_send_to_be_stored_as_it_is_has_a_column() -> None:
    trials, ranks, steps = ({column.name for column in table} for table in (TRIALS, RANKS, STEPS))
    assert trials & ranks & steps >= {*PHASE_COLUMNS}
    assert ranks >= {item.name for sent in (RankFacts, RankColumns) for item in fields(sent)}
    assert trials >= {item.name for item in fields(TrialColumns)}
