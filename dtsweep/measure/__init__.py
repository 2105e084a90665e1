"""The instruments: clocks, windows and statistics. They know no sync mode.

Ranks; `statistics` the driver and readers too. Imports torch and NumPy. In reading order:

    statistics      rates and latencies with their intervals
    warmup          where the warm-up ends, and whether the rest is steady
    stopping        when a window ends: the one place that decides
    window          how ranks stop at the same step without asking each other
    clock           when each phase and step ended
    exchange        what the exchange costs: with and without it in turns
    flops           FLOPs of a sample, counted without computing
    trace           breakdown of a GPU's trace: seconds per step by class
    profile         a trace of some steps, and on a GPU its kernels by class
"""
