"""Other people's tables of measurements, as rows of results.

Readers; imports Arrow and pandas in functions alone. `maps/` has the ready maps, in TOML. In
reading order:

    table        frames of CSV, Parquet and JSON files, and of experiments of Ray Tune
    map_file     reads a map: the expression or constant that each column of results comes from
    translate    rows of a table, in the columns of results
    identify     names of points, trials and attempts, and which of them are new
    import_rows  reads tables, translates their rows, and stores what is new
"""

from __future__ import annotations

from dtsweep.foreign_tables.import_rows import Imported, import_tables

__all__ = ["Imported", "import_tables"]
