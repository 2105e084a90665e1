"""Point against point, and run against run or against earlier runs of the same results.

Readers; imports pandas and SciPy in functions alone. In reading order:

    points          a comparison of two points, in words and as JSON values
    runs            whole runs of results, and how their machines differ
    regressions     tests of a later run against earlier ones, by point
    compared_runs   a run against earlier ones, point by point
    words           a comparison of runs in words and as JSON values
    runs_table      a comparison of runs in the terminal
"""
