"""Performance model: step time, memory and rate of configurations that were not measured.

The driver and readers; imports SciPy in functions alone. It takes and gives arrays; frames are
turned into them by `dtsweep.analysis`. In reading order:

    setups          settings of configurations by column, what was measured of them, predictions
"""
