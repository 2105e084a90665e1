"""The question: axes, points and settings of a sweep file.

Any process; imports the standard library, and NumPy in a function of `axes`. In reading order:

    compressions    the list of compressions, readable without torch
    mode_info       what the declaration of a sync mode says, and that of a workload's own mode
    modes           the list of sync modes, readable without torch
    precision       the table of precisions: what each sets; ranks, FLOP counts and doctor read it
    values          values of axes and of a workload's fields, in their declared types
    arguments       the command line of a script of the user
    named_grid      the grid of a script, by arguments that are numbers of workers
    loader_axes     settings of a loop's data loaders that can be axes
    variables       names and values of environment variables, as `os.environ` takes them
    point_axes      the axes, declared here (global_batch, workload.*, env.*: see `axes`)
    point           one setting of all axes, and what names it
    checks          validation of a sweep's workload and axes, before any point is built
    goal            what a configuration should be best at, and what it has to keep to
    search          settings of a search in the points, and the goals that it knows
    settings        `Measure`, `Resources` and `Sweep`: what a sweep file holds
    constraints     why a point can't be measured; a cluster's size is judged in `cluster.capacity`
    axes            from axes to points, the impossible ones with their reason
    evidence        machines on which each feature was tried, for plan and doctor
    file            reads a sweep file, and says what is wrong with file and line
    travel          travel of a workload to other processes: which objects go by name
    task            the message that tells ranks what to measure
"""
