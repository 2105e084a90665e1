"""Storage of results: three Parquet data sets, written by the driver alone.

The driver and readers; `statuses` any process. Imports Arrow. In reading order:

    statuses        how an attempt can end, and what flags warn of
    schema          every column of the three data sets, with unit and meaning
    current_attempt  which of a trial's attempts stands for it
    private         private folders on a machine that others use, too
    time_limit      calls of libraries that may wait for ever
    object_stores   how an object store is opened, and which errors won't pass
    local_files     plain files of a folder, and what else lies there
    storage         where results lie: a disk or an object store
    parquet         one Parquet file, believed only if its digest agrees
    merge           files joined, for readers and into larger files
    pack            what an attempt or a log is stored as, in memory
    lease           one run per place of results at a time
    certificate     what a search left out, and how likely that beats its answer
    run_record      how far a run is, and what its nodes did and cost
    spool           files that could not be stored yet, on a local disk
    table_files     Parquet files of the data sets, read; what is damaged is left out
    compaction      many small files of a table, merged into few
    store           the three data sets; an attempt's row of `trials` is its commit
    frames          rows of results as frames; warnings and errors where rows are missing
    campaign        state of all runs on one place of results: how far, what it took, what is left
    outbox          files on their way to the results, stored by a thread
"""
