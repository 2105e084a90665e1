"""Performance model: step time, memory and rate of configurations that were not measured.

The driver and readers; imports SciPy in functions alone. It takes and gives arrays; frames are
turned into them by `dtsweep.analysis`. In reading order:

    setups          settings of configurations by column, what was measured of them, predictions
    memory          need of memory: a line through the peaks of other micro-batches
    formula         step time by a formula with few parameters, and its derivatives
    offsets         categories and numbers of users as factors of compute and exchange
    physics         the most probable parameters of the formula
    residual        Gaussian process of the residual
    posterior       formula and residual, conditioned on measurements
    limits          configurations that can't be predicted, and why
    step_time       the model of the step time: fit and predict
"""
