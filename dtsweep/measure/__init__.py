"""The instruments: clocks, windows and statistics. They know no sync mode.

Ranks; the driver too, but for the instruments of a step; `statistics` and `drift` readers,
`stopping` slots. Imports torch and NumPy, and SciPy in functions. In reading order:

    statistics      rates and latencies with their intervals
    cycles          cycles of points in turn: when their differences are known
    turns           steps with and without the exchange in turns, and what they tell
    warmup          the step at which the warm-up ends (the driver marks it); is the rest steady?
    drift           levels of canaries, and whether they differ
    stopping        the rule by which a window ends: limits, precision
    window          the steps of a window, which ranks end at the same one without a collective
    clock           when each phase and step ended
    device_idle     share of a step in which a GPU has no work
    store_group     ranks that agree through a key-value store, without a process group
    isolated_exchange  the exchange by itself, and what ranks agree on
    traffic         bytes and messages that a rank sends
    work            what operations move, and what they take at least
    operations      the operations of a pass and of an update, noted as they run
    flops           FLOPs of a sample, counted without computing
"""
