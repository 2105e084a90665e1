"""From raw steps to rows.

The driver, and rank 0 under torchrun; the first two wherever results travel. Imports NumPy. In reading order:

    rank_result     what a rank sends to the driver, declared
    attempt_result  what a session hands to the driver for one attempt
    breakdown       where a step's time and a device's power go
    flags           what to know before trusting a trial's numbers
    window_view     the ranks' windows as one series, its warm-up marked
    summary         the columns of a trial, from the steps of all ranks
    rows            from what the ranks sent to the rows that are stored
"""
