"""Statistics of launches: variances, contrasts between points, and their precision.

The driver and readers; imports pandas and SciPy in functions alone. Frames enter by `spread` and
`contrasts.logarithms_of`; all else takes arrays. In reading order:

    verdicts        verdicts of comparisons, their reasons and methods, as stable codes
    variance        pools the variance between launches, and moderates it by a point's residuals
    turns           levels of points that were measured in turn, under equal conditions
    spread          means of launches by point, in one environment; `Launches` pools their variance
    contrasts       differences between points, each to each, with their intervals
    power           smallest difference that a test detects with a probability
    looks           significance level of one look, where launches are looked at again and again
    forecast        chance that further rounds decide, and whether they pay
    changes         the run from which on series of a point have another level
    selection       the best point, or one equal to it within an indifference zone
    pareto          frontiers of numbers: rows that no other row dominates, their hypervolume, knee
"""
