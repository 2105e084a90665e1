"""The question: axes, points and settings of a sweep file.

Any process; imports the standard library alone. In reading order:

    modes           the list of sync modes, readable without torch
    precision       the list of precisions
    values          values of axes and of a workload's fields, in their declared types
    point           one setting of all axes, each declared once, and its identity
    checks          validation of a sweep's workload and axes, before any point is built
    settings        `Measure`, `Resources` and `Sweep`: what a sweep file holds
    constraints     the one table of what can't be
    axes            from axes to points, the impossible ones with their reason
    file            reads a sweep file, and says what is wrong with file and line
    task            the message that tells ranks what to measure
"""
