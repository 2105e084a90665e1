"""From raw steps to rows.

The driver, and rank 0 under torchrun; imports NumPy. In reading order:

    breakdown       where a step's time and a device's power go
    flags           what to know before trusting a trial's figures
    summary         the columns of a trial, from the steps of all ranks
    rows            from what the ranks sent to the rows that are stored
"""
