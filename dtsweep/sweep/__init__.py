"""The question: axes, points and settings of a sweep file.

Any process; imports the standard library alone. In reading order:

    modes           sync modes that an axis may name, readable without torch
    point           one setting of all axes, and its identity
    checks          validation of a sweep's workload and axes, before any point is built
    settings        `Measure`, `Resources` and `Sweep`: what a sweep file holds
    axes            from axes to points, the impossible ones with their reason
    file            reads a sweep file, and says what is wrong with file and line
    task            one attempt at a trial, as it travels to the ranks
"""
