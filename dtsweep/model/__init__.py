"""Performance model: step time, memory and rate of configurations that were not measured.

The driver and readers; imports SciPy in functions alone. It takes and gives arrays; frames are
turned into them by `dtsweep.analysis`. In reading order:

    setups          settings of configurations by column, what was measured of them, predictions
    memory_terms    arithmetic of a worker's memory, by mode
    memory          need of memory: that arithmetic, activations, and deviations of modes
    memory_fit      fit of the need to measured peaks, and to trials that ran out of memory
"""
