"""Point against point, run against run or earlier runs of the same results, claim against run.

Readers; imports pandas and SciPy in functions alone. In reading order:

    points          a comparison of two points, in words and as JSON values
    runs            whole runs of results, and how their machines differ
    regressions     tests of a later run against earlier ones, by point
    compared_runs   a run against earlier ones, point by point
    words           a comparison of runs in words and as JSON values
    runs_table      a comparison of runs in the terminal
    trend           points over runs, and where they changed
    trend_plot      a trend as a plot and as a page
    markdown        a comparison of runs for a pull request
    claim           claim of a point for others, as JSON values
    claim_check     check of a claim: its sweep, its launches, and the verdict
"""
