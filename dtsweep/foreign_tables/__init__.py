"""Tables of other tools: read as rows of results, and written of trials.

Readers; imports pandas in functions alone. In reading order:

    table        frames of CSV and JSON files
    map_file     reads and drafts maps: what each column of results comes from
    translate    rows of a table, in the columns of results
    identify     names of points, trials and attempts, and which of them are new
    import_rows  reads tables, translates their rows, and stores what is new
    to_csv       CSV of trials
"""

from __future__ import annotations

from dtsweep.foreign_tables.import_rows import Imported, import_tables

__all__ = ["Imported", "import_tables"]
