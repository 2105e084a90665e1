"""Tables of other tools: read as rows of results, and written of trials.

Readers; imports pandas in functions alone. In reading order:

    complete      what follows from the numbers of a row, and which of them contradict each other
    serving_json  results of `vllm bench serve` and aiperf, as rows
    table         rows of files, whose columns are those of results
    import_rows   names points and trials of a table's rows, and stores what is new
    to_csv        CSV of trials
"""

from __future__ import annotations

from dtsweep.foreign_tables.import_rows import store_table

__all__ = ["store_table"]
