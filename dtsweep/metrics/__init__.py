"""From raw steps to rows.

The driver, and rank 0 under torchrun; `rank_result` ranks and slots too, `attempt_result` and
`rows` slots, `product` ranks and readers. Imports NumPy. In reading order:

    product         a digest that tells models apart
    rank_result     what a rank sends to its slot, which passes it on to the driver
    attempt_result  what a slot keeps of an attempt until the driver collects it
    breakdown       where a step's time and a device's power go
    skew            the own work of ranks, and the slowest of them
    window_view     the ranks' windows as one series, its warm-up marked
    exchange_share  what a step spends on the exchange, on waiting and on loading batches
    flags           what to know before trusting a trial's numbers
    summary         measured columns of a trial, from the steps, counters and telemetry of all ranks
    plausible       whether a row's numbers can all be true
    own_loops       columns that are counted or measured of the user's own training loops
    rows            rows from what the ranks sent; the recorder adds status, session, provenance
    charge          columns of an attempt for the nodes of its workers, and their cost
"""
