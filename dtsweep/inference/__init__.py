"""Statistics of launches: variances, contrasts between points, and how far both are known.

Readers; imports pandas and SciPy in functions alone. Frames enter by `spread`; all else takes arrays. In reading order:

    verdicts        verdicts and reasons as stable codes
    variance        the errors of windows, and the variance between launches
    spread          launches by point and environment, with the variance that they share
    contrasts       differences between points, each to each, with their intervals
    power           how many more launches would tell two points apart
    pareto          frontiers of numbers: rows that no other row dominates, the volume below, the knee
    fits            a curve through what was measured, with the intervals of its parameters
"""
