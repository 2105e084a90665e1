"""Run against run: regressions between two runs, or against a history of them.

Readers; imports pandas and SciPy in functions alone. In reading order:

    history         rows of one run after another, in files of their own
    machines        the machine and the software of each environment
    runs            whole runs, from results or from a history, and how their machines differ
    regressions     tests of a later run against earlier ones, by point
    compared_runs   a run against earlier ones, point by point
    words           a comparison of runs in words and as JSON values
    runs_table      a comparison of runs in the terminal
"""
