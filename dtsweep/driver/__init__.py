"""The run: connects, hands out, stores.

The driver's process; imports Ray and Ray Tune, but `run` in functions alone. In reading order:

    queue           which attempt comes next, and what follows from how one ended; pure
    recorder        turns each finished attempt into rows and stores them
    shipping        what travels to the nodes
    cluster         which Ray is used, and what fits on it
    prepare         a plan laid out on a cluster; pure
    scheduler       hands the queue's attempts to lanes, called by Ray Tune
    tuner           runs Ray Tune over the scheduler; signals
    in_process      the run in this very process, without Ray
    run             plan, lay out, have measured, store
"""
