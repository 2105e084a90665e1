"""Other people's tables of measurements, as rows of results.

Readers; imports Arrow in functions alone. `maps/` has the ready maps, in TOML. In reading order:

    expression      arithmetic of a table's columns, as a map writes it
    table           rows of a CSV, Parquet or JSON-lines file
    ray_tune        rows of an experiment folder of Ray Tune, one per trial
    map_file        reads a map: the expression or constant that each column of results comes from
    contradictions  numbers of a row that can't all be true
    translate       values of one row of a table, in the columns of results
    identify        names of points, trials and attempts, and which of them are new
    import_rows     reads tables, translates their rows, and stores what is new
"""

from __future__ import annotations

from dtsweep.foreign_tables.import_rows import Imported, import_tables

__all__ = ["Imported", "import_tables"]
